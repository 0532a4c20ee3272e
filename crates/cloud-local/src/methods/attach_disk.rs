//! `attach_disk`: one VM at a time, without restarting it; the hint is where the VM finds the disk.

use windlass_contract::DiskHint;
use windlass_contract::cpi::methods::AttachDisk;
use windlass_contract::cpi::{CpiError, ErrorType};

use crate::cloud::LocalCloud;
use crate::disks::LockedDisk;
use crate::isolation::Isolation;
use crate::machine::Machine;
use crate::state::DiskForm;

pub(crate) fn run(cloud: &LocalCloud, asked: AttachDisk) -> Result<DiskHint, CpiError> {
    let AttachDisk { vm_cid, disk_cid } = asked;
    let (Some(folder), Some((_vm_lock, mut vm))) =
        (cloud.vms.path(vm_cid.as_str()), cloud.vms.lock_existing(vm_cid.as_str())?)
    else {
        return Err(CpiError::vm_not_found(&vm_cid));
    };
    let Some(mut disk) = LockedDisk::lock(cloud, &disk_cid)? else {
        return Err(CpiError::disk_not_found(&disk_cid));
    };
    if (disk.record.form, vm.isolation) == (DiskForm::Directory, Isolation::Container) {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            format!(
                "the disk '{disk_cid}' is a folder of this machine, which the container '{vm_cid}' cannot see; \
                 attach it to a VM in process isolation and copy its data to a new disk"
            ),
        ));
    }
    if disk.record.form == DiskForm::Image && vm.own_root.is_some() {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            format!(
                "the disk '{disk_cid}' is an image, which the VM '{vm_cid}' cannot see, because it is no container and has a \
                 root file system of its own; attach it to a container and copy its data to a new disk"
            ),
        ));
    }
    let was_attached = disk.holder().is_some();
    match disk.holder() {
        Some(holder) if *holder != vm_cid => {
            return Err(CpiError::cloud(format!(
                "the disk '{disk_cid}' is attached to the VM '{holder}'; detach it there first"
            )));
        }
        Some(_) => {}
        None => disk.ensure_free()?,
    }
    let machine = Machine::new(folder);
    let hint = disk.hint(vm.isolation, &machine);
    // The VM's list first, so that whatever a disk says it is attached to knows of it.
    if vm.disks.insert(disk_cid.clone(), hint.clone()).as_ref() != Some(&hint) {
        cloud.vms.write(vm_cid.as_str(), &vm)?;
    }
    if let Err(error) = disk.attach(&vm, &hint, &machine) {
        // What could not be shown is not attached, unless it was before.
        if !was_attached {
            let _ = disk.detach();
        }
        return Err(error.into());
    }
    Ok(hint)
}
