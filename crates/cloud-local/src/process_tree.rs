//! The processes of a VM, found without knowing their pids.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Every process of a VM inherits this variable with the VM's folder.
pub(crate) const MARK: &str = "WINDLASS_VM";

/// How much is read of a process's environment, which it can make as long as it likes.
const LONGEST: u64 = 1 << 20;

/// Ends all processes that carry the mark of the VM in `folder`: what a supervisor that was itself killed left behind.
pub(crate) fn kill_marked(folder: &Path, patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    let mark = [MARK.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    loop {
        let marked: Vec<Pid> = pids()?.filter(|pid| carries(*pid, &mark)).collect();
        if marked.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{} processes of {} do not end", marked.len(), folder.display()),
            ));
        }
        for pid in marked {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The children of this process, zombies too.
pub(crate) fn children() -> io::Result<Vec<Pid>> {
    let own = std::process::id().to_string();
    Ok(pids()?.filter(|pid| parent(*pid).as_deref() == Some(own.as_str())).collect())
}

fn pids() -> io::Result<impl Iterator<Item = Pid>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)))
}

/// A zombie's environment is empty, so what was killed does not count any more.
fn carries(pid: Pid, mark: &[u8]) -> bool {
    let Ok(environment) = File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())) else { return false };
    BufReader::new(environment.take(LONGEST)).split(0).map_while(Result::ok).any(|variable| variable == mark)
}

/// The second field after the name, which may hold blanks and brackets.
fn parent(pid: Pid) -> Option<String> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let after_name = stat.rsplit(|byte| *byte == b')').next()?;
    let parent = after_name.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).nth(1)?;
    Some(OsStr::from_bytes(parent).to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_processes_are_found_and_ended_and_others_are_not() {
        let folder = Path::new("/nowhere/vms/vm-marked");
        let sleeper = |mark: &str| std::process::Command::new("sleep").arg("60").env(MARK, mark).spawn().unwrap();
        let mut marked = sleeper("/nowhere/vms/vm-marked");
        let mut other = sleeper("/nowhere/vms/vm-marked-2");
        assert_eq!(
            children().unwrap().iter().filter(|pid| pid.as_raw_nonzero().get() == marked.id() as i32).count(),
            1
        );
        kill_marked(folder, Duration::from_secs(10)).unwrap();
        assert!(!marked.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
