//! `delete_snapshot`: one that is gone, with its disk or alone, is a success.

use windlass_contract::cpi::methods::DeleteSnapshot;

use crate::disks::Disk;
use crate::fault::Fault;
use crate::names::SnapshotName;
use crate::session::Session;

pub(crate) async fn run(session: &Session, asked: &DeleteSnapshot) -> Result<(), Fault> {
    let Some(name) = SnapshotName::of(&asked.snapshot_cid) else { return Ok(()) };
    let Some(disk) = Disk::named(session, name.disk).await? else { return Ok(()) };
    match session.client.delete_snapshot(&disk.name.pool, &disk.volume, &name.snapshot).await {
        Err(error) if error.is_missing() => Ok(()),
        other => Ok(other?),
    }
}
