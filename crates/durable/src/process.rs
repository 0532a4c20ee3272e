//! A process by pid and start time, so that a reused pid is never mistaken for it.

use std::io;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// A process, told apart from any later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
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
            Ok(stat) => stat.start_time == self.start_time && !stat.has_ended(),
            Err(_) => false,
        }
    }

    /// What it started, and what that started, as far as those who started it still run.
    pub fn descendants(&self) -> io::Result<Vec<Self>> {
        // One that ended since it was listed has no more children.
        let all: Vec<(u32, Stat)> = all()?.collect();
        let mut found = vec![*self];
        let mut looked_at = 0;
        while let Some(parent) = found.get(looked_at).map(|found| found.pid) {
            let children = all.iter().filter(|(_, stat)| stat.parent == parent);
            found.extend(children.map(|(pid, stat)| Self { pid: *pid, start_time: stat.start_time }));
            looked_at += 1;
        }
        found.remove(0);
        Ok(found)
    }

    /// The processes that are left of the session that it led until it ended. As long as there is one, no other process gets its pid.
    pub fn left_in_session(&self) -> io::Result<Vec<Self>> {
        let is_there = read_stat(self.pid).is_ok_and(|stat| stat.start_time != self.start_time || !stat.has_ended());
        if is_there {
            return Ok(Vec::new());
        }
        let left = all()?.filter(|(pid, stat)| stat.session == self.pid && *pid != self.pid);
        Ok(left.map(|(pid, stat)| Self { pid, start_time: stat.start_time }).collect())
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
    parent: u32,
    session: u32,
    start_time: u64,
}

impl Stat {
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Everybody who runs, by pid.
fn all() -> io::Result<impl Iterator<Item = (u32, Stat)>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Ok(pids.filter_map(|pid| Some((pid, read_stat(pid).ok()?))))
}

fn start_time(pid: u32) -> io::Result<u64> {
    Ok(read_stat(pid)?.start_time)
}

/// Fields 3, 4, 6 and 22 of `/proc/PID/stat`; the name before them may contain blanks and brackets, and half a letter where it is cut.
fn read_stat(pid: u32) -> io::Result<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat"))?;
    let text = String::from_utf8_lossy(&text);
    let unreadable = || io::Error::other(format!("cannot read the state of process {pid}"));
    let (_, after_name) = text.rsplit_once(')').ok_or_else(unreadable)?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let state = fields.first().and_then(|field| field.chars().next()).ok_or_else(unreadable)?;
    let parent = fields.get(1).and_then(|field| field.parse().ok()).ok_or_else(unreadable)?;
    let session = fields.get(3).and_then(|field| field.parse().ok()).ok_or_else(unreadable)?;
    let start_time = fields.get(19).and_then(|field| field.parse().ok()).ok_or_else(unreadable)?;
    Ok(Stat { state, parent, session, start_time })
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

    /// The kernel cuts names after fifteen bytes, in the middle of a letter if need be; and a process may call itself anything.
    #[test]
    fn a_process_with_half_a_letter_in_its_name_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("fourteen-and-x\u{fc}");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program).arg("60").spawn().unwrap();
        assert!(std::fs::read_to_string(format!("/proc/{}/stat", child.id())).is_err());
        let identity = ProcessIdentity::of(child.id()).unwrap();
        identity.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!identity.is_running());
    }

    #[test]
    fn what_a_process_started_is_found_whatever_its_session() {
        let mut shell = std::process::Command::new("sh");
        let mut shell = shell.args(["-c", "setsid sh -c 'sleep 60 & wait' & wait"]).spawn().unwrap();
        let identity = ProcessIdentity::of(shell.id()).unwrap();
        let name = |process: &ProcessIdentity| std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
        let started = loop {
            let started = identity.descendants().unwrap();
            if started.iter().any(|process| name(process).is_ok_and(|name| name == "sleep\n")) {
                break started;
            }
        };
        assert!(started.len() >= 2 && !started.contains(&identity), "{started:?}");
        started.iter().chain([&identity]).for_each(|process| process.signal(Signal::KILL).unwrap());
        shell.wait().unwrap();
    }

    #[test]
    fn who_is_left_of_a_session_is_found_once_its_leader_has_ended() {
        let mut command = std::process::Command::new("setsid");
        command.args(["sh", "-c", "sleep 60 & echo; wait"]).stdout(std::process::Stdio::piped());
        let mut leader = command.spawn().unwrap();
        let identity = ProcessIdentity::of(leader.id()).unwrap();
        std::io::Read::read_exact(leader.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert_eq!(identity.left_in_session().unwrap(), [], "it runs");
        identity.signal(Signal::KILL).unwrap();
        while identity.is_running() {
            std::thread::yield_now();
        }
        let left = identity.left_in_session().unwrap();
        leader.wait().unwrap();
        assert_eq!((left.len(), &left), (1, &identity.left_in_session().unwrap()));
        let another = ProcessIdentity { pid: std::process::id(), start_time: 1 };
        assert_eq!(another.left_in_session().unwrap(), [], "its pid is another's");
        left[0].signal(Signal::KILL).unwrap();
    }
}
