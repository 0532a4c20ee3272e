//! Who runs the jobs, and what it says about them. An instance without jobs runs as soon as it is not stopped.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use windlass_durable::file;

use crate::spec::{Spec, SpecError};

/// The names that `-M` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SupervisorKind {
    /// That of stemcells.
    Monit,
    /// The original's for tests of directors.
    Dummy,
}

/// Who runs the jobs.
#[derive(Debug)]
pub(crate) enum Supervisor {
    /// Remembers in a file that they are stopped, also over a reboot.
    Monit { stopped: PathBuf },
    /// Remembers the last request, and nothing before it.
    Dummy { state: Mutex<&'static str> },
}

impl Supervisor {
    pub(crate) fn new(kind: SupervisorKind, stopped: PathBuf) -> Self {
        match kind {
            SupervisorKind::Monit => Self::Monit { stopped },
            SupervisorKind::Dummy => Self::Dummy { state: Mutex::new("unknown") },
        }
    }

    /// Refuses a spec whose jobs would never run.
    pub(crate) fn check(&self, spec: &Spec) -> Result<(), SpecError> {
        match self {
            Self::Monit { .. } => spec.refuse_jobs(),
            Self::Dummy { .. } => Ok(()),
        }
    }

    /// Starts the jobs.
    pub(crate) fn start(&self) -> io::Result<()> {
        match self {
            Self::Monit { stopped } => file::remove_file(stopped),
            Self::Dummy { state } => remember(state, "running"),
        }
    }

    /// Stops the jobs until the next start.
    pub(crate) fn stop(&self) -> io::Result<()> {
        match self {
            Self::Monit { stopped } => file::write(stopped, b"", file::PRIVATE),
            Self::Dummy { state } => remember(state, "stopped"),
        }
    }

    /// The state of all jobs together.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Monit { stopped } if stopped.exists() => "stopped",
            Self::Monit { .. } => "running",
            Self::Dummy { state } => *state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn remember(state: &Mutex<&'static str>, now: &'static str) -> io::Result<()> {
    *state.lock().unwrap_or_else(PoisonError::into_inner) = now;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_jobs_stay_stopped_over_a_reboot_and_the_dummys_are_unknown_before_the_first_request() {
        let folder = tempfile::tempdir().unwrap();
        let new = |kind| Supervisor::new(kind, folder.path().join("stopped"));
        assert_eq!(new(SupervisorKind::Monit).state(), "running");
        new(SupervisorKind::Monit).stop().unwrap();
        assert_eq!(new(SupervisorKind::Monit).state(), "stopped");
        new(SupervisorKind::Monit).start().unwrap();
        assert_eq!(new(SupervisorKind::Monit).state(), "running");
        let dummy = new(SupervisorKind::Dummy);
        assert_eq!(dummy.state(), "unknown");
        dummy.stop().unwrap();
        assert_eq!(dummy.state(), "stopped");
        dummy.start().unwrap();
        assert_eq!(dummy.state(), "running");
    }
}
