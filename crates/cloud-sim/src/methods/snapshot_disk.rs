//! `snapshot_disk`: a copy of what is on a disk, attached or not.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::SnapshotDisk;
use windlass_contract::{MiB, SnapshotCid};
use windlass_cpi::Call;

use crate::cloud::{SimCloud, write_content};
use crate::records::{CONTENT, SnapshotRecord};

pub(crate) fn run(cloud: &SimCloud, call: &Call, disk: SnapshotDisk) -> Result<SnapshotCid, CpiError> {
    let SnapshotDisk { disk_cid, metadata } = disk;
    let cid = SnapshotCid::new(cloud.snapshots.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.snapshots.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let (Some(disk), Some((_lock, record))) =
        (cloud.disks.path(disk_cid.as_str()), cloud.disks.lock_existing(disk_cid.as_str())?)
    else {
        return Err(CpiError::disk_not_found(&disk_cid));
    };
    let size_mib = record.size_mib;
    let _room = cloud.room_on_disks(MiB(size_mib))?;
    let snapshot = SnapshotRecord { cid: cid.clone(), disk_cid, size_mib, metadata };
    cloud.snapshots.make(cid.as_str(), &snapshot, |folder| {
        write_content(Some(&disk.join(CONTENT)), &folder.join(CONTENT))?;
        cloud.faults.half_way();
        Ok(())
    })?;
    Ok(cid)
}
