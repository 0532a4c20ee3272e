//! `resize_disk`: makes a detached disk larger, never smaller: a btrfs volume below its used space is unusable for ever.

use serde_json::json;
use windlass_contract::MiB;
use windlass_contract::cpi::methods::ResizeDisk;

use crate::disks::{Disk, check_size, growth};
use crate::fault::Fault;
use crate::session::Session;

pub(crate) async fn run(session: &Session, asked: &ResizeDisk) -> Result<(), Fault> {
    check_size(asked.new_size)?;
    let disk = Disk::get(session, &asked.disk_cid).await?;
    disk.must_be_detached(session).await?;
    grow(session, &disk, asked.new_size).await
}

pub(crate) async fn grow(session: &Session, disk: &Disk, new_size: MiB) -> Result<(), Fault> {
    if growth(disk, new_size)? == MiB(0) {
        return Ok(());
    }
    let change = json!({"config": {"size": format!("{}MiB", new_size.0)}});
    let doing = format!("make the disk '{}' {new_size} large", disk.name);
    session.client.patch_volume(&disk.name.pool, &disk.volume, &change, &doing).await?;
    let grown = Disk::named(session, disk.name.clone()).await?;
    match grown.as_ref().map(Disk::size).transpose()? {
        Some(size) if size == new_size => Ok(()),
        size => Err(Fault::cloud(format!(
            "the disk '{}' should have {new_size} and has {}; try again",
            disk.name,
            size.map_or("vanished".to_owned(), |size| size.to_string())
        ))),
    }
}
