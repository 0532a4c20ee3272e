//! The supervisor that is a process of its own: started here, told here, and never the agent's to end.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_durable::{file, kill_point};
use windlass_supervise::monit::fleet::Fleet;
use windlass_supervise::{Client, Command, Health, Selection, ServiceStatus, Settings};

use super::SupervisorError;
use crate::layout::Base;
use crate::spec::Spec;
use crate::tasks::Tasks;

/// The group of services that directors start and stop; others are looked after, and left alone.
const GROUP: &str = "vcap";

/// How long services may take to stop.
const STOP: Duration = Duration::from_secs(5 * 60);

/// How often a stop looks.
const LOOK: Duration = Duration::from_millis(100);

/// How long a question about states waits for a supervisor that restarts.
const SHORT: Duration = Duration::from_secs(1);

/// The words by which the agent's program is a supervisor, or what starts programs for one.
pub(crate) const SUPERVISE: &str = "supervise";
pub(crate) const LAUNCH: &str = "launch";

/// A stemcell's script that starts the agent with a loader of its own names itself here.
const PROGRAM: &str = "WINDLASS_AGENT";

/// What starts this program again: by its own name, by which one that is several programs knows that it is this one.
fn program() -> OsString {
    let by_name = || std::env::current_exe().ok().filter(|path| path.exists()).map(OsString::from);
    std::env::var_os(PROGRAM).or_else(by_name).unwrap_or_else(|| "/proc/self/exe".into())
}

/// A supervisor below a base directory.
#[derive(Debug)]
pub(crate) struct Own {
    base: Base,
    pub(super) runs_jobs: bool,
    /// The process, if it was started here: to collect it when it ends.
    child: Mutex<Option<Child>>,
}

/// Is the supervisor of the jobs below `base`, until it is killed.
pub(crate) fn run(base: &Path) -> ExitCode {
    // A session of its own: whoever ends the agent with all that it started does not mean this.
    let _ = rustix::process::setsid();
    let mut settings = Settings::new(folder(base), vec![program(), LAUNCH.into()]);
    settings.log = base.join("monit/monit.log");
    match windlass_supervise::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", windlass_contract::explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn folder(base: &Path) -> PathBuf {
    base.join("monit/supervise")
}

impl Own {
    pub(super) fn new(base: Base, runs_jobs: bool) -> Self {
        Self { base, runs_jobs, child: Mutex::new(None) }
    }

    fn folder(&self) -> PathBuf {
        folder(self.base.path())
    }

    fn client(&self) -> Client {
        Client::new(self.folder())
    }

    /// Whether there ever was one; a VM without jobs needs none.
    fn exists(&self) -> bool {
        self.folder().exists()
    }

    pub(super) fn resume(&self) -> Result<(), SupervisorError> {
        if self.exists() { self.ensure() } else { Ok(()) }
    }

