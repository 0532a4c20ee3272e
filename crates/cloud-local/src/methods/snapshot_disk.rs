//! `snapshot_disk`: a copy of a disk as it is at one moment, in use or not. It lives on when the disk is gone.

use windlass_contract::SnapshotCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::SnapshotDisk;
use windlass_cpi::Call;

use crate::cloud::LocalCloud;
use crate::disks::LockedDisk;
use crate::state::SnapshotRecord;

pub(crate) fn run(cloud: &LocalCloud, call: &Call, asked: SnapshotDisk) -> Result<SnapshotCid, CpiError> {
    let cid = SnapshotCid::new(cloud.snapshots.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    let Some(disk) = LockedDisk::lock(cloud, &asked.disk_cid)? else {
        return Err(CpiError::disk_not_found(&asked.disk_cid));
    };
    if cloud.snapshots.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let form = disk.record.form;
    let record = SnapshotRecord {
        cid: cid.clone(),
        disk_cid: asked.disk_cid,
        size_mib: disk.record.size_mib,
        form,
        metadata: asked.metadata,
    };
    cloud.snapshots.make(cid.as_str(), &record, |folder| {
        disk.ensure_space_for_snapshot(folder)?;
        Ok(disk.copy_to(&folder.join(form.file()))?)
    })?;
    Ok(cid)
}
