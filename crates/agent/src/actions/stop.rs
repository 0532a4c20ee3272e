//! `stop`: the jobs are stopped until the next `start`.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    agent.supervisor.stop().map_err(ActionError::Supervisor)?;
    Ok("stopped".into())
}
