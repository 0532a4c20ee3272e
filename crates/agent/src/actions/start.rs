//! `start`: the jobs are no longer stopped.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    agent.supervisor.start().map_err(ActionError::Supervisor)?;
    Ok("started".into())
}
