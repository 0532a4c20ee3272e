//! Who uses a file system: what keeps a disk from being released is named, with its pid.

use std::fs;
use std::path::Path;

use super::mounts::Device;

/// Of more holders than this, the rest are counted.
const NAMED: usize = 5;

/// The processes that have something of `device` open, mapped, or as their working folder; in words.
pub(super) fn of(device: Device) -> String {
    let mut holders: Vec<String> = Vec::new();
    let mut others = 0;
    for pid in pids() {
        if !uses(&Path::new("/proc").join(&pid), device) {
            continue;
        }
        if holders.len() < NAMED {
            holders.push(format!("pid {pid} ({})", command(&pid)));
        } else {
            others += 1;
        }
    }
    match (holders.is_empty(), others) {
        (true, _) => "no process; perhaps a mount namespace that is kept without one".to_owned(),
        (false, 0) => holders.join(", "),
        (false, others) => format!("{} and {others} others", holders.join(", ")),
    }
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

fn uses(process: &Path, device: Device) -> bool {
    let is_on = |path: &Path| fs::metadata(path).is_ok_and(|metadata| Device::of(&metadata) == device);
    ["cwd", "root", "exe"].iter().any(|link| is_on(&process.join(link)))
        || fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|entry| is_on(&entry.path()))
        || maps(process, device)
}

fn maps(process: &Path, device: Device) -> bool {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    String::from_utf8_lossy(&maps)
        .lines()
        .any(|line| line.split_whitespace().nth(3).and_then(Device::parse_hex) == Some(device))
}

pub(super) fn command(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_holds_a_file_is_named() {
        let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let executable = fs::metadata("/proc/self/exe").unwrap();
        assert!(uses(Path::new("/proc/self"), Device::of(&executable)));
        assert!(maps(Path::new("/proc/self"), Device::of(&executable)));
        assert!(!uses(Path::new("/proc").join(sleep.id().to_string()).as_path(), Device::parse("4000:4000").unwrap()));
        assert_eq!(command(&sleep.id().to_string()), "sleep");
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
