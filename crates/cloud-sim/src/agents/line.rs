//! How a CPI call tells the host to look at a VM.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass_contract::VmCid;
use windlass_contract::cpi::CpiError;
use windlass_durable::{file, kill_point};

use super::{DONE, LOG, SOCKET};

/// How long the host may take to look at a VM, and how long to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a wait for a new host looks again.
const POLL: Duration = Duration::from_millis(5);
/// How much of the host's log an error shows.
const LOG_TAIL: usize = 800;

/// The line from the CPI to the host of a state folder.
#[derive(Debug)]
pub(crate) struct Line {
    state: PathBuf,
    windlass: Option<PathBuf>,
}

impl Line {
    /// To the host of the agents in `state`; `windlass` is the executable that becomes one.
    pub(crate) fn new(state: &Path, windlass: Option<PathBuf>) -> Self {
        Self { state: state.to_owned(), windlass }
    }

    /// Has the host look at a VM that was changed or removed. Without a host there is no agent to be changed.
    pub(crate) fn tell(&self, vm: &VmCid) -> Result<(), CpiError> {
        self.say(vm).map(drop)
    }

    /// Has the host look at a VM that needs an agent; starts the host if there is none.
    pub(crate) fn wake(&self, vm: &VmCid) -> Result<(), CpiError> {
        let deadline = Instant::now() + PATIENCE;
        let mut starting: Option<Child> = None;
        while !self.say(vm)? {
            let ended = starting.as_mut().map(Child::try_wait).transpose().map_err(|error| self.broken(&error))?;
            match ended {
                // It left the agents to another host, which was starting or ending at the same time.
                None => starting = Some(self.start()?),
                Some(Some(status)) if status.success() => starting = None,
                Some(Some(status)) => return Err(self.failed(&format!("it ended with {status}"))),
                Some(None) if Instant::now() > deadline => {
                    return Err(self.failed(&format!("it does not answer after {PATIENCE:?}")));
                }
                Some(None) => {}
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Says whether there is a host, which then has looked.
    fn say(&self, vm: &VmCid) -> Result<bool, CpiError> {
        let mut stream = match connect(&self.state) {
            Ok(stream) => stream,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(false);
            }
            Err(error) => return Err(self.broken(&error)),
        };
        kill_point("before the host looks at a VM");
        let mut said = Vec::new();
        let asked = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.write_all(format!("{vm}\n").as_bytes()))
            .and_then(|()| stream.shutdown(Shutdown::Write))
            .and_then(|()| stream.read_to_end(&mut said));
        match asked {
            Ok(_) if said == DONE => Ok(true),
            // It ended before it looked.
            Ok(_) => Ok(false),
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Ok(false)
            }
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// Starts a host. It inherits nothing of ours: callers of the CPI wait until all copies of its stdout and stderr are
    /// closed, and its own locks must end with it.
    fn start(&self) -> Result<Child, CpiError> {
        let windlass = self.windlass()?;
        let started = (|| {
            let log = OpenOptions::new().create(true).append(true).mode(file::PRIVATE).open(self.state.join(LOG))?;
            kill_point("before the host of agents starts");
            let child = Command::new(&windlass)
                .arg("sim-host")
                .arg(&self.state)
                .current_dir("/")
                .env_clear()
                .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()?;
            kill_point("after the host of agents started");
            Ok(child)
        })();
        started.map_err(|error: io::Error| self.failed(&format!("cannot run {}: {error}", windlass.display())))
    }

    /// The executable that becomes a host: the one program, which stands beside the one for CPI calls.
    fn windlass(&self) -> Result<PathBuf, CpiError> {
        if let Some(windlass) = &self.windlass {
            return Ok(windlass.clone());
        }
        let this =
            std::env::current_exe().map_err(|error| self.failed(&format!("cannot find this program: {error}")))?;
        let whole = this.with_file_name("windlass");
        let is_small = this.file_name().is_some_and(|name| name == "windlass-cpi");
        Ok(if is_small && whole.is_file() { whole } else { this })
    }

    fn failed(&self, why: &str) -> CpiError {
        let log = fs::read(self.state.join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL)..]).trim().to_owned();
        CpiError::cloud(format!(
            "the host of simulated agents did not start: {why}; 'cloud.properties.sim.windlass' names the executable that becomes \
             one, and its log says: {}",
            if log.is_empty() { "nothing" } else { &log }
        ))
    }

    fn broken(&self, error: &io::Error) -> CpiError {
        CpiError::cloud(format!("cannot talk to the host of simulated agents in {}: {error}", self.state.display()))
    }
}

fn connect(state: &Path) -> io::Result<UnixStream> {
    let (_folder, path) = socket(state)?;
    UnixStream::connect(path)
}

/// The host's socket, by a path that is short enough for a socket as long as the folder is open.
pub(super) fn socket(state: &Path) -> io::Result<(File, PathBuf)> {
    let folder = File::open(state)?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(SOCKET);
    Ok((folder, path))
}
