//! A VM from the outside: its folder, and starting and stopping what runs in it.
//!
//! A VM runs while its supervisor holds the lock in its folder; a pid proves nothing. Callers hold the VM's lock among the
//! cloud's locks, so that only one of them starts or stops it at a time.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::{Instant, sleep, timeout_at};
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::explain;
use windlass_durable::kill_point;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;

use crate::container::cgroup;
use crate::process_tree;

/// How long a VM has to start.
const START: Duration = Duration::from_secs(30);

/// How long a supervisor has to end its VM before it is killed, and then again before we give up.
pub(crate) const STOP: Duration = Duration::from_secs(15);

/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(5);

/// How much of the console an error shows.
const CONSOLE_TAIL: usize = 800;

/// Where a container finds the disks that are attached to it.
pub(crate) const DISKS_IN_VM: &str = "/warden-cpi-dev";

/// Where the agents of container stemcells look for their settings.
pub(crate) const SETTINGS_IN_VM: &str = "/var/vcap/bosh/warden-cpi-agent-env.json";

/// Where things are in a VM's folder.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    folder: PathBuf,
}

/// `supervisor.json`: written by the supervisor that holds the lock, and removed when it ends in order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SupervisorRecord {
    /// Whom to signal.
    pub(crate) process: ProcessIdentity,
    /// Whether it has the VM's addresses and has started the agent.
    pub(crate) ready: bool,
    /// The first process inside: `/proc/PID/ns` has its namespaces, `/proc/PID/root` its files.
    #[serde(default)]
    pub(crate) init: Option<ProcessIdentity>,
    /// In whose namespaces disks are shown to a VM that is no container and has a root of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keeper: Option<ProcessIdentity>,
}

/// The one line that a new supervisor writes on its stdout.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Started {
    /// The VM runs.
    Ready,
    /// Another supervisor holds the VM's lock.
    Busy,
    /// Another VM has the address.
    AddressTaken { address: IpAddr, holder: String },
    /// This machine does not let the VM's users be its own, and why.
    NoOwnUsers(String),
    /// Something else, in words.
    Failed(String),
}

/// why a VM did not start
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// another VM has the address
    #[error(
        "the address {address} is taken by {holder}; delete that VM or end that process, or choose another address"
    )]
    AddressTaken { address: IpAddr, holder: String },
    /// the supervisor could not be started
    #[error("cannot start the VM's supervisor {}", executable.display())]
    Spawn {
        executable: PathBuf,
        #[source]
        source: io::Error,
    },
    /// its users cannot be its own here
    #[error("the VM did not start with users of its own: {0}")]
    NoOwnUsers(String),
    #[error("the VM did not start: {0}")]
    Failed(String),
    #[error("the VM's supervisor ended without a word; its console says: {console}")]
    Silent { console: String },
    /// it takes too long
    #[error("the VM did not start within {START:?}; its console says: {console}")]
    TooSlow { console: String },
}

