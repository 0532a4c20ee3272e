//! Pid files and `/proc`: who runs, what they take, and signals that never reach a stranger.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, Read};
use std::time::SystemTime;

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use rustix::time::ClockId;
use windlass_durable::process::ProcessIdentity;

use crate::machine::status::Usage;
use crate::machine::{Millis, PidFile};

/// Ticks of start times and processor times; the same on all machines that we run on.
const TICKS_PER_SECOND: u64 = 100;

/// How much younger than its pid file a process may be: files have coarse times.
const SLACK: f64 = 2.0;

/// Milliseconds since the boot.
pub(super) fn now() -> Millis {
    let time = rustix::time::clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1000 + u64::try_from(time.tv_nsec).unwrap_or_default() / 1_000_000
}

/// The kernel's name of this boot.
pub(super) fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Waits for all children that have ended.
pub(super) fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// The process that a pid file names. What holds no pid names nobody, and neither does a file that is larger than any pid.
pub(super) fn read_pid_file(path: &str) -> PidFile {
    let Ok(file) = fs::File::open(path) else { return PidFile::Nobody };
    let written = file.metadata().and_then(|metadata| metadata.modified());
    let mut text = String::new();
    if file.take(64).read_to_string(&mut text).is_err() {
        return PidFile::Nobody;
    }
    let Some(pid) = text.trim().parse::<u32>().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid)) else {
        return PidFile::Nobody;
    };
    let Ok(process) = ProcessIdentity::of(pid) else { return PidFile::Nobody };
    if !process.is_running() {
        return PidFile::Nobody;
    }
    let age = now() as f64 / 1000.0 - process.start_time as f64 / TICKS_PER_SECOND as f64;
    let file_age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
    let is_younger = file_age.is_some_and(|file_age| age + SLACK < file_age.as_secs_f64());
    PidFile::Process { process, is_younger }
}

/// Ends the session that `leader` leads, if it is still this one.
pub(super) fn end_session(leader: ProcessIdentity, by_force: bool) {
    if !leader.is_running() {
        return;
    }
    let signal = if by_force { Signal::KILL } else { Signal::TERM };
    let Ok(stats) = all() else { return };
    for stat in stats.values().filter(|stat| stat.session == leader.pid) {
        let process = ProcessIdentity { pid: stat.pid, start_time: stat.start_time };
        signal_process(process, signal);
    }
}

/// Signals a process by a handle, which stays with it when its pid becomes another one's. Old kernels have none.
fn signal_process(process: ProcessIdentity, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid as i32) else { return };
    match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        // The look comes after the handle: if it shows this process, so does the handle.
        Ok(handle) if process.is_running() => {
            let _ = rustix::process::pidfd_send_signal(handle, signal);
        }
        Ok(_) => {}
        Err(rustix::io::Errno::NOSYS) => {
            let _ = process.signal(signal);
        }
        Err(_) => {}
    }
}

#[derive(Debug, Clone)]
struct Stat {
    pid: u32,
    parent: u32,
    session: u32,
    ticks: u64,
    pages: u64,
    start_time: u64,
}

/// Fields 4, 6, 14, 15, 22 and 24 of `/proc/PID/stat`; the name before them may contain blanks and brackets.
fn stat(pid: u32, text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        parent: u32::try_from(number(1)?).ok()?,
        session: u32::try_from(number(3)?).ok()?,
        ticks: number(11)? + number(12)?,
        start_time: number(19)?,
        pages: number(21)?,
    })
}

fn all() -> io::Result<BTreeMap<u32, Stat>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let text = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        all.extend(stat(pid, &text).map(|stat| (pid, stat)));
    }
    Ok(all)
}

/// All processes at one moment, and what they have used since the moment before.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) at: Millis,
    stats: BTreeMap<u32, Stat>,
    children: BTreeMap<u32, Vec<u32>>,
    /// Ticks of the moment before, by pid and start time.
    before: BTreeMap<(u32, u64), u64>,
    elapsed: Millis,
    memory: u64,
    processors: u64,
    page: u64,
}

/// What a process takes, without and with those below it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measure {
    pub(super) own: Usage,
    pub(super) all: Usage,
    pub(super) children: u32,
}

impl Measure {
    pub(super) fn total(&self) -> Usage {
        self.all
    }
}

