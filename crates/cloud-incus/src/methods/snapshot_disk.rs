//! `snapshot_disk`: also while the disk is in use.

use windlass_contract::SnapshotCid;
use windlass_contract::cpi::methods::SnapshotDisk;
use windlass_cpi::Call;

use crate::disks::Disk;
use crate::fault::Fault;
use crate::names::SnapshotName;
use crate::session::Session;
use crate::tags;

pub(crate) async fn run(session: &Session, call: &Call, asked: &SnapshotDisk) -> Result<SnapshotCid, Fault> {
    let disk = Disk::get(session, &asked.disk_cid).await?;
    let name = SnapshotName::new(disk.name.clone(), call.id);
    session.client.wait_for_others(&disk.name.volume).await?;
    match session.client.create_snapshot(&disk.name.pool, &disk.volume, &name.snapshot).await {
        Ok(()) => {}
        Err(error) if error.is_taken() => {}
        Err(error) => return Err(error.into()),
    }
    let description = tags::description(&asked.metadata);
    if !description.is_empty() {
        // For people alone: the snapshot is there.
        let _ = session.client.describe_snapshot(&disk.name.pool, &disk.volume, &name.snapshot, &description).await;
    }
    Ok(name.cid()?)
}
