//! Pid files and `/proc`: who runs, what they take, and signals that never reach a stranger.

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::SystemTime;

use rustix::fs::OFlags;
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

/// The process that a pid file names, as seen now or in `table`. What holds no pid names nobody, and neither does a file that is
/// larger than any pid.
pub(super) fn read_pid_file(path: &str, table: Option<&Table>) -> PidFile {
    let Ok(mut file) = open_plain(path) else { return PidFile::Nobody };
    let mut text = [0; 64];
    let Ok(length) = file.read(&mut text) else { return PidFile::Nobody };
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    let Some(pid) = text.trim().parse::<u32>().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid)) else {
        return PidFile::Nobody;
    };
    let process = match table.and_then(|table| table.process(pid)) {
        Some(process) => process,
        None => match ProcessIdentity::of(pid) {
            Ok(process) if process.is_running() => process,
            _ => return PidFile::Nobody,
        },
    };
    let written = file.metadata().and_then(|metadata| metadata.modified());
    let age = now() as f64 / 1000.0 - process.start_time as f64 / TICKS_PER_SECOND as f64;
    let file_age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
    let is_younger = file_age.is_some_and(|file_age| age + SLACK < file_age.as_secs_f64());
    PidFile::Process { process, is_younger }
}

/// Opens a plain file, whatever a job put in its place: opening a pipe would block, and nothing would be supervised meanwhile.
pub(super) fn open_plain(path: &str) -> io::Result<fs::File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(io::Error::other("it is not a plain file")),
    }
}

/// The process that a pid file names, if it runs and is not younger than the file.
pub fn process_of(pidfile: &str) -> Option<ProcessIdentity> {
    match read_pid_file(pidfile, None) {
        PidFile::Process { process, is_younger: false } => Some(process),
        _ => None,
    }
}

/// Ends the session that `leader` leads, if it is still this one.
pub(super) fn end_session(leader: ProcessIdentity, by_force: bool) {
    if !leader.is_running() {
        return;
    }
    let signal = if by_force { Signal::KILL } else { Signal::TERM };
    let Ok(stats) = all() else { return };
    for stat in stats.iter().filter(|stat| stat.session == leader.pid) {
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
    /// It has ended, and its parent does not know yet.
    is_zombie: bool,
}

/// Fields 3, 4, 6, 14, 15, 22 and 24 of `/proc/PID/stat`; the name before them may contain blanks and brackets.
fn stat(pid: u32, text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 2;
    let mut fields = text.get(after_name..)?.split(|byte| *byte == b' ');
    let state = *fields.next()?.first()?;
    let mut at = 0;
    // The one with this index after the state; they are asked for in their order.
    let mut number = |index: usize| {
        let skipped = index - at - 1;
        at = index;
        std::str::from_utf8(fields.nth(skipped)?).ok()?.parse::<u64>().ok()
    };
    Some(Stat {
        pid,
        parent: u32::try_from(number(1)?).ok()?,
        session: u32::try_from(number(3)?).ok()?,
        ticks: number(11)? + number(12)?,
        start_time: number(19)?,
        pages: number(21)?,
        is_zombie: matches!(state, b'Z' | b'X'),
    })
}

/// Everybody who runs, by pid.
fn all() -> io::Result<Vec<Stat>> {
    let mut all = Vec::new();
    let mut text = Vec::with_capacity(1024);
    let mut path = String::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        path.clear();
        let _ = write!(path, "/proc/{pid}/stat");
        text.clear();
        let read = fs::File::open(&path).and_then(|mut file| file.read_to_end(&mut text));
        all.extend(read.ok().and_then(|_| stat(pid, &text)));
    }
    all.sort_unstable_by_key(|stat| stat.pid);
    Ok(all)
}

