//! `stop`: the jobs' processes are stopped until the next `start`. It ends when they have ended.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    let stopped = agent.supervisor.stop(&agent.tasks);
    agent.record_health();
    stopped?;
    Ok("stopped".into())
}
