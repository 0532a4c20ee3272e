//! Folders of jobs on a platform without privileges, in a VM with a root file system of its own: there jobs may run as `vcap`, and
//! must reach what is theirs.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::layout::Base;

/// The group of jobs; none if the machine does not have it, or we may not give it anything.
fn group() -> Option<u32> {
    let list = std::fs::read_to_string("/etc/group").unwrap_or_default();
    list.lines().filter(|_| rustix::process::geteuid().is_root()).find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == "vcap").then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// Gives a path to root and to the group of jobs.
pub(super) fn give(path: &Path) -> io::Result<()> {
    group().map_or(Ok(()), |group| chown(path, Some(0), Some(group)))
}

/// What the agent and jobs keep, with the modes that it has on a machine of its own.
pub(super) fn set_up(base: &Base) -> io::Result<()> {
    let (data, instance) = (base.data(), base.instance());
    for (path, mode) in [
        (base.path().to_owned(), 0o755),
        (data.clone(), 0o755),
        (data.join("sys"), 0o750),
        (data.join("sys/log"), 0o750),
        // Jobs of any user put things there.
        (data.join("sys/run"), 0o1777),
        (data.join("jobs"), 0o750),
        (data.join("packages"), 0o755),
        (instance.clone(), 0o755),
        (instance.join("disks"), 0o755),
        (instance.join("dns"), 0o2755),
    ] {
        std::fs::create_dir_all(&path)?;
        give(&path)?;
        set_mode(&path, mode)?;
    }
    Ok(())
}

/// Lets jobs into a disk, whose folder is its owner's alone on the machine around the VM.
pub(super) fn open(disk: &Path) -> io::Result<()> {
    set_mode(disk, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}
