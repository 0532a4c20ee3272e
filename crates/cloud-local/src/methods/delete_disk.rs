//! `delete_disk`: removes a disk with its data, unless a VM has it.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteDisk;

use crate::cloud::LocalCloud;

pub(crate) fn run(cloud: &LocalCloud, disk: DeleteDisk) -> Result<(), CpiError> {
    let cid = disk.disk_cid;
    let Some((_lock, record)) = cloud.disks.lock_to_remove(cid.as_str())? else { return Ok(()) };
    if let Some(vm) = cloud.holder(&record)? {
        return Err(CpiError::cloud(format!("the disk '{cid}' is attached to the VM '{vm}'; detach it first")));
    }
    Ok(cloud.disks.remove(cid.as_str())?)
}
