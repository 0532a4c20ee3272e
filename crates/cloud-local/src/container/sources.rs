//! What a container is made from, by paths at which its maker finds them.
//!
//! libcontainer makes the container as root of its user namespace, who may not enter the private state folder. So for a VM with users of its
//! own all of it is mounted at one place that everybody may pass through. Only the supervisor and the container see that, and it goes with them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

use super::users::{self, Ids};
use crate::machine::Machine;
use crate::state::ContainerRecord;

/// An empty folder of this machine; what is mounted there is another thing in each supervisor.
const STAGE: &str = "/run/windlass-vm";

/// Where a container's maker finds what it needs.
#[derive(Debug)]
pub(super) struct Sources {
    /// Where the root file system is mounted: already, if its users are its own.
    pub(super) root: PathBuf,
    /// The folder in which disks appear.
    pub(super) disks: PathBuf,
    /// The agent, if it is a program of this machine.
    pub(super) agent: Option<PathBuf>,
    /// What makes its users its own.
    pub(super) users: Option<(Ids, OwnedFd)>,
}

impl Sources {
    /// Where they are on this machine.
    fn of_machine(container: &ContainerRecord, machine: &Machine) -> Self {
        Self { root: machine.root(), disks: machine.disks(), agent: container.agent.clone(), users: None }
    }

    /// Finds them, in the mount namespace of the container's supervisor alone.
    pub(super) fn find(container: &ContainerRecord, machine: &Machine) -> io::Result<Self> {
        let found = Self::of_machine(container, machine);
        match container.users.ids() {
            None => Ok(found),
            Some(ids) => found.staged(ids, &container.root, machine),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "mounts of the supervisor alone, which end with it")]
    fn staged(self, ids: Ids, files: &Path, machine: &Machine) -> io::Result<Self> {
        let mut holder = ids.hold(&std::env::current_exe()?)?;
        let stage = Path::new(STAGE);
        std::fs::DirBuilder::new().recursive(true).create(stage)?;
        rustix::mount::mount("windlass", stage, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=711,size=64k")
            .map_err(|error| context("mount a file system at", stage, error.into()))?;
        let place = |name: &str| -> io::Result<PathBuf> {
            let place = stage.join(name);
            std::fs::create_dir(&place)?;
            Ok(place)
        };
        let stemcell = place(users::STEMCELL)?;
        users::translated(files, holder.namespace.as_fd())
            .and_then(|mount| users::put(mount.as_fd(), &stemcell))
            .map_err(|error| context("translate the ids of", files, error))?;
        // The state folder keeps everybody out; root of the VM must get through this one, to what it wrote.
        std::fs::set_permissions(machine.folder(), std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
        rustix::mount::mount_bind(machine.folder(), place(users::VM)?)
            .map_err(|error| context("mount", machine.folder(), error.into()))?;
        let root = place("root")?;
        users::put(holder.overlay(stage)?.as_fd(), &root)?;
        let disks = place("disks")?;
        rustix::mount::mount_bind_recursive(&self.disks, &disks)
            .map_err(|error| context("mount", &self.disks, error.into()))?;
        let agent = match &self.agent {
            None => None,
            Some(agent) => {
                let place = stage.join("agent");
                std::fs::File::create_new(&place)?;
                rustix::mount::mount_bind(agent, &place).map_err(|error| context("mount", agent, error.into()))?;
                Some(place)
            }
        };
        Ok(Self { root, disks, agent, users: Some((ids, holder.namespace.try_clone()?)) })
    }

    /// The path of the user namespace, for a process that this one starts.
    pub(super) fn user_namespace(&self) -> Option<PathBuf> {
        self.users.as_ref().map(|(_, namespace)| format!("/proc/self/fd/{}", namespace.as_raw_fd()).into())
    }

    /// The container has them now.
    #[expect(clippy::disallowed_methods, reason = "mounts of the supervisor alone, which end with it")]
    pub(super) fn let_go(self) -> io::Result<()> {
        match self.users {
            None => Ok(()),
            Some(_) => Ok(rustix::mount::unmount(STAGE, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?),
        }
    }
}

fn context(doing: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {doing} {}: {error}", path.display()))
}
