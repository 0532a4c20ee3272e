//! `get_state ["full", "alerts"]`: the spec applied last, the state of the jobs, how the machine is, and what broke. That is what
//! the original sends as heartbeats and alerts over a message bus; it takes any number of words and ignores the second.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::alerts::Alert;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    let mut says = |position, word| {
        let found = arguments.take::<Option<String>>(position)?;
        Ok::<_, ActionError>(found.as_deref() == Some(word))
    };
    let (full, alerts) = (says(0, "full")?, says(1, "alerts")?);
    let mut state = json!(Spec::read(&agent.base.spec())?);
    let settings = agent.settings.current();
    state["agent_id"] = json!(settings.agent.agent_id);
    state["job_state"] = agent.record_health().into();
    let processes = agent.supervisor.processes();
    if !processes.is_empty() {
        state["processes"] = processes.into();
    }
    if full {
        let platform = &agent.platform;
        state["vitals"] = agent.vitals.now(&platform.file_systems(), platform.has_own_file_systems());
        let simulated =
            agent.simulation.as_ref().and_then(|simulation| simulation.persistent_disk_kib(&agent.base.store()));
        if let (Some(kib), Some(persistent)) = (simulated, state.pointer_mut("/vitals/disk/persistent")) {
            persistent["kb"] = kib.to_string().into();
        }
    }
    if alerts {
        let mut addresses: Vec<String> =
            settings.agent.networks.values().filter_map(|network| network.ip.clone()).collect();
        addresses.sort();
        let events = agent.supervisor.events();
        state["alerts"] = json!(agent.alerts.with(events.iter().filter_map(|event| Alert::of(event, &addresses))));
    }
    state["vm"] = json!({"name": settings.agent.vm.name});
    Ok(state)
}
