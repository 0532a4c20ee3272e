//! `get_state ["full"]`: the spec applied last, the state of the jobs, and how the machine is.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    let full = arguments.take::<Option<String>>(0)?.as_deref() == Some("full");
    let mut state = json!(Spec::read(&agent.base.spec())?);
    let settings = agent.settings.current();
    state["agent_id"] = json!(settings.agent.agent_id);
    state["job_state"] = agent.supervisor.state().into();
    if full {
        state["vitals"] = agent.vitals.now(&agent.platform.file_systems());
    }
    state["vm"] = json!({"name": settings.agent.vm.name});
    Ok(state)
}