    /// Starts it unless it runs.
    fn ensure(&self) -> Result<(), SupervisorError> {
        if self.exists() && self.client().with_patience(Duration::ZERO).status().is_ok() {
            return Ok(());
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = child.as_mut()
            && running.try_wait().is_ok_and(|ended| ended.is_none())
        {
            return Ok(());
        }
        let words: [OsString; 3] = [SUPERVISE.into(), "-b".into(), self.base.path().into()];
        let mut process = Process::new(program());
        process.args(words).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        kill_point("before the supervisor is started");
        *child = Some(process.spawn().map_err(SupervisorError::Start)?);
        kill_point("after the supervisor was started");
        Ok(())
    }

    pub(super) fn forget(&self) -> Result<(), SupervisorError> {
        if !self.exists() {
            return Ok(());
        }
        self.ensure()?;
        Ok(self.client().load(&[])?)
    }

    pub(super) fn start(&self, spec: &Spec) -> Result<(), SupervisorError> {
        let files = monit_files(&self.base.jobs(), spec)?;
        if self.exists() || !files.is_empty() {
            self.ensure()?;
            let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            self.client().load(&files)?;
            self.client().command(Command::Start, vcap())?;
        }
        let stopped = self.base.stopped();
        file::remove_file(&stopped).map_err(failed(&stopped))
    }

    pub(super) fn stop(&self, tasks: &Tasks) -> Result<(), SupervisorError> {
        let stopped = self.base.stopped();
        file::write(&stopped, b"", file::PRIVATE).map_err(failed(&stopped))?;
        if !self.exists() {
            return Ok(());
        }
        self.ensure()?;
        let deadline = Instant::now() + STOP;
        self.client().command(Command::Stop, vcap())?;
        loop {
            let services = self.services(&self.client())?;
            let names = |chosen: fn(&ServiceStatus) -> bool| {
                services
                    .iter()
                    .filter(|service| chosen(service))
                    .map(|service| service.name.clone())
                    .collect::<Vec<_>>()
            };
            let errored = names(|service| service.has_stop_failed);
            if !errored.is_empty() {
                return Err(SupervisorError::NotStopped(errored));
            }
            let left = names(|service| service.is_pending || !service.is_stopped);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(SupervisorError::Slow(left));
            }
            if tasks.pause(LOOK) {
                return Err(SupervisorError::Cancelled);
            }
        }
    }

    pub(super) fn unmonitor(&self) -> Result<(), SupervisorError> {
        if !self.exists() {
            return Ok(());
        }
        self.ensure()?;
        Ok(self.client().command(Command::Unmonitor, vcap())?)
    }

    fn services(&self, client: &Client) -> Result<Vec<ServiceStatus>, SupervisorError> {
        let mut services = client.status()?;
        services.retain(|service| service.groups.iter().any(|group| group == GROUP));
        Ok(services)
    }

    /// What it says about the services; one that is not there is started, because nobody else does that.
    fn look(&self) -> Option<Vec<ServiceStatus>> {
        if !self.exists() {
            return Some(Vec::new());
        }
        let found = self.ensure().and_then(|()| self.services(&self.client().with_patience(SHORT)));
        found.inspect_err(|error| tracing::warn!("{}", windlass_contract::explain(error))).ok()
    }

    pub(super) fn state(&self) -> &'static str {
        if self.base.stopped().exists() {
            return "stopped";
        }
        let Some(services) = self.look() else { return "unknown" };
        let any = |health: Health| services.iter().any(|service| service.health == health);
        if any(Health::Starting) {
            "starting"
        } else if any(Health::Unmonitored) || any(Health::Failing) {
            "failing"
        } else {
            "running"
        }
    }

    pub(super) fn processes(&self) -> Vec<Value> {
        self.look().unwrap_or_default().iter().map(process).collect()
    }
}

fn vcap() -> Selection {
    Selection::Group(GROUP.to_owned())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> SupervisorError {
    let path = path.to_owned();
    move |source| SupervisorError::Io { path, source }
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

/// The monit files of the spec's jobs in `folder`, in BOSH's order and by its names: the last job first.
pub(crate) fn monit_files(folder: &Path, spec: &Spec) -> Result<Vec<(String, String)>, SupervisorError> {
    let mut files = Vec::new();
    for (position, job) in spec.jobs().iter().rev().enumerate() {
        let name = &job.name;
        files.extend(read_monit_files(&folder.join(name), &format!("{position:04}_{name}"))?);
    }
    Fleet::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))?;
    Ok(files)
}

/// `monit` and `LABEL.monit` in a job's folder.
pub(crate) fn read_monit_files(job: &Path, prefix: &str) -> Result<Vec<(String, String)>, SupervisorError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(job).map_err(failed(job))? {
        let path = entry.map_err(failed(job))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let name = match name.strip_suffix(".monit") {
            Some(label) => format!("{prefix}_{label}.monitrc"),
            None if name == "monit" => format!("{prefix}.monitrc"),
            None => continue,
        };
        files.push((name, std::fs::read_to_string(&path).map_err(failed(&path))?));
    }
    files.sort();
    Ok(files)
}
