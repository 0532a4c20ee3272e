//! Who uses a file system: what keeps a disk from being released is named, with its pid.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use super::mounts::Device;
use super::namespaces;

/// Of more holders than this, the rest are counted.
const NAMED: usize = 5;
/// How long it is looked for them, and how much is read of what one has mapped: programs choose how much they have of everything.
const LOOKS: Duration = Duration::from_secs(5);
const LONGEST: u64 = 8 << 20;

/// The processes that have something of `device` open, mapped, or as their working folder; in words.
pub(super) fn of(device: Device) -> String {
    let mut holders: Vec<String> = Vec::new();
    let mut others = 0;
    let deadline = Instant::now() + LOOKS;
    for pid in pids().take_while(|_| Instant::now() < deadline) {
        if !uses(&Path::new("/proc").join(&pid), device, deadline) {
            continue;
        }
        if holders.len() < NAMED {
            holders.push(named(&pid));
        } else {
            others += 1;
        }
    }
    match (holders.is_empty(), others) {
        (true, _) => match of_many_mounts(deadline) {
            Some(process) => format!("perhaps {process}, whose list of mounts is too long to be read"),
            None => "no process; perhaps a mount namespace that is kept without one".to_owned(),
        },
        (false, 0) => holders.join(", "),
        (false, others) => format!("{} and {others} others", holders.join(", ")),
    }
}

/// The first process that has more mounts than are read.
fn of_many_mounts(deadline: Instant) -> Option<String> {
    let has_many = |pid: &String| {
        let mounts = namespaces::mounts_of(&Path::new("/proc").join(pid));
        mounts.is_err_and(|error| error.kind() == io::ErrorKind::FileTooLarge)
    };
    pids().take_while(|_| Instant::now() < deadline).find(has_many).map(|pid| named(&pid))
}

/// The processes of this machine, by name in `/proc`.
pub(super) fn pids() -> impl Iterator<Item = String> {
    let is_pid = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(move |name| is_pid(name))
}

fn uses(process: &Path, device: Device, deadline: Instant) -> bool {
    let is_on = |path: &Path| fs::metadata(path).is_ok_and(|metadata| Device::of(&metadata) == device);
    ["cwd", "root", "exe"].iter().any(|link| is_on(&process.join(link)))
        || fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .take_while(|_| Instant::now() < deadline)
            .any(|entry| is_on(&entry.path()))
        || maps(process, device)
}

fn maps(process: &Path, device: Device) -> bool {
    let Ok(maps) = File::open(process.join("maps")) else { return false };
    BufReader::new(maps.take(LONGEST)).split(b'\n').map_while(Result::ok).any(|line| {
        let line = String::from_utf8_lossy(&line);
        line.split_whitespace().nth(3).and_then(Device::parse_hex) == Some(device)
    })
}

/// A process as people know it: by its number and its program.
pub(super) fn named(pid: &str) -> String {
    format!("pid {pid} ({})", command(pid))
}

fn command(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_holds_a_file_is_named() {
        let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let executable = fs::metadata("/proc/self/exe").unwrap();
        let soon = Instant::now() + LOOKS;
        assert!(uses(Path::new("/proc/self"), Device::of(&executable), soon));
        assert!(maps(Path::new("/proc/self"), Device::of(&executable)));
        let process = Path::new("/proc").join(sleep.id().to_string());
        assert!(!uses(&process, Device::parse("4000:4000").unwrap(), soon));
        assert_eq!(command(&sleep.id().to_string()), "sleep");
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
