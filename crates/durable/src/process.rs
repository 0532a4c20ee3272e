//! A process by pid and start time, so that a reused pid is never mistaken for it.

use std::io;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// A process, told apart from any later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: u32,
    /// Clock ticks between the machine's boot and the process's start.
    pub start_time: u64,
}

impl ProcessIdentity {
    /// The process with this pid now.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, start_time: start_time(pid)? })
    }

    /// Whether the process still runs. A zombie does not.
    pub fn is_running(&self) -> bool {
        match read_stat(self.pid) {
            Ok(stat) => stat.start_time == self.start_time && stat.state != 'Z' && stat.state != 'X',
            Err(_) => false,
        }
    }

    /// Sends `signal` to the process's group if the process is still this one.
    pub fn signal_group(&self, signal: Signal) -> io::Result<()> {
        match (self.is_running(), Pid::from_raw(self.pid as i32)) {
            (true, Some(pid)) => unless_ended(rustix::process::kill_process_group(pid, signal)),
            _ => Ok(()),
        }
    }

    /// Sends `signal` to the process if it is still this one.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match (self.is_running(), Pid::from_raw(self.pid as i32)) {
            (true, Some(pid)) => unless_ended(rustix::process::kill_process(pid, signal)),
            _ => Ok(()),
        }
    }
}

/// It may have ended, and been waited for, since the look.
fn unless_ended(signalled: rustix::io::Result<()>) -> io::Result<()> {
    match signalled {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

struct Stat {
    state: char,
    start_time: u64,
}

fn start_time(pid: u32) -> io::Result<u64> {
    Ok(read_stat(pid)?.start_time)
}

/// Fields 3 and 22 of `/proc/PID/stat`; the name before them may contain blanks and brackets.
fn read_stat(pid: u32) -> io::Result<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let unreadable = || io::Error::other(format!("cannot read the state of process {pid}"));
    let (_, after_name) = text.rsplit_once(')').ok_or_else(unreadable)?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let state = fields.first().and_then(|field| field.chars().next()).ok_or_else(unreadable)?;
    let start_time = fields.get(19).and_then(|field| field.parse().ok()).ok_or_else(unreadable)?;
    Ok(Stat { state, start_time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.is_running());
        assert!(!ProcessIdentity { start_time: identity.start_time + 1, ..identity }.is_running());
        identity.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!identity.is_running());
    }
}