/// All processes at one moment, and what they have used since the moment before.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) at: Millis,
    /// By pid.
    stats: Vec<Stat>,
    /// Parents and their children.
    children: Vec<(u32, u32)>,
    /// Pid, start time and ticks of the moment before, by pid.
    before: Vec<(u32, u64, u64)>,
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
        let mut children: Vec<(u32, u32)> = stats.iter().map(|stat| (stat.parent, stat.pid)).collect();
        children.sort_unstable();
        let elapsed = last.as_ref().map_or(0, |last| now.saturating_sub(last.at));
        let before = last.map(|last| last.stats).unwrap_or_default();
        let before = before.iter().map(|stat| (stat.pid, stat.start_time, stat.ticks)).collect();
        let system = rustix::system::sysinfo();
        let memory = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit)) / 1024;
        let processors = std::thread::available_parallelism().map_or(1, |number| number.get() as u64);
        let page = rustix::param::page_size() as u64 / 1024;
        Ok(Self { at: now, stats, children, before, elapsed, memory, processors, page })
    }

    fn get(&self, pid: u32) -> Option<&Stat> {
        self.stats.binary_search_by_key(&pid, |stat| stat.pid).ok().map(|index| &self.stats[index])
    }

    /// The process with this pid, if it ran at that moment.
    fn process(&self, pid: u32) -> Option<ProcessIdentity> {
        let stat = self.get(pid).filter(|stat| !stat.is_zombie)?;
        Some(ProcessIdentity { pid, start_time: stat.start_time })
    }

    /// Whether a process ran at that moment; none if it may be younger.
    pub(super) fn runs(&self, process: ProcessIdentity) -> Option<bool> {
        self.get(process.pid).map(|stat| stat.start_time == process.start_time && !stat.is_zombie)
    }

    fn children(&self, pid: u32) -> impl Iterator<Item = &Stat> {
        let first = self.children.partition_point(|(parent, _)| *parent < pid);
        let children = self.children[first..].iter().take_while(move |(parent, _)| *parent == pid);
        children.filter_map(|(_, child)| self.get(*child))
    }

    /// What `process` takes, with all below it and with `others` that belong to it.
    pub(super) fn measure(&self, process: ProcessIdentity, others: &[u32]) -> Option<Measure> {
        let own = self.get(process.pid).filter(|stat| stat.start_time == process.start_time)?;
        let mut reached = vec![own];
        let mut at = 0;
        while at < reached.len() {
            reached.extend(self.children(reached[at].pid));
            at += 1;
        }
        let children = reached.len() as u32 - 1;
        if !others.is_empty() {
            let are_below: HashSet<u32> = reached.iter().map(|stat| stat.pid).collect();
            reached.extend(others.iter().filter(|pid| !are_below.contains(pid)).filter_map(|pid| self.get(*pid)));
        }
        Some(Measure { own: self.usage(&[own]), all: self.usage(&reached), children })
    }

    fn usage(&self, stats: &[&Stat]) -> Usage {
        let memory = stats.iter().map(|stat| stat.pages * self.page).sum::<u64>();
        let ticks = stats.iter().filter_map(|stat| {
            let index = self.before.binary_search_by_key(&stat.pid, |(pid, ..)| *pid).ok()?;
            let (_, start_time, ticks) = self.before[index];
            (start_time == stat.start_time).then(|| stat.ticks.saturating_sub(ticks))
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
            read_pid_file(path.to_str().unwrap(), None)
        };
        assert_eq!(read_pid_file("/nowhere/pid", None), PidFile::Nobody);
        for rubbish in ["", "x", "-1", "0", "99999999999999", "1 2", "4194305", &"9".repeat(1000)] {
            assert_eq!(read(rubbish), PidFile::Nobody, "{rubbish}");
        }
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        let expected = PidFile::Process { process: own, is_younger: false };
        assert_eq!(read(&format!(" {}\n", own.pid)), expected);
        fs::File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let PidFile::Process { is_younger, .. } = read_pid_file(path.to_str().unwrap(), None) else { panic!() };
        assert!(is_younger, "a file of 1970 means another process");
    }

    /// One job that makes a pipe of its pid file would stop the supervision of all others.
    #[test]
    fn a_pipe_or_a_device_in_the_place_of_a_pid_file_names_nobody_and_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let (told, answer) = std::sync::mpsc::channel();
        let pipe = path.to_str().unwrap().to_owned();
        std::thread::spawn(move || told.send(read_pid_file(&pipe, None)));
        let read = answer.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits for the pipe");
        assert_eq!(read, PidFile::Nobody);
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(read_pid_file(path.to_str().unwrap(), None), PidFile::Nobody);
    }

    #[test]
    fn a_process_is_measured_with_those_below_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let child_pid = child.id();
        let itself = ProcessIdentity::of(std::process::id()).unwrap();
        // Until the child has some memory, which the kernel counts a little later.
        let (table, own) = loop {
            let table = Table::read(now(), None).unwrap();
            let own = table.measure(itself, &[]).unwrap();
            if own.all.memory > own.own.memory {
                break (table, own);
            }
            std::thread::yield_now();
        };
        child.kill().unwrap();
        child.wait().unwrap();
        // One that is not below it, and one that is below it already, which counts once.
        let with = |others: &[u32]| table.measure(itself, others).unwrap();
        assert!(with(&[1, child_pid]).all.memory > own.all.memory);
        assert_eq!(with(&[child_pid, std::process::id()]), own);
        assert!(own.children >= 1);
        assert!(own.own.memory > 100);
        assert!(own.all.memory_share > 0.0 && own.all.memory_share < 100.0);
    }

    #[test]
    fn only_the_session_of_the_leader_that_is_meant_is_ended() {
        let mut child = std::process::Command::new("setsid").args(["sleep", "60"]).spawn().unwrap();
        let process = ProcessIdentity::of(child.id()).unwrap();
        // Until it has its session.
        while Table::read(now(), None).unwrap().get(process.pid).unwrap().session != process.pid {
            std::thread::yield_now();
        }
        end_session(ProcessIdentity { start_time: process.start_time + 1, ..process }, true);
        assert!(process.is_running());
        end_session(process, false);
        assert!(!child.wait().unwrap().success());
    }
}
