//! `stop`: the jobs' processes are stopped until the next `start`. It ends when they have ended.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    agent.supervisor.stop(&agent.tasks)?;
    Ok("stopped".into())
}
