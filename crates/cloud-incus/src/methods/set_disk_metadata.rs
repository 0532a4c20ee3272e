//! `set_disk_metadata`: replaces the given keys, keeps the others.

use serde_json::json;
use windlass_contract::cpi::methods::SetDiskMetadata;

use crate::disks::Disk;
use crate::fault::Fault;
use crate::session::Session;
use crate::tags;

pub(crate) async fn run(session: &Session, asked: &SetDiskMetadata) -> Result<(), Fault> {
    let disk = Disk::get(session, &asked.disk_cid).await?;
    let change = json!({"config": tags::of_metadata(&asked.metadata)});
    let doing = format!("name the disk '{}'", disk.name);
    Ok(session.client.patch_volume(&disk.name.pool, &disk.volume, &change, &doing).await?)
}
