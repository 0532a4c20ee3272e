//! `drain [type, spec...]`: without jobs there is nothing to wait for.

use serde_json::Value;
use windlass_contract::Object;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(_: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let kind: String = arguments.take(0)?;
    let spec: Option<Object> = arguments.take(1)?;
    match kind.as_str() {
        "update" if spec.is_none() => Err(ActionError::DrainWithoutSpec),
        "status" => Err(ActionError::DrainStatus),
        _ => Ok(0.into()),
    }
}
