//! `delete_disk`: removes a volume with its data and snapshots, and what a move left of it.

use windlass_contract::cpi::methods::DeleteDisk;
use windlass_cpi::Call;

use crate::disks::Disk;
use crate::fault::Fault;
use crate::session::Session;
use crate::tags;

pub(crate) async fn run(session: &Session, call: &Call, disk: &DeleteDisk) -> Result<(), Fault> {
    let Some(disk) = Disk::find(session, &disk.disk_cid).await? else { return Ok(()) };
    session.must_be_ours(&format!("the disk '{}'", disk.name), disk.volume.get(tags::DIRECTOR), call)?;
    delete(session, &disk).await
}

/// Removes a disk that no VM has.
pub(crate) async fn delete(session: &Session, disk: &Disk) -> Result<(), Fault> {
    disk.must_be_detached(session).await?;
    session.client.wait_for_others(&disk.name.volume).await?;
    for volume in disk.others.iter().chain([&disk.volume]) {
        match session.client.delete_volume(&disk.name.pool, volume).await {
            Err(error) if error.is_missing() => {}
            other => other?,
        }
    }
    Ok(())
}
