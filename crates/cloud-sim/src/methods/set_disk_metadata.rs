//! `set_disk_metadata`: replaces the given keys, keeps the others.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::SetDiskMetadata;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, disk: SetDiskMetadata) -> Result<(), CpiError> {
    let Some((_lock, mut record)) = cloud.disks.lock_existing(disk.disk_cid.as_str())? else {
        return Err(CpiError::disk_not_found(&disk.disk_cid));
    };
    record.metadata.extend(disk.metadata);
    cloud.faults.half_way();
    Ok(cloud.disks.write(disk.disk_cid.as_str(), &record)?)
}
