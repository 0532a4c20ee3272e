//! The supervisor that is a process of its own: started here, told here, and never the agent's to end.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_durable::{file, kill_point};
use windlass_supervise::protocol::Happening;
use windlass_supervise::{Client, Command, Selection, ServiceStatus, Settings, monit_command, own_group};

use super::{GROUP, STOP, SupervisorError, files, process, state_of};
use crate::layout::Base;
use crate::spec::Spec;
use crate::tasks::Tasks;

/// How often a stop looks.
const LOOK: Duration = Duration::from_millis(100);

/// How long a question about states waits for a supervisor that restarts.
const SHORT: Duration = Duration::from_secs(1);

/// The words by which the agent's program is a supervisor, or what starts programs for one.
pub(crate) const SUPERVISE: &str = "supervise";
pub(crate) const LAUNCH: &str = "launch";
/// And the one by which it is the command `monit`.
pub(crate) const MONIT: &str = "monit";

/// The line by which a command `monit` is known to be ours to replace.
const OURS: &str = "# The supervisor of this VM, by the words of monit.";

/// The name of the namespace of control groups that a machine begins with: groups made in it are the machine's, and outlive a VM
/// that is a process.
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// A stemcell's script that starts the agent with a loader of its own names itself here.
const PROGRAM: &str = "WINDLASS_AGENT";

/// What starts this program again: by its own name, by which one that is several programs knows that it is this one.
pub(crate) fn program() -> OsString {
    let by_name = || std::env::current_exe().ok().filter(|path| path.exists()).map(OsString::from);
    std::env::var_os(PROGRAM).or_else(by_name).unwrap_or_else(|| "/proc/self/exe".into())
}

/// How a shell starts this program as another one, by a word.
pub(crate) fn command_line(base: &Base, word: &str) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let (program, base) = (program().to_string_lossy().into_owned(), base.path().to_string_lossy().into_owned());
    format!("{} {word} -b {}", quoted(&program), quoted(&base))
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
    // A session of its own, so that ending the agent and its children does not end this.
    let _ = rustix::process::setsid();
    let mut settings = Settings::new(folder(base), vec![program(), LAUNCH.into()]);
    settings.log = base.join("monit/monit.log");
    settings.groups = service_groups();
    match windlass_supervise::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", windlass_contract::explain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Where services get control groups: in those of a container.
fn service_groups() -> Option<PathBuf> {
    let namespace = std::fs::read_link("/proc/self/ns/cgroup").ok()?;
    if namespace.as_os_str() == FIRST_NAMESPACE { None } else { Some(own_group()?.join("services")) }
}

/// Is the command `monit` for the supervisor of the jobs below `base`.
pub(crate) fn monit(base: &Path, arguments: &[String]) -> ExitCode {
    let client = Client::new(folder(base)).with_patience(SHORT);
    let reload = || {
        let base = Base::at(base);
        let read = files::read(&base).map_err(|error| windlass_contract::explain(&error))?;
        let read: Vec<(&str, &str)> = read.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        client.load(&read).map_err(|error| windlass_contract::explain(&error))
    };
    monit_command::run(arguments, &client, reload, &mut std::io::stdout(), &mut std::io::stderr())
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
        if let Err(error) = self.write_command() {
            tracing::warn!("there is no command 'monit': {}", windlass_contract::explain(&error));
        }
        Ok(())
    }

    /// Puts the command `monit` where scripts of releases look for it, unless the stemcell brings one.
    fn write_command(&self) -> Result<(), SupervisorError> {
        let path = self.base.bosh().join("bin/monit");
        let text = format!("#!/bin/sh\n{OURS}\nexec {} \"$@\"\n", command_line(&self.base, MONIT));
        let is_strangers = match std::fs::read(&path) {
            Ok(found) if found == text.as_bytes() => return Ok(()),
            Ok(found) => !String::from_utf8_lossy(&found).contains(OURS),
            Err(_) => path.symlink_metadata().is_ok(),
        };
        if is_strangers {
            return Ok(());
        }
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = written.and_then(|()| file::write(&path, text.as_bytes(), 0o755));
        let opened = || std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755));
        written.and_then(|()| opened()).map_err(files::failed(&path))
    }

    pub(super) fn forget(&self) -> Result<(), SupervisorError> {
        if !self.exists() {
            return Ok(());
        }
        files::remove(&self.base)?;
        self.ensure()?;
        Ok(self.client().load(&[])?)
    }

    pub(super) fn start(&self, spec: &Spec) -> Result<(), SupervisorError> {
        let files = files::of_jobs(&self.base.jobs(), spec)?;
        if self.exists() || !files.is_empty() {
            files::write(&self.base, &files)?;
            self.ensure()?;
            let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            self.client().load(&files)?;
            self.client().command(Command::Start, vcap())?;
        }
        let stopped = self.base.stopped();
        file::remove_file(&stopped).map_err(files::failed(&stopped))
    }

    pub(super) fn stop(&self, tasks: &Tasks) -> Result<(), SupervisorError> {
        let stopped = self.base.stopped();
        file::write(&stopped, b"", file::PRIVATE).map_err(files::failed(&stopped))?;
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

    /// What happened to the services, the latest last.
    pub(super) fn events(&self) -> Vec<Happening> {
        if !self.exists() {
            return Vec::new();
        }
        self.client().with_patience(SHORT).events(0).unwrap_or_default()
    }

    pub(super) fn state(&self) -> &'static str {
        if self.base.stopped().exists() {
            return "stopped";
        }
        let Some(services) = self.look() else { return "unknown" };
        state_of(&services)
    }

    pub(super) fn processes(&self) -> Vec<Value> {
        self.look().unwrap_or_default().iter().map(process).collect()
    }
}

fn vcap() -> Selection {
    Selection::Group(GROUP.to_owned())
}
