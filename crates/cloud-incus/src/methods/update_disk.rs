//! `update_disk`: a larger size in place; another pool as another disk with the same content.

use windlass_contract::cpi::methods::UpdateDisk;
use windlass_contract::cpi::{CpiError, ErrorType, UpdatedDisk};
use windlass_cpi::Call;

use super::create_disk::pool_of_disks;
use super::resize_disk::grow;
use crate::disks::{Disk, check_size, growth};
use crate::fault::Fault;
use crate::moving;
use crate::names::DiskName;
use crate::properties::DiskProperties;
use crate::session::Session;

pub(crate) async fn run(session: &Session, call: &Call, asked: &UpdateDisk) -> Result<UpdatedDisk, Fault> {
    check_size(asked.new_size)?;
    let properties = DiskProperties::of(&asked.cloud_properties)?;
    let pool = session.disk_pool(properties.pool.as_ref())?;
    let new = DiskName::new(&pool, call.id);
    let Some(disk) = Disk::find(session, &asked.disk_cid).await? else {
        // An interrupted call may have replaced it.
        return match Disk::named(session, new).await? {
            Some(replacement) => Ok(UpdatedDisk { replaced_by: Some(replacement.name.cid()?) }),
            None => Err(CpiError::disk_not_found(&asked.disk_cid).into()),
        };
    };
    disk.must_be_detached(session).await?;
    growth(&disk, asked.new_size)?;
    if !properties.config.is_empty() {
        let words = "the other properties of a disk ('config') cannot be changed; copy its content to a new disk";
        return Err(CpiError::new(ErrorType::NotSupported, words).into());
    }
    if pool == disk.name.pool {
        grow(session, &disk, asked.new_size).await?;
        return Ok(UpdatedDisk { replaced_by: None });
    }
    pool_of_disks(session, &pool).await?;
    if !session.client.snapshots(&disk.name.pool, &disk.volume).await?.is_empty() {
        let words = format!(
            "the disk '{}' has snapshots, which would go with it when it moves to the pool '{pool}'; delete them first, or \
             copy its content to a new disk",
            disk.name
        );
        return Err(CpiError::new(ErrorType::NotSupported, words).into());
    }
    grow(session, &disk, asked.new_size).await?;
    // As it is after it grew.
    let disk = Disk::get(session, &asked.disk_cid).await?;
    moving::to_pool(session, &disk, &new).await?;
    Ok(UpdatedDisk { replaced_by: Some(new.cid()?) })
}
