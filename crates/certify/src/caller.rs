//! One process of a CPI, from arbitrary bytes on its stdin to everything that can be seen of it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use windlass_contract::cpi::Declaration;
use windlass_durable::kill_point;

use crate::command_line::CommandLine;

/// More on stdout, beside the request twice, is not an answer but a runaway process: directors read no more either.
const LONGEST_ANSWER: u64 = Declaration::WITH_LOG as u64;
/// More on stderr is a runaway process, too.
const LONGEST_LOG: u64 = 64 * 1024 * 1024;
/// Only the end of a log is kept: fifty processes may run at once.
const KEPT_OF_LOG: usize = 512 * 1024;
/// How long both streams may stay open after the process is gone; the contract says one second.
const STREAMS_CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// How long a process past its deadline may take to clean up after itself.
const GRACE: Duration = Duration::from_secs(2);
/// How often a process is asked whether it is gone while its streams are open.
const POLL: Duration = Duration::from_millis(10);
/// How long stderr stays unread where a call asks for that.
const LATE: Duration = Duration::from_millis(300);

const DIRECTOR_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The CPI under test.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) command: CommandLine,
    pub(crate) deadline: Duration,
}

/// How a call differs from the director's ordinary one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manner {
    /// Only `PATH` in the environment.
    pub(crate) bare_environment: bool,
    /// Another working directory than ours.
    pub(crate) folder: Option<PathBuf>,
    /// As the original director does it: the whole request is written before anything is read.
    pub(crate) write_first: bool,
    /// stderr is read late.
    pub(crate) stderr_late: bool,
    /// The process is killed after this time, as if the machine went away.
    pub(crate) kill_after: Option<Duration>,
    /// Another one than the usual.
    pub(crate) deadline: Option<Duration>,
}

/// What was sent, and everything that was seen.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// None if it had to be killed and was not reaped.
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) took: Duration,
    /// It did not answer in time and was killed.
    pub(crate) timed_out: bool,
    /// It was gone, but something kept its streams open.
    pub(crate) streams_lingered: bool,
    /// It did not take the whole request.
    pub(crate) request_unread: bool,
}

