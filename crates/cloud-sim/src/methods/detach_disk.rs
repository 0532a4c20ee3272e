//! `detach_disk`: a disk that is not attached, or gone, is a success.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DetachDisk;
use windlass_durable::file;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, asked: DetachDisk) -> Result<(), CpiError> {
    let DetachDisk { vm_cid, disk_cid } = asked;
    let Some((_vm_lock, mut vm)) = cloud.vms.lock_existing(vm_cid.as_str())? else {
        return Err(CpiError::vm_not_found(&vm_cid));
    };
    if let Some((_disk_lock, mut disk)) = cloud.disks.lock_existing(disk_cid.as_str())?
        && disk.attached_to.as_ref() == Some(&vm_cid)
    {
        disk.attached_to = None;
        cloud.disks.write(disk_cid.as_str(), &disk)?;
    }
    cloud.faults.half_way();
    // After the disk's own record, which decides.
    if vm.disks.contains_key(&disk_cid) {
        let seen_at = cloud.seen_at(&vm_cid, &disk_cid)?;
        file::remove_file(&seen_at)
            .map_err(|error| CpiError::cloud(format!("cannot remove {}: {error}", seen_at.display())))?;
    }
    if vm.disks.remove(&disk_cid).is_some() {
        cloud.vms.write(vm_cid.as_str(), &vm)?;
    }
    Ok(())
}