/// why a VM did not stop
#[derive(Debug, thiserror::Error)]
pub(crate) enum StopError {
    /// it takes too long
    #[error("the VM in {} does not stop: its supervisor still holds the lock", folder.display())]
    TooSlow { folder: PathBuf },
    /// the operating system refused
    #[error("cannot stop the VM in {}", folder.display())]
    Io {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl From<StartError> for CpiError {
    fn from(error: StartError) -> Self {
        CpiError::new(ErrorType::VmCreationFailed, explain(&error))
    }
}

impl From<StopError> for CpiError {
    fn from(error: StopError) -> Self {
        CpiError::cloud(explain(&error))
    }
}

impl Machine {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Held by the supervisor.
    pub(crate) fn lock(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// The supervisor's record.
    pub(crate) fn supervisor(&self) -> PathBuf {
        self.folder.join("supervisor.json")
    }

    /// What the agent and the supervisor print.
    pub(crate) fn console(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// The agent's settings.
    pub(crate) fn settings(&self) -> PathBuf {
        self.folder.join("settings.json")
    }

    /// The agent's own configuration, which says where its settings are.
    pub(crate) fn agent_config(&self) -> PathBuf {
        self.folder.join("agent.json")
    }

    /// The agent's base folder, what `/var/vcap` is elsewhere.
    pub(crate) fn base(&self) -> PathBuf {
        self.folder.join("base")
    }

    /// Where the agent is asked for its log.
    pub(crate) fn agent_log(&self) -> PathBuf {
        self.base().join("bosh/log/current")
    }

    /// What the VM sees as its root file system; mounted only where its supervisor and it see it.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// What a container wrote.
    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    /// What the kernel needs beside it.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// What the container was made from.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.folder.join("container")
    }

    /// The state folder that the VM is in.
    pub(crate) fn state(&self) -> &Path {
        self.folder.parent().and_then(Path::parent).unwrap_or(Path::new("/"))
    }

    fn name(&self) -> &str {
        self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Where the machine mounts a container's disks: each appears in the VM under [`DISKS_IN_VM`] by the same name. What the
    /// VM mounts there does not appear here.
    pub(crate) fn disks(&self) -> PathBuf {
        self.folder.join("disks")
    }

    /// Starts the VM and returns once it runs. One that runs already is left alone.
    pub(crate) async fn start(&self, windlass: &Path) -> Result<(), StartError> {
        let deadline = Instant::now() + START;
        loop {
            if self.is_ready() {
                return Ok(());
            }
            match self.spawn(windlass, deadline).await? {
                Started::Ready => return Ok(()),
                Started::AddressTaken { address, holder } => return Err(StartError::AddressTaken { address, holder }),
                Started::NoOwnUsers(reason) => return Err(StartError::NoOwnUsers(reason)),
                Started::Failed(reason) => return Err(StartError::Failed(reason)),
                // A call that was killed had started one; it is ready soon, or gone.
                Started::Busy if Instant::now() > deadline => {
                    return Err(StartError::TooSlow { console: self.console_tail() });
                }
                Started::Busy => sleep(POLL).await,
            }
        }
    }

    async fn spawn(&self, windlass: &Path, deadline: Instant) -> Result<Started, StartError> {
        let failed = |source| StartError::Spawn { executable: windlass.to_owned(), source };
        let console = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(windlass_durable::file::PRIVATE)
            .open(self.console())
            .map_err(failed)?;
        kill_point("before the supervisor starts");
        // Nothing of ours may be inherited: callers of the CPI wait until all copies of its stdout and stderr are closed.
        let mut child = tokio::process::Command::new(windlass)
            .arg("vm-run")
            .arg(&self.folder)
            .current_dir(&self.folder)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(console)
            .spawn()
            .map_err(failed)?;
        kill_point("after the supervisor started");
        let Some(stdout) = child.stdout.take() else {
            return Err(failed(io::Error::other("it has no stdout")));
        };
        let mut line = String::new();
        match timeout_at(deadline, BufReader::new(stdout).read_line(&mut line)).await {
            Ok(Ok(_)) => serde_json::from_str(&line).map_err(|_| StartError::Silent { console: self.console_tail() }),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(StartError::TooSlow { console: self.console_tail() }),
        }
    }

    /// Stops the VM and all its processes. As long as the returned lock is held, nobody can start it again.
    pub(crate) async fn stop(&self) -> Result<FileLock, StopError> {
        let failed = |source| StopError::Io { folder: self.folder.clone(), source };
        let asked = Instant::now();
        let mut signal = Signal::TERM;
        let mut told = None;
        let lock = loop {
            if let Some(lock) = FileLock::try_acquire(&self.lock()).map_err(failed)? {
                break lock;
            }
            if asked.elapsed() > 2 * STOP {
                return Err(StopError::TooSlow { folder: self.folder.clone() });
            }
            if asked.elapsed() > STOP && signal == Signal::TERM {
                (signal, told) = (Signal::KILL, None);
            }
            self.end_orphans().map_err(failed)?;
            let supervisor = self.supervisor_record().map(|record| record.process);
            if supervisor.is_some() && supervisor != told {
                kill_point("before the supervisor is told to end");
                if let Some(process) = supervisor {
                    process.signal(signal).map_err(failed)?;
                }
                told = supervisor;
            }
            sleep(POLL).await;
        };
        kill_point("the VM is stopped");
        self.clean_up_after_supervisor().map_err(failed)?;
        Ok(lock)
    }

    /// A supervisor that left its record was killed, so its VM's processes may still run.
    pub(crate) fn clean_up_after_supervisor(&self) -> io::Result<()> {
        if self.supervisor().exists() {
            process_tree::kill_marked(&self.folder, STOP)?;
            cgroup::kill(self.name(), STOP)?;
            windlass_durable::file::remove_file(&self.supervisor())?;
        }
        Ok(())
    }

    /// A container that was made and never started, because its supervisor was killed in between, would wait for ever, and
    /// hold the VM's lock: it is a copy of the supervisor.
    pub(crate) fn end_orphans(&self) -> io::Result<()> {
        match self.supervisor_record() {
            Some(record) if !record.process.is_running() => cgroup::kill(self.name(), STOP),
            _ => Ok(()),
        }
    }

    pub(crate) fn supervisor_record(&self) -> Option<SupervisorRecord> {
        serde_json::from_slice(&fs::read(self.supervisor()).ok()?).ok()
    }

    /// The first process inside of a VM that runs.
    pub(crate) fn first_process(&self) -> Option<u32> {
        let record = self.supervisor_record().filter(|record| record.process.is_running())?;
        record.init.filter(ProcessIdentity::is_running).map(|init| init.pid)
    }

    fn is_ready(&self) -> bool {
        self.supervisor_record().is_some_and(|record| record.ready && record.process.is_running())
            && FileLock::is_held(&self.lock()).unwrap_or(false)
    }

    /// The end of the console, for errors.
    fn console_tail(&self) -> String {
        let bytes = fs::read(self.console()).unwrap_or_default();
        let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(CONSOLE_TAIL)..]).trim().to_owned();
        if tail.is_empty() { "nothing".to_owned() } else { tail }
    }
}
