//! `start`: the jobs' processes are started, and looked after from now on. Whether they come up is seen in `get_state`.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    agent.supervisor.start(&Spec::read(&agent.base.spec())?)?;
    agent.record_health();
    Ok("started".into())
}
