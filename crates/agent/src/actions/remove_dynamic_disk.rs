//! `remove_dynamic_disk [cid]`: it is no longer found by its cid; one that never was is a success.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let cid: String = arguments.take(0)?;
    agent
        .platform
        .remove_dynamic_disk(&cid)
        .map_err(|source| ActionError::Platform { doing: "Removing dynamic disk", source })?;
    Ok(json!({}))
}
