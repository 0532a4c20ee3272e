//! `info`: the version of the actions.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(_: &Agent, _: Arguments) -> Result<Value, ActionError> {
    Ok(json!({"api_version": 1}))
}
