//! Disks: what they are made of, and showing them to VMs while these run.
//!
//! A disk is a folder (`data`) or a sparse ext4 file system (`image`); which of them is decided when it is made. An image
//! is mounted in the VM's [`folder`] of disks, which is bind-mounted into the container with slave propagation. The agent gets
//! that place as its hint.
//!
//! The order of things, so that a kill at any point loses nothing:
//!
//! | | first | then | last |
//! |---|---|---|---|
//! | attach | the VM's record lists the disk | the disk's record names the VM | mounted |
//! | detach | unmounted everywhere, and the kernel let go of the file | the disk's record is cleared | the VM's list |
//! | grow | the file is longer | the file system fills it | the record says so |
//! | snapshot | a mark says that the disk is frozen | frozen, copied, thawed | the mark goes, the copy appears |
//!
//! A call that locks a disk finds out how far a killed call came ([`LockedDisk`]). The programs that work on a disk share its
//! lock, so nothing of the killed call is still at work then.
//!
//! - [`locked`]: a disk in hand. [`image`]: the file system in a file. [`copy`], [`copy_tree`], [`freeze`]: snapshots.
//! - [`namespaces`], [`mounts`], [`holders`]: where a disk is mounted, and who uses it. [`tool`]: programs that are needed.

mod copy;
mod copy_tree;
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod freeze;
mod holders;
pub(crate) mod image;
pub(crate) mod locked;
pub(crate) mod mounts;
mod namespaces;
pub(crate) mod space;
mod tool;

use windlass_contract::cpi::CpiError;

pub(crate) use self::locked::LockedDisk;
use crate::cloud::LocalCloud;
use crate::machine::Machine;
use crate::state::VmRecord;

/// Shows a VM the disks that are attached to it, before it starts: after a restart of this machine nothing is mounted.
/// The VM must be locked.
pub(crate) fn show_all(cloud: &LocalCloud, vm: &VmRecord, machine: &Machine) -> Result<(), CpiError> {
    for disk in vm.disks.keys() {
        if let Some(disk) = LockedDisk::lock(cloud, disk)?
            && disk.holder() == Some(&vm.cid)
        {
            disk.show(vm, machine)?;
        }
    }
    Ok(())
}

/// Takes all disks from a VM that is locked and has been stopped, and closes its folder of disks. Only after this may
/// the VM's folder be removed: what is still mounted there would be removed with it. Goes on after a failure, and tells all of them.
pub(crate) fn release_all(cloud: &LocalCloud, vm: &VmRecord, machine: &Machine) -> Result<(), CpiError> {
    let mut failures: Vec<CpiError> = Vec::new();
    for cid in vm.disks.keys() {
        let released = LockedDisk::lock(cloud, cid).and_then(|disk| match disk {
            Some(mut disk) if disk.holder() == Some(&vm.cid) => Ok(disk.detach()?),
            _ => Ok(()),
        });
        if let Err(mut error) = released {
            error.message = format!("cannot release the disk '{cid}': {}", error.message);
            failures.push(error);
        }
    }
    if failures.is_empty() {
        failures.extend(folder::close(&machine.disks()).err().map(CpiError::from));
    }
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(()),
        Some(first) => Err(failures.fold(first, |mut all, next| {
            all.message = format!("{}; and {}", all.message, next.message);
            all
        })),
    }
}
