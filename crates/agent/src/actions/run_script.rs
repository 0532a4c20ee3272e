//! `run_script [name, options]`: the scripts of no jobs are none, which is a success.

use serde_json::{Value, json};
use windlass_contract::Object;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(_: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(2)?;
    arguments.take::<String>(0)?;
    arguments.take::<Option<Object>>(1)?;
    Ok(json!({}))
}
