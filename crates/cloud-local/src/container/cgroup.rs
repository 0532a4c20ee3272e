//! The control group of a VM, in every hierarchy that this machine has. All processes of a container are in it, from before
//! its first one runs, so that what a killed supervisor left is found here.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use windlass_durable::kill_point;

/// The folder of our groups in a hierarchy.
const PARENT: &str = "windlass";

/// The path of a VM's group, from the root of each hierarchy.
pub(crate) fn path(vm: &str) -> String {
    format!("/{PARENT}/{vm}")
}

/// Ends all processes of a VM.
pub(crate) fn kill(vm: &str, patience: Duration) -> io::Result<()> {
    let groups = groups(vm)?;
    let deadline = Instant::now() + patience;
    loop {
        let mut pids = BTreeSet::new();
        for group in &groups {
            collect(group, &mut pids)?;
        }
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the processes {pids:?} of {vm} do not end")));
        }
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Removes a VM's group, which must have no processes. Gone already is a success.
pub(crate) fn remove(vm: &str) -> io::Result<()> {
    for group in groups(vm)? {
        kill_point("before a control group is removed");
        remove_tree(&group)?;
        if let Some(parent) = group.parent() {
            // Fails while there are others, which is right.
            let _ = fs::remove_dir(parent);
        }
    }
    Ok(())
}

fn groups(vm: &str) -> io::Result<Vec<PathBuf>> {
    let hierarchies = hierarchies()?.into_iter();
    Ok(hierarchies.map(|hierarchy| hierarchy.join(PARENT).join(vm)).filter(|group| group.exists()).collect())
}

/// Where the hierarchies are mounted: one in version 2, one per kind of resource in version 1, both in machines between.
pub(crate) fn hierarchies() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().filter_map(hierarchy).map(PathBuf::from).collect())
}

/// The mount point of a hierarchy; these have no odd characters.
fn hierarchy(line: &str) -> Option<&Path> {
    let (place, kind) = line.split_once(" - ")?;
    kind.starts_with("cgroup").then(|| place.split(' ').nth(4)).flatten().map(Path::new)
}

fn collect(group: &Path, pids: &mut BTreeSet<i32>) -> io::Result<()> {
    match fs::read_to_string(group.join("cgroup.procs")) {
        // Nought is a process of another namespace, which is not ours to end.
        Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0)),
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    }
    for child in children(group)? {
        collect(&child, pids)?;
    }
    Ok(())
}

fn remove_tree(group: &Path) -> io::Result<()> {
    for child in children(group)? {
        remove_tree(&child)?;
    }
    // The kernel lets go of processes that ended a moment later.
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match fs::remove_dir(group) {
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

fn children(group: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(group) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_kinds_are_found() {
        let v1 = "33 25 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(hierarchy(v1), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(hierarchy(v2), Some(Path::new("/sys/fs/cgroup")));
        assert_eq!(hierarchy("22 1 0:20 / /proc rw - proc proc rw"), None);
    }

    #[test]
    fn a_vm_without_processes_needs_no_waiting() {
        kill("vm-that-never-was", Duration::ZERO).unwrap();
        remove("vm-that-never-was").unwrap();
    }
}
