//! The parent of a process, as `tini` is in bpm's containers. Its pid is the one that the pid file has: drain and reload scripts look
//! for the process, and for daemons that it left, among its children. It passes signals on, and nobody outlives the process.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{Gid, Pid, Resource, Rlimit, Signal, Uid, WaitOptions, WaitStatus, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{self, SignalKind};
use windlass_durable::process::ProcessIdentity;

/// What is passed on to the process.
const PASSED_ON: [Signal; 8] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::TERM, Signal::WINCH];

/// How long those who outlived the process may take to die.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);

/// The exit code of what cannot be started, as with `tini`.
const CANNOT_START: u8 = 127;

/// What a launcher needs to start the process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) folder: PathBuf,
    pub(super) user: Option<(u32, u32)>,
    /// Without `CAP_`.
    pub(super) capabilities: Vec<String>,
    pub(super) open_files: u64,
    /// Whether the number is the process's own.
    pub(super) wants_open_files: bool,
    pub(super) core_file_size: Option<u64>,
    /// Whether it leaves the session of its parent.
    pub(super) in_background: bool,
}

/// What the launcher is: it learns what to start, once it is written down who it is.
pub(crate) fn launch() -> ExitCode {
    let mut text = Vec::new();
    let read = io::stdin().read_to_end(&mut text).ok();
    let launch: Option<Launch> = read.and_then(|_| serde_json::from_slice(&text).ok());
    // The starting process ended before it wrote the launch.
    let Some(launch) = launch else { return ExitCode::SUCCESS };
    match launch.be_parent() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "{}: {error}", launch.program);
            ExitCode::from(CANNOT_START)
        }
    }
}

impl Launch {
    /// Starts the process and waits for its end; its exit code.
    fn be_parent(&self) -> io::Result<u8> {
        self.set_limits();
        if self.in_background {
            let _ = rustix::process::setsid();
        }
        rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        self.become_user()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let code = runtime.block_on(async {
            // Before the process starts, so that none is missed.
            let mut signals = Signals::new()?;
            let process = self.start()?;
            loop {
                match signals.next().await {
                    Signal::CHILD => {
                        if let Some(status) = reap_until(process) {
                            break Ok::<u8, io::Error>(exit_code(status));
                        }
                    }
                    signal => drop(rustix::process::kill_process(process, signal)),
                }
            }
        })?;
        end_others()?;
        Ok(code)
    }

    fn set_limits(&self) {
        let limit = |limit: u64| Rlimit { current: Some(limit), maximum: Some(limit) };
        let most = getrlimit(Resource::Nofile).maximum;
        if let (Err(_), Some(most)) = (setrlimit(Resource::Nofile, limit(self.open_files)), most) {
            let _ = setrlimit(Resource::Nofile, limit(most.min(self.open_files)));
            if self.wants_open_files {
                let _ = writeln!(io::stderr(), "bpm: this VM allows {most} open files, and not {}", self.open_files);
            }
        }
        if let Some(size) = self.core_file_size {
            let _ = setrlimit(Resource::Core, limit(size));
        }
    }

    /// Of what root may do, the user keeps what the process asks for and the VM can do, and gets nothing back by other programs.
    fn become_user(&self) -> io::Result<()> {
        let Some((user, group)) = self.user else { return Ok(()) };
        match rustix::thread::set_thread_groups(&[]) {
            // Where users are only names, there are no groups to leave.
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        rustix::thread::set_thread_gid(Gid::from_raw(group))?;
        if user == 0 {
            return Ok(());
        }
        rustix::thread::set_keep_capabilities(true)?;
        rustix::thread::set_thread_uid(Uid::from_raw(user))?;
        let had = rustix::thread::capabilities(None)?.permitted;
        let mut kept = CapabilitySet::empty();
        for name in &self.capabilities {
            match CapabilitySet::from_name(name).filter(|wanted| had.contains(*wanted)) {
                Some(wanted) => kept |= wanted,
                None => drop(writeln!(io::stderr(), "bpm: this VM does not have the capability {name}")),
            }
        }
        let sets = CapabilitySets { effective: CapabilitySet::empty(), permitted: kept, inheritable: kept };
        rustix::thread::set_capabilities(None, sets)?;
        for capability in kept {
            rustix::thread::configure_capability_in_ambient_set(capability, true)?;
        }
        rustix::thread::set_no_new_privs(true)?;
        Ok(())
    }

    fn start(&self) -> io::Result<Pid> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.env).current_dir(&self.folder).stdin(Stdio::null());
        if self.in_background {
            // Signals to its group are not for us.
            command.process_group(0);
        }
        let process = command.spawn()?;
        Pid::from_raw(process.id().cast_signed()).ok_or_else(|| io::Error::other("it has no pid"))
    }
}

/// What its parent is told, one after the other.
struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    fn new() -> io::Result<Self> {
        let watch = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        PASSED_ON.into_iter().chain([Signal::CHILD]).map(watch).collect::<io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            let mut heard =
                self.0.iter_mut().filter_map(|(signal, heard)| heard.poll_recv(context).is_ready().then_some(*signal));
            heard.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Waits for all children that have ended; how `process` did, if it is one of them.
fn reap_until(process: Pid) -> Option<WaitStatus> {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == process {
            return Some(status);
        }
    }
    None
}

fn exit_code(status: WaitStatus) -> u8 {
    let by_signal = || status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or_else(by_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Ends those who are left of what the process started: a container would end with it.
fn end_others() -> io::Result<()> {
    let own = ProcessIdentity::of(std::process::id())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        for other in own.descendants()? {
            let _ = other.signal(Signal::KILL);
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return Ok(()),
            }
        }
        if Instant::now() > deadline {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}