impl Caller {
    /// One call. The error is about starting the process.
    pub(crate) fn call(&self, request: &[u8], manner: &Manner) -> io::Result<Exchange> {
        let mut command = Command::new(&self.command.executable);
        command.args(&self.command.arguments).env_clear().env("PATH", DIRECTOR_PATH);
        for name in ["TMPDIR", "HOME"] {
            if let Some(value) = std::env::var_os(name).filter(|_| !manner.bare_environment) {
                command.env(name, value);
            }
        }
        if let Some(folder) = &manner.folder {
            command.current_dir(folder);
        }
        // In a group of its own, so that an interrupt at the terminal does not cut a call in two.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        kill_point("before certification starts a CPI");
        let started = Instant::now();
        let mut child = command.spawn()?;
        let group = Pid::from_raw(child.id() as i32);
        let signal = |signal| group.map(|group| kill_process_group(group, signal));

        let (stdout, stderr) = (Stream::default(), Stream::default());
        let (events, heard) = mpsc::channel();
        let (out_gate, out_may) = mpsc::channel::<()>();
        let (err_gate, err_may) = mpsc::channel::<()>();
        // Without gates to drop, both streams are read at once.
        let gates = manner.write_first.then_some((out_gate, err_gate));
        if let Some(mut stdin) = child.stdin.take() {
            let (bytes, events) = (request.to_vec(), events.clone());
            std::thread::spawn(move || {
                let written = stdin.write_all(&bytes);
                drop(stdin);
                drop(gates);
                let _ = events.send(Event::Written(written.is_ok()));
            });
        }
        if let Some(pipe) = child.stdout.take() {
            stdout.read(pipe.take(longest_answer(request)), usize::MAX, out_may, Duration::ZERO, events.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            let late = if manner.stderr_late { LATE } else { Duration::ZERO };
            stderr.read(pipe.take(LONGEST_LOG), KEPT_OF_LOG, err_may, late, events);
        }

        let deadline = manner.deadline.unwrap_or(self.deadline);
        let limit = manner.kill_after.unwrap_or(deadline);
        let mut watched = Watched::default();
        let mut exit = None;
        let mut gone_at: Option<Instant> = None;
        let mut terminated_at: Option<Instant> = None;
        while !watched.is_over() {
            match heard.recv_timeout(POLL) {
                Ok(event) => watched.note(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if exit.is_none() {
                exit = child.try_wait()?;
                gone_at = exit.map(|_| Instant::now());
            }
            if gone_at.is_some_and(|at| at.elapsed() > STREAMS_CLOSE_WITHIN) {
                break;
            }
            match terminated_at {
                None if exit.is_none() && started.elapsed() > limit => {
                    // A machine that goes away says nothing; a deadline asks first.
                    signal(if manner.kill_after.is_some() { Signal::KILL } else { Signal::TERM });
                    terminated_at = Some(Instant::now());
                }
                Some(at) if exit.is_none() && at.elapsed() > GRACE => {
                    signal(Signal::KILL);
                }
                _ => {}
            }
        }
        let took = started.elapsed();
        if exit.is_none() {
            // Both streams are closed, so it is about to end; one that goes on has its deadline, too.
            while exit.is_none() && started.elapsed() < limit.max(took + GRACE) {
                exit = child.try_wait()?;
                if exit.is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if exit.is_none() {
                signal(Signal::KILL);
                terminated_at = Some(Instant::now());
                exit = Some(child.wait()?);
            }
        }
        Ok(Exchange {
            request: request.to_vec(),
            stdout: stdout.bytes(),
            stderr: stderr.bytes(),
            exit,
            took,
            timed_out: terminated_at.is_some() && manner.kill_after.is_none(),
            streams_lingered: watched.streams_are_open(),
            request_unread: watched.written != Some(true),
        })
    }
}

enum Event {
    Written(bool),
    Closed,
}

/// What is known of a call: whether its request was read, and how many of its two streams are closed.
#[derive(Default)]
struct Watched {
    closed: u8,
    written: Option<bool>,
}

impl Watched {
    fn note(&mut self, event: Event) {
        match event {
            Event::Written(whole) => self.written = Some(whole),
            Event::Closed => self.closed += 1,
        }
    }

    fn streams_are_open(&self) -> bool {
        self.closed < 2
    }

    fn is_over(&self) -> bool {
        !self.streams_are_open() && self.written.is_some()
    }
}

/// What was read of one stream, also when it never ends.
#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Vec<u8>>>);

impl Stream {
    /// Of what is read, the last `kept` bytes stay, and at most twice as many.
    fn read(
        &self,
        mut pipe: impl Read + Send + 'static,
        kept: usize,
        gate: Receiver<()>,
        late: Duration,
        events: Sender<Event>,
    ) {
        let bytes = Arc::clone(&self.0);
        std::thread::spawn(move || {
            // Ends when the last sender is dropped: at once, or when the request is written.
            let _ = gate.recv();
            std::thread::sleep(late);
            let mut piece = [0; 8192];
            while let Ok(read @ 1..) = pipe.read(&mut piece) {
                let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&piece[..read]);
                if bytes.len() / 2 >= kept {
                    let superfluous = bytes.len() - kept;
                    bytes.drain(..superfluous);
                }
            }
            let _ = events.send(Event::Closed);
        });
    }

    /// What was read until now.
    fn bytes(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// CPIs may repeat what they were asked.
fn longest_answer(request: &[u8]) -> u64 {
    LONGEST_ANSWER + 2 * request.len() as u64
}

impl Exchange {
    /// Whether its answer was cut off.
    pub(crate) fn is_endless(&self) -> bool {
        self.stdout.len() as u64 >= longest_answer(&self.request)
    }

    /// How the process ended, for people.
    pub(crate) fn ending(&self) -> String {
        match self.exit {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("killed by signal {signal}"),
                (None, None) => status.to_string(),
            },
            None => "did not end".into(),
        }
    }
}

/// Runs a command of the operator and gives what it prints.
pub(crate) fn observe(command: &CommandLine, place: &str, value: &str) -> Result<String, String> {
    let fill = |word: &OsString| OsString::from(word.to_string_lossy().replace(place, value));
    let arguments: Vec<OsString> = command.arguments.iter().map(fill).collect();
    let output = Command::new(&command.executable)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("'{}' did not start: {error}", command.executable.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("'{}' failed ({}): {}", command.executable.display(), output.status, said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A folder that nobody may read, for as long as it is held.
#[derive(Debug)]
pub(crate) struct UnreadableFolder(tempfile::TempDir);

impl UnreadableFolder {
    pub(crate) fn new() -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir()?;
        // Executable only: it can be entered, not listed.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o100))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for UnreadableFolder {
    /// So that it can be removed.
    fn drop(&mut self) {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::set_permissions(self.0.path(), std::fs::Permissions::from_mode(0o700));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpi_that_writes_without_end_takes_a_few_megabytes() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("endless");
        std::fs::write(&script, "yes answer & exec yes log >&2").unwrap();
        let command = format!("/bin/sh {}", script.display()).parse().unwrap();
        let seen = Caller { command, deadline: Duration::from_secs(60) }.call(b"{}", &Manner::default()).unwrap();
        assert!(seen.is_endless(), "{}", seen.ending());
        assert_eq!(seen.stdout.len(), (4 << 20) + 4);
        assert!(seen.stderr.ends_with(b"log\n") && seen.stderr.len() <= 1 << 20, "{}", seen.stderr.len());
        assert!(!seen.timed_out, "it ends when nobody reads any more: {}", seen.ending());
    }
}
