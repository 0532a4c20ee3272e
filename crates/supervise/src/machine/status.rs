//! What is told about a service.

use serde::{Deserialize, Serialize};

use super::Machine;
use super::state::{Goal, Phase, Run, State, Task};

/// A service, as agents and operators see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceStatus {
    pub name: String,
    pub groups: Vec<String>,
    /// Whether it is a process, and not a file or host.
    pub is_process: bool,
    pub health: Health,
    /// Whether a start or stop is under way, or waits for others.
    pub is_pending: bool,
    /// Whether it is stopped, and not only left alone.
    pub is_stopped: bool,
    /// Whether the last stop did not help.
    pub has_stop_failed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Milliseconds since it was seen first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime: Option<u64>,
    /// What is wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// The same in monit's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// KiB and per cent of the process and all below it, as measured in the last cycle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// How a service is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Nobody looks after it.
    Unmonitored,
    /// It was just started, or nobody has looked yet.
    Starting,
    /// The last look found nothing wrong.
    Running,
    /// It does not run, or a test failed.
    Failing,
}

/// What processes take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// KiB.
    pub memory: u64,
    /// Per cent of the VM's memory.
    pub memory_share: f64,
    /// Per cent of all processors.
    pub cpu: f64,
}

impl Machine {
    /// All services of the files in force, by name.
    pub fn status(&self) -> Vec<ServiceStatus> {
        let known = self.fleet.services().filter_map(|service| self.states.get(&service.name));
        known.map(|state| self.status_of(state)).collect()
    }

    fn status_of(&self, state: &State) -> ServiceStatus {
        let wants_start = state.goal == Goal::Keep && state.wants_start;
        ServiceStatus {
            name: state.service.name.clone(),
            groups: state.service.groups.clone(),
            is_process: state.is_process(),
            health: health(state),
            is_pending: state.is_busy() || state.wants_down() || wants_start,
            is_stopped: state.goal == Goal::Stop,
            has_stop_failed: state.goal == Goal::Stop && state.gave_up,
            pid: state.process.map(|process| process.pid),
            uptime: state.process.map(|_| self.now.saturating_sub(state.since)),
            fault: state.fault.as_ref().map(|fault| fault.text.clone()),
            event: state.fault.as_ref().map(|fault| fault.event.to_owned()),
            usage: None,
        }
    }
}

fn health(state: &State) -> Health {
    let is_starting = matches!(&state.phase, Phase::Busy(Run { task: Task::Start, .. }));
    if state.goal != Goal::Keep {
        Health::Unmonitored
    } else if state.fault.is_some() {
        Health::Failing
    } else if is_starting || state.wants_start || state.bounce || !state.is_checked {
        Health::Starting
    } else if state.process.is_some() || !state.is_process() {
        Health::Running
    } else {
        Health::Failing
    }
}
