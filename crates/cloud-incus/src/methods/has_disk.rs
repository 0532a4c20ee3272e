//! `has_disk`: whether any list has the disk, also on a member that is down.

use windlass_contract::cpi::methods::HasDisk;

use crate::disks::Disk;
use crate::fault::Fault;
use crate::session::Session;

pub(crate) async fn run(session: &Session, disk: &HasDisk) -> Result<bool, Fault> {
    Ok(Disk::find(session, &disk.disk_cid).await?.is_some())
}
