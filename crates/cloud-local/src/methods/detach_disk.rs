//! `detach_disk`: returns once nothing of the VM has the disk. One that is not attached, or gone, is a success.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DetachDisk;

use crate::cloud::LocalCloud;
use crate::disks::LockedDisk;

pub(crate) fn run(cloud: &LocalCloud, asked: DetachDisk) -> Result<(), CpiError> {
    let DetachDisk { vm_cid, disk_cid } = asked;
    let Some((_vm_lock, mut vm)) = cloud.vms.lock_existing(vm_cid.as_str())? else {
        return Err(CpiError::vm_not_found(&vm_cid));
    };
    if let Some(mut disk) = LockedDisk::lock(cloud, &disk_cid)?
        && disk.holder() == Some(&vm_cid)
    {
        disk.detach()?;
    }
    // After the disk's own record, which decides.
    if vm.disks.remove(&disk_cid).is_some() {
        cloud.vms.write(vm_cid.as_str(), &vm)?;
    }
    Ok(())
}