impl Table {
    pub(super) fn read(now: Millis, last: Option<Self>) -> io::Result<Self> {
        let stats = all()?;
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for stat in stats.values() {
            children.entry(stat.parent).or_default().push(stat.pid);
        }
        let elapsed = last.as_ref().map_or(0, |last| now.saturating_sub(last.at));
        let before = last.map(|last| last.stats).unwrap_or_default();
        let before = before.values().map(|stat| ((stat.pid, stat.start_time), stat.ticks)).collect();
        let system = rustix::system::sysinfo();
        let memory = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit)) / 1024;
        let processors = std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
        let page = rustix::param::page_size() as u64 / 1024;
        Ok(Self { at: now, stats, children, before, elapsed, memory, processors, page })
    }

    /// What `process` takes, with all below it and with `others` that belong to it.
    pub(super) fn measure(&self, process: ProcessIdentity, others: &[u32]) -> Option<Measure> {
        let own = self.stats.get(&process.pid).filter(|stat| stat.start_time == process.start_time)?;
        let mut reached = vec![own];
        let mut at = 0;
        while at < reached.len() {
            let below = self.children.get(&reached[at].pid).into_iter().flatten();
            reached.extend(below.filter_map(|pid| self.stats.get(pid)));
            at += 1;
        }
        let children = reached.len() as u32 - 1;
        let are_below: HashSet<u32> = reached.iter().map(|stat| stat.pid).collect();
        reached.extend(others.iter().filter(|pid| !are_below.contains(pid)).filter_map(|pid| self.stats.get(pid)));
        Some(Measure { own: self.usage(&[own]), all: self.usage(&reached), children })
    }

    fn usage(&self, stats: &[&Stat]) -> Usage {
        let memory = stats.iter().map(|stat| stat.pages * self.page).sum::<u64>();
        let ticks = stats.iter().filter_map(|stat| {
            let before = self.before.get(&(stat.pid, stat.start_time))?;
            Some(stat.ticks.saturating_sub(*before))
        });
        let seconds = ticks.sum::<u64>() as f64 / TICKS_PER_SECOND as f64;
        let available = self.elapsed as f64 / 1000.0 * self.processors as f64;
        Usage {
            memory,
            memory_share: memory as f64 * 100.0 / self.memory.max(1) as f64,
            cpu: if available > 0.0 { (seconds * 100.0 / available).min(100.0) } else { 0.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_files_with_rubbish_name_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read_pid_file(path.to_str().unwrap())
        };
        assert_eq!(read_pid_file("/nowhere/pid"), PidFile::Nobody);
        for rubbish in ["", "x", "-1", "0", "99999999999999", "1 2", "4194305", &"9".repeat(1000)] {
            assert_eq!(read(rubbish), PidFile::Nobody, "{rubbish}");
        }
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        let expected = PidFile::Process { process: own, is_younger: false };
        assert_eq!(read(&format!(" {}\n", own.pid)), expected);
        fs::File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let PidFile::Process { is_younger, .. } = read_pid_file(path.to_str().unwrap()) else { panic!() };
        assert!(is_younger, "a file of 1970 means another process");
    }

    #[test]
    fn a_process_is_measured_with_those_below_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let child_pid = child.id();
        let table = Table::read(now(), None).unwrap();
        let own = table.measure(ProcessIdentity::of(std::process::id()).unwrap(), &[]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // One that is not below it, and one that is below it already, which counts once.
        let with = |others: &[u32]| table.measure(ProcessIdentity::of(std::process::id()).unwrap(), others).unwrap();
        assert!(with(&[1, child_pid]).all.memory > own.all.memory);
        assert_eq!(with(&[child_pid, std::process::id()]), own);
        assert!(own.children >= 1);
        assert!(own.all.memory > own.own.memory && own.own.memory > 100);
        assert!(own.all.memory_share > 0.0 && own.all.memory_share < 100.0);
    }

    #[test]
    fn only_the_session_of_the_leader_that_is_meant_is_ended() {
        let mut child = std::process::Command::new("setsid").args(["sleep", "60"]).spawn().unwrap();
        let process = ProcessIdentity::of(child.id()).unwrap();
        // Until it has its session.
        while all().unwrap()[&process.pid].session != process.pid {
            std::thread::yield_now();
        }
        end_session(ProcessIdentity { start_time: process.start_time + 1, ..process }, true);
        assert!(process.is_running());
        end_session(process, false);
        assert!(!child.wait().unwrap().success());
    }
}
