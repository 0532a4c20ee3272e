//! The folder in which a container's disks are mounted, one folder each.
//!
//! On this machine it is a mount point whose mounts are shared with one group of its own. A container has it as a slave,
//! made after [`open`] and best read-only: what is mounted here appears there without a restart, what happens there never
//! comes back, and no other container sees it.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use windlass_durable::{file, kill_point};

use super::error::{DiskError, io_error};
use super::mounts;

/// Makes the folder ready; one that is ready already stays as it is.
#[expect(clippy::disallowed_methods, reason = "each mount stands between two kill points")]
pub(crate) fn open(folder: &Path) -> Result<(), DiskError> {
    file::create_private_dir(folder).map_err(io_error("make", folder))?;
    // The kernel tells mount points without links.
    let folder = &folder.canonicalize().map_err(io_error("find", folder))?;
    if mounts::at(&read()?, folder).is_none() {
        kill_point("before the disks' folder is mounted");
        mount_bind(folder, folder).map_err(|error| io_error("mount", folder)(error.into()))?;
        kill_point("after the disks' folder is mounted");
    }
    let mounts = read()?;
    let group = |id: u64| mounts.iter().find(|mount| mount.id == id).and_then(|mount| mount.peers);
    let has_own_group =
        mounts::at(&mounts, folder).is_some_and(|it| it.peers.is_some() && it.peers != group(it.parent));
    if !has_own_group {
        // Out of the group that it was born into, then into a new one.
        for propagation in [MountPropagationFlags::PRIVATE, MountPropagationFlags::SHARED] {
            mount_change(folder, propagation).map_err(|error| io_error("share", folder)(error.into()))?;
            kill_point("after the disks' folder is shared");
        }
    }
    Ok(())
}

/// Takes the folder away, once no disk is mounted there. Nothing may be removed below it before this succeeded.
#[expect(clippy::disallowed_methods, reason = "the unmount passes the hook")]
pub(crate) fn close(folder: &Path) -> Result<(), DiskError> {
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    let mut failed: Option<(u64, Errno)> = None;
    loop {
        let mounts = read()?;
        let Some(mount) = mounts.iter().rfind(|mount| mount.point.starts_with(&folder)) else { return Ok(()) };
        if mount.point != folder {
            let holders = "another disk is still mounted there".to_owned();
            return Err(DiskError::Busy { point: mount.point.clone(), holders });
        }
        if let Some((_, error)) = failed.filter(|(id, _)| *id == mount.id) {
            return Err(io_error("unmount", &folder)(error.into()));
        }
        kill_point("before the disks' folder is unmounted");
        match unmount(&folder, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => {
                return Err(DiskError::Busy {
                    point: folder.clone(),
                    holders: "a process is in that folder".to_owned(),
                });
            }
            // Somebody else took it away between the look and the unmount, if the next look does not find it.
            Err(error) => failed = Some((mount.id, error)),
            Ok(()) => {}
        }
    }
}

fn read() -> Result<Vec<mounts::Mount>, DiskError> {
    mounts::of_this_process().map_err(io_error("read", Path::new("/proc/self/mountinfo")))
}
