//! The supervisor of simulated VMs. It starts no process: those that the monit files name run as soon as they are started, and until
//! they are stopped. Scripts of jobs are another matter, they are run ([`crate::scripts`]).

use serde_json::{Value, json};
use windlass_durable::file;
use windlass_supervise::monit::fleet::Fleet;

use super::{SupervisorError, files};
use crate::layout::Base;
use crate::spec::Spec;

#[derive(Debug)]
pub(crate) struct Simulated {
    base: Base,
    /// Whether it takes jobs at all: their scripts run on the machine that simulates.
    pub(super) runs_jobs: bool,
}

impl Simulated {
    pub(super) fn new(base: Base, runs_jobs: bool) -> Self {
        Self { base, runs_jobs }
    }

    pub(super) fn forget(&self) -> Result<(), SupervisorError> {
        files::remove(&self.base)
    }

    pub(super) fn start(&self, spec: &Spec) -> Result<(), SupervisorError> {
        if self.runs_jobs {
            let files = files::of_jobs(&self.base.jobs(), spec)?;
            files::write(&self.base, &files)?;
        }
        let stopped = self.base.stopped();
        file::remove_file(&stopped).map_err(files::failed(&stopped))
    }

    /// Remembered in a file, also over a reboot.
    pub(super) fn stop(&self) -> Result<(), SupervisorError> {
        let stopped = self.base.stopped();
        file::write(&stopped, b"", file::PRIVATE).map_err(files::failed(&stopped))
    }

    pub(super) fn state(&self) -> &'static str {
        if self.base.stopped().exists() { "stopped" } else { "running" }
    }

    pub(super) fn processes(&self) -> Vec<Value> {
        let files = files::read(&self.base).unwrap_or_default();
        let fleet = Fleet::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str()))).unwrap_or_default();
        // What monit does not look after any more has no state that it knows.
        let state = if self.base.stopped().exists() { "unknown" } else { "running" };
        let process = |name: &str| {
            json!({
                "name": name, "state": state, "uptime": {"secs": 0}, "mem": {"kb": 0, "percent": 0.0}, "cpu": {"total": 0.0},
            })
        };
        fleet.services().map(|service| process(&service.name)).collect()
    }
}
