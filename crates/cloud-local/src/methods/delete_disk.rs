//! `delete_disk`: removes a disk with its data, unless something has it.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteDisk;

use crate::cloud::LocalCloud;
use crate::disks::LockedDisk;

pub(crate) fn run(cloud: &LocalCloud, disk: DeleteDisk) -> Result<(), CpiError> {
    let cid = disk.disk_cid;
    let Some(disk) = LockedDisk::lock_to_remove(cloud, &cid)? else { return Ok(()) };
    if let Some(vm) = disk.holder() {
        return Err(CpiError::cloud(format!("the disk '{cid}' is attached to the VM '{vm}'; detach it first")));
    }
    disk.ensure_free()?;
    Ok(cloud.disks.remove(cid.as_str())?)
}
