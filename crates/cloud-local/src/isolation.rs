//! How VMs are kept apart, and what this machine allows. It is found out by trying, not by looking at the user id: root
//! in somebody's container may do less than root, and a machine may do without overlays.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sched::CloneFlags;
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use serde::{Deserialize, Serialize};
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::network::netlink;

/// How one VM is kept apart; decided at `create_vm` and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces, a root file system and interfaces of its own.
    Container,
    /// A folder and an agent on a loopback address.
    #[default]
    Process,
}

/// Which isolation new VMs get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationChoice {
    /// The strongest that this machine allows. A VM with loopback addresses is a process in any case.
    #[default]
    Auto,
    /// Containers, or an error.
    Container,
    /// A folder and an agent per VM, on a loopback address, without privileges.
    Process,
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Process => "process",
        })
    }
}

/// How long an attempt waits for those of other calls; each takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tries what a container needs, in a mount namespace that ends with the attempt: mounts, an overlay on the file system of
/// `state`, and changes to the network. Its folder stays: a call that is killed has nothing to clean up.
pub fn try_containers(state: &Path) -> io::Result<()> {
    let folder = state.join("attempt");
    file::create_private_dir(&folder)?;
    let _alone = FileLock::acquire(&folder.join("lock"), PATIENCE)?;
    std::thread::scope(|scope| {
        scope.spawn(|| attempt(&folder)).join().unwrap_or_else(|_| Err(io::Error::other("the attempt panicked")))
    })
}

/// Whether [`try_containers`] found that this machine has no containers for us, and not that something failed.
pub(crate) fn is_a_no(error: &io::Error) -> bool {
    const NO: [Errno; 8] = [
        Errno::PERM,
        Errno::ACCESS,
        Errno::INVAL,
        Errno::NOSYS,
        Errno::NODEV,
        Errno::OPNOTSUPP,
        Errno::ROFS,
        Errno::PROTONOSUPPORT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| NO.contains(&errno))
}

#[expect(clippy::disallowed_methods, reason = "the mount namespace ends with the attempt")]
fn attempt(folder: &Path) -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let [lower, upper, work, root] = ["lower", "upper", "work", "root"].map(|name| folder.join(name));
    for path in [&lower, &upper, &work, &root] {
        fs::create_dir_all(path)?;
    }
    crate::container::root::mount_overlay(&lower, &upper, &work, &root)?;
    rustix::mount::unmount(&root, rustix::mount::UnmountFlags::empty())?;
    netlink::may_change_links()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial that waited for another one for half a minute made a process of what was to be a container.
    #[test]
    fn a_trial_that_fails_for_a_moment_is_no_answer() {
        assert!(is_a_no(&Errno::PERM.into()) && is_a_no(&Errno::NODEV.into()));
        for passing in [Errno::NFILE, Errno::NOSPC, Errno::IO, Errno::NOMEM] {
            assert!(!is_a_no(&passing.into()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _held = FileLock::acquire(&path, PATIENCE).unwrap();
        assert!(!is_a_no(&FileLock::acquire(&path, Duration::from_millis(1)).unwrap_err()));
    }
}
