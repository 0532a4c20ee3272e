//! `delete_disk`: removes a disk with its content, unless a VM has it.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteDisk;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, disk: DeleteDisk) -> Result<(), CpiError> {
    let cid = disk.disk_cid;
    let Some((_lock, record)) = cloud.disks.lock_to_remove(cid.as_str())? else { return Ok(()) };
    cloud.must_be_detached(&record)?;
    cloud.faults.half_way();
    Ok(cloud.disks.remove(cid.as_str())?)
}
