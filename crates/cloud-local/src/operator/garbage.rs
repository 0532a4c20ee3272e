//! Removing what nobody owns.

use windlass_contract::cpi::CpiError;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use super::problems::{Cure, Problem};
use crate::cloud::LocalCloud;
use crate::disks::{LockedDisk, mounts};

impl LocalCloud {
    /// Removes or finishes one of the problems that are garbage; the others are left alone.
    pub fn collect(&self, problem: &Problem) -> Result<(), CpiError> {
        match &problem.cure {
            Cure::RemoveLeftover(path) => {
                let mounted = mounts::of_this_process()
                    .map_err(|error| CpiError::cloud(format!("cannot read /proc/self/mountinfo: {error}")))?;
                // What is mounted there would be removed with it.
                if let Some(mount) = mounts::below(&mounted, path) {
                    return Err(CpiError::cloud(format!(
                        "something is mounted at {}; unmount it first",
                        mount.display()
                    )));
                }
                // Each shelf removes only what is its own.
                self.stemcells.remove_leftover(path)?;
                self.vms.remove_leftover(path)?;
                self.disks.remove_leftover(path)?;
                self.snapshots.remove_leftover(path)?;
                Ok(self.networks.remove_leftover(path)?)
            }
            Cure::RemoveLock(path) => {
                let removed = FileLock::try_acquire(path).and_then(|lock| match lock {
                    Some(_lock) => file::remove_file(path),
                    // Somebody took it in the meantime.
                    None => Ok(()),
                });
                removed.map_err(|error| CpiError::cloud(format!("cannot remove {}: {error}", path.display())))
            }
            Cure::Settle(cid) => LockedDisk::lock(self, cid).map(drop),
            Cure::RemoveBridge(name) => self.remove_unused_bridge(name),
            Cure::ByHand(_) => Ok(()),
        }
    }
}
