//! Who runs the jobs, and what it says about them. An instance without jobs runs as soon as it is not stopped.

pub(crate) mod files;
mod monit;
mod own;
mod simulated;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_supervise::monit::fleet::FleetError;
use windlass_supervise::protocol::Happening;
use windlass_supervise::{ClientError, Health, ServiceStatus};

use crate::layout::Base;
use crate::spec::{Spec, SpecError};
use crate::tasks::Tasks;

use monit::Monit;
use own::Own;
pub(crate) use own::{LAUNCH, MONIT, SUPERVISE, command_line, monit as monit_command, program, run};
use simulated::Simulated;

/// The group of services that directors start and stop; others are looked after, and left alone.
const GROUP: &str = "vcap";

/// How long services may take to stop.
const STOP: Duration = Duration::from_secs(5 * 60);

/// What runs the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupervisorKind {
    /// That of stemcells, which `-M` calls `monit`: a process of our own that reads monit files.
    Own,
    /// The program of that name, of stemcells that bring it, which `-M` calls `original-monit`.
    Monit,
    /// The original's for tests of directors, `dummy`.
    Dummy,
    /// Nobody, because there is nothing to run on. Jobs are taken only where their scripts may run on the machine that simulates.
    Simulated { runs_jobs: bool },
}

/// What runs the jobs.
#[derive(Debug)]
pub(crate) enum Supervisor {
    /// A process of its own.
    Own(Own),
    /// BOSH's monit, and whether jobs can run here.
    Monit(Monit, bool),
    /// Remembers the last request, and nothing before it.
    Dummy { state: Mutex<&'static str> },
    /// Says that they run.
    Simulated(Simulated),
}

/// why the jobs are not as they should be
#[derive(Debug, thiserror::Error)]
pub(crate) enum SupervisorError {
    /// a file cannot be read or written
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the supervisor cannot be started
    #[error("cannot start the job supervisor")]
    Start(#[source] io::Error),
    /// the supervisor does not do it
    #[error(transparent)]
    Client(#[from] ClientError),
    /// the program monit is silent
    #[error("monit does not answer at {address}: is it running?")]
    Monit {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// it does not read its files
    #[error("Failed to reload monit: it still is the one of {0}")]
    NotReloaded(String),
    /// its mail cannot be received
    #[error("cannot receive the mail of monit")]
    Mail(#[source] io::Error),
    /// the monit files cannot be used
    #[error("the jobs' monit files cannot be used")]
    Files(#[from] FleetError),
    /// stopping takes too long
    #[error("Timed out waiting for services '{}' to stop after 5 minutes", .0.join(", "))]
    Slow(Vec<String>),
    /// some cannot be stopped
    #[error("Stopping services '[{}]' errored", .0.join(", "))]
    NotStopped(Vec<String>),
    /// a stop program cannot be run
    #[error("cannot stop '{service}': {reason}")]
    StopProgram { service: String, reason: String },
    /// a caller cancelled the task
    #[error("stopping was cancelled by user request")]
    Cancelled,
}

impl Supervisor {
    /// The supervisor of the jobs below `base`; a process of its own only if they can run there.
    pub(crate) fn new(kind: SupervisorKind, base: &Base, runs_jobs: bool, service_manager: &str) -> Self {
        match kind {
            SupervisorKind::Own => Self::Own(Own::new(base.clone(), runs_jobs)),
            SupervisorKind::Monit => Self::Monit(Monit::new(base.clone(), service_manager), runs_jobs),
            SupervisorKind::Dummy => Self::Dummy { state: Mutex::new("unknown") },
            SupervisorKind::Simulated { runs_jobs } => Self::Simulated(Simulated::new(base.clone(), runs_jobs)),
        }
    }

    /// Brings a supervisor back that ran before a reboot. What was started starts, what was stopped stays stopped.
    pub(crate) fn resume(&self) -> Result<(), SupervisorError> {
        match self {
            Self::Own(own) => own.resume(),
            Self::Monit(monit, _) => monit.resume(),
            Self::Dummy { .. } | Self::Simulated(_) => Ok(()),
        }
    }

    /// Refuses a spec whose jobs would never run.
    pub(crate) fn check(&self, spec: &Spec) -> Result<(), SpecError> {
        match self {
            Self::Own(own) if own.runs_jobs => Ok(()),
            Self::Simulated(simulated) if simulated.runs_jobs => Ok(()),
            Self::Monit(_, true) => Ok(()),
            Self::Own(_) | Self::Monit(_, false) | Self::Simulated(_) => spec.refuse_jobs(),
            Self::Dummy { .. } => Ok(()),
        }
    }

    /// Forgets all processes, which run on: their jobs are being replaced.
    pub(crate) fn forget(&self) -> Result<(), SupervisorError> {
        match self {
            Self::Own(own) => own.forget(),
            Self::Monit(monit, _) => monit.forget(),
            Self::Simulated(simulated) => simulated.forget(),
            Self::Dummy { .. } => Ok(()),
        }
    }

    /// Starts the processes of these jobs.
    pub(crate) fn start(&self, spec: &Spec) -> Result<(), SupervisorError> {
        match self {
            Self::Own(own) => own.start(spec),
            Self::Monit(monit, _) => monit.start(spec),
            Self::Dummy { state } => remember(state, "running"),
            Self::Simulated(simulated) => simulated.start(spec),
        }
    }

    /// Stops the processes until the next start, and waits for their end.
    pub(crate) fn stop(&self, tasks: &Tasks) -> Result<(), SupervisorError> {
        match self {
            Self::Own(own) => own.stop(tasks),
            Self::Monit(monit, _) => monit.stop(tasks),
            Self::Dummy { state } => remember(state, "stopped"),
            Self::Simulated(simulated) => simulated.stop(),
        }
    }

    /// Lets processes end without starting them again.
    pub(crate) fn unmonitor(&self) -> Result<(), SupervisorError> {
        match self {
            Self::Own(own) => own.unmonitor(),
            Self::Monit(monit, _) => monit.unmonitor(),
            Self::Dummy { .. } | Self::Simulated(_) => Ok(()),
        }
    }

    /// The state of all jobs together.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Own(own) => own.state(),
            Self::Monit(monit, _) => monit.state(),
            Self::Dummy { state } => *state.lock().unwrap_or_else(PoisonError::into_inner),
            Self::Simulated(simulated) => simulated.state(),
        }
    }

    /// What happened to the processes of the jobs, the latest last.
    pub(crate) fn events(&self) -> Vec<Happening> {
        match self {
            Self::Own(own) => own.events(),
            Self::Monit(monit, _) => monit.events(),
            Self::Dummy { .. } | Self::Simulated(_) => Vec::new(),
        }
    }

    /// Each process of the jobs, as directors show it.
    pub(crate) fn processes(&self) -> Vec<Value> {
        match self {
            Self::Own(own) => own.processes(),
            Self::Monit(monit, _) => monit.services().unwrap_or_default().iter().map(process).collect(),
            Self::Simulated(simulated) => simulated.processes(),
            Self::Dummy { .. } => Vec::new(),
        }
    }
}

/// The state of all jobs together, in the original's words.
fn state_of(services: &[ServiceStatus]) -> &'static str {
    let any = |health: Health| services.iter().any(|service| service.health == health);
    if any(Health::Starting) {
        "starting"
    } else if any(Health::Unmonitored) || any(Health::Failing) {
        "failing"
    } else {
        "running"
    }
}

fn process(service: &ServiceStatus) -> Value {
    let state = match service.health {
        Health::Unmonitored => "unknown",
        Health::Starting => "starting",
        Health::Running => "running",
        Health::Failing => "failing",
    };
    let usage = service.usage.unwrap_or_default();
    json!({
        "name": service.name, "state": state, "uptime": {"secs": service.uptime.unwrap_or_default() / 1000},
        "mem": {"kb": usage.memory, "percent": usage.memory_share}, "cpu": {"total": usage.cpu},
    })
}

fn remember(state: &Mutex<&'static str>, now: &'static str) -> Result<(), SupervisorError> {
    *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_jobs_stay_stopped_over_a_reboot_and_the_dummys_are_unknown_before_the_first_request() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::prepare(folder.path()).unwrap();
        let (tasks, spec) = (Tasks::new(base.tasks()), Spec::default());
        for kind in [SupervisorKind::Own, SupervisorKind::Simulated { runs_jobs: true }] {
            let new = || Supervisor::new(kind, &base, true, "");
            assert_eq!(new().state(), "running");
            new().stop(&tasks).unwrap();
            assert_eq!(new().state(), "stopped");
            new().start(&spec).unwrap();
            assert_eq!(new().state(), "running");
        }
        let dummy = Supervisor::new(SupervisorKind::Dummy, &base, true, "");
        assert_eq!(dummy.state(), "unknown");
        dummy.stop(&tasks).unwrap();
        assert_eq!(dummy.state(), "stopped");
        dummy.start(&spec).unwrap();
        assert_eq!(dummy.state(), "running");
    }
}
