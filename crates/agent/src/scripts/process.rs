//! A script as a process. None runs a second time beside itself because its agent was killed.
//!
//! It is started behind a gate: it exists, and waits. Its pid and start time are written down, and then it begins. An agent that
//! dies before that leaves a process that ends without having begun; one that dies later leaves a note, and the next script
//! waits for that process.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process_group, waitid};
use serde::{Deserialize, Serialize};
use windlass_durable::process::ProcessIdentity;
use windlass_durable::{file, kill_point};

use super::output::Output;
use crate::layout::Base;
use crate::tasks::Tasks;

/// How long a cancelled script may take to end.
const GRACE: Duration = Duration::from_secs(10);
/// How often a script is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for its gate, and becomes the script.
const GATE: &str = "read -r go || exit 1; exec \"$@\" < /dev/null";

/// Runs scripts. They are noted in a folder, and their task can cancel them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runner<'a> {
    base: &'a Base,
    tasks: &'a Tasks,
}

/// A script that was started, on paper.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Pids and start times mean nothing after another boot.
    boot: String,
    #[serde(flatten)]
    process: ProcessIdentity,
}

/// A script that runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    child: Child,
    note: PathBuf,
    tasks: &'a Tasks,
}

/// How a script ended.
#[derive(Debug)]
pub(crate) struct EndedScript {
    pub(crate) status: ExitStatus,
    pub(crate) was_cancelled: bool,
}

impl EndedScript {
    /// Its exit code, or, as shells have it, 128 and the signal that ended it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }
}

impl<'a> Runner<'a> {
    pub(crate) fn new(base: &'a Base, tasks: &'a Tasks) -> Self {
        Self { base, tasks }
    }

    /// A command that becomes `program`, in a process group of its own.
    pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GATE, "sh"]).arg(program).stdin(Stdio::piped()).process_group(0);
        command
    }

    /// Waits for the scripts that an agent before this one left running; says whether a caller cancelled that, which ends them.
    pub(crate) fn settle(&self) -> io::Result<bool> {
        let entries = match std::fs::read_dir(self.base.scripts()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        for entry in entries {
            let path = entry?.path();
            let note: Option<Note> = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            if let Some(note) = note.filter(|note| boot().is_ok_and(|boot| boot == note.boot)) {
                tracing::info!("a script of the agent before this one may run, with pid {}", note.process.pid);
                if self.outlast(note.process)? {
                    return Ok(true);
                }
            }
            file::remove_file(&path)?;
        }
        Ok(false)
    }

    fn outlast(&self, process: ProcessIdentity) -> io::Result<bool> {
        while process.is_running() {
            if self.tasks.pause(LOOK) {
                let started = started_apart(process)?;
                process.signal_group(Signal::TERM)?;
                signal_each(&started, Signal::TERM);
                let deadline = Instant::now() + GRACE;
                while process.is_running() && Instant::now() < deadline {
                    std::thread::sleep(LOOK);
                }
                process.signal_group(Signal::KILL)?;
                signal_each(&started, Signal::KILL);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Starts a script that was made with [`Self::command`]. `prepare` sees it before it begins.
    pub(crate) fn start(&self, command: &mut Command, prepare: impl FnOnce(&mut Child)) -> io::Result<Running<'a>> {
        file::create_private_dir(&self.base.scripts())?;
        let note = self.base.scripts().join(uuid::Uuid::new_v4().to_string());
        kill_point("before a script is started");
        let mut child = command.spawn()?;
        prepare(&mut child);
        let mut running = Running { child, note, tasks: self.tasks };
        match running.begin() {
            Ok(()) => Ok(running),
            Err(error) => {
                // Its gate is closed for ever, so it ends.
                let _ = running.child.wait();
                let _ = file::remove_file(&running.note);
                Err(error)
            }
        }
    }
}

impl Running<'_> {
    /// Writes the script down and opens its gate.
    fn begin(&mut self) -> io::Result<()> {
        let gate = self.child.stdin.take();
        let note = Note { boot: boot()?, process: ProcessIdentity::of(self.child.id())? };
        file::write_json(&self.note, &note, file::PRIVATE)?;
        if let Some(mut gate) = gate {
            gate.write_all(b"\n")?;
        }
        kill_point("after a script was started");
        Ok(())
    }

    /// What it writes, if that is to be kept: both streams are read from now on.
    pub(super) fn stdout(&mut self) -> io::Result<Output> {
        let stream = self.child.stdout.take().ok_or_else(not_piped)?;
        Output::of(stream)
    }

    pub(super) fn stderr(&mut self) -> io::Result<Output> {
        let stream = self.child.stderr.take().ok_or_else(not_piped)?;
        Output::of(stream)
    }

    /// Waits until it ends, by itself or because a caller cancels the task.
    pub(crate) fn wait(mut self) -> io::Result<EndedScript> {
        let mut was_cancelled = false;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if self.tasks.pause(LOOK) {
                was_cancelled = true;
                self.end()?;
                break self.child.wait()?;
            }
        };
        file::remove_file(&self.note)?;
        Ok(EndedScript { status, was_cancelled })
    }

    /// Ends it and what it started, also in other sessions: with a request, and after a while without one.
    fn end(&self) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) else { return Ok(()) };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let has_ended = || Ok::<_, io::Error>(waitid(WaitId::Pid(pid), options)?.is_some());
        // A process that has ended has no children any more, so they are listed before.
        let started = started_apart(ProcessIdentity::of(self.child.id())?)?;
        let _ = kill_process_group(pid, Signal::TERM);
        signal_each(&started, Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while !has_ended()? && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        let late = ProcessIdentity::of(self.child.id()).and_then(started_apart);
        // Its pid is nobody else's until it is waited for.
        let _ = kill_process_group(pid, Signal::KILL);
        signal_each(&started, Signal::KILL);
        signal_each(&late.unwrap_or_default(), Signal::KILL);
        Ok(())
    }
}

/// What a script started and took out of its group, so that a signal to that does not reach it.
pub(crate) fn started_apart(script: ProcessIdentity) -> io::Result<Vec<ProcessIdentity>> {
    let group = Pid::from_raw(script.pid.cast_signed());
    let is_apart = |process: &ProcessIdentity| {
        let pid = Pid::from_raw(process.pid.cast_signed());
        pid.and_then(|pid| getpgid(Some(pid)).ok()).is_some_and(|own| Some(own) != group)
    };
    let mut started = script.descendants()?;
    started.retain(is_apart);
    Ok(started)
}

/// One that cannot be signalled is root's, or has ended.
pub(crate) fn signal_each(processes: &[ProcessIdentity], signal: Signal) {
    for process in processes {
        if let Err(error) = process.signal(signal) {
            tracing::warn!(pid = process.pid, %error, "what a script started cannot be ended");
        }
    }
}

fn not_piped() -> io::Error {
    io::Error::other("the stream is not a pipe")
}

fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))?.trim().to_owned())
}
