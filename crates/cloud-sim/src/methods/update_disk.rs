//! `update_disk`: another size and other properties, in place or as another disk with the same content.
//!
//! A replacement is named after the call's id, so a repeated call finds it; the old disk goes only when the new one is
//! there.

use windlass_contract::cpi::methods::UpdateDisk;
use windlass_contract::cpi::{CpiError, UpdatedDisk};
use windlass_contract::{DiskCid, MiB};
use windlass_cpi::Call;

use super::create_disk::check_size;
use super::resize_disk::growth;
use crate::cloud::{SimCloud, write_content};
use crate::config::UpdateMode;
use crate::records::{CONTENT, DiskRecord};

pub(crate) fn run(cloud: &SimCloud, call: &Call, disk: UpdateDisk) -> Result<UpdatedDisk, CpiError> {
    let UpdateDisk { disk_cid: cid, new_size, cloud_properties } = disk;
    check_size(new_size)?;
    let new_cid = DiskCid::new(cloud.disks.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    let is_replaced = cloud.disks.read(new_cid.as_str())?.is_some();
    // To remove: an interrupted call may have left a part of the old disk.
    let Some((_lock, mut record)) = cloud.disks.lock_to_remove(cid.as_str())? else {
        return if is_replaced {
            Ok(UpdatedDisk { replaced_by: Some(new_cid) })
        } else {
            Err(CpiError::disk_not_found(&cid))
        };
    };
    cloud.must_be_detached(&record)?;
    let growth = growth(&record, new_size)?;
    if growth == MiB(0) && record.cloud_properties == cloud_properties {
        return Ok(UpdatedDisk { replaced_by: None });
    }
    if cloud.config.update_disk == UpdateMode::InPlace {
        let _room = cloud.room_on_disks(growth)?;
        record.size_mib = new_size.0;
        record.cloud_properties = cloud_properties;
        cloud.faults.half_way();
        cloud.disks.write(cid.as_str(), &record)?;
        return Ok(UpdatedDisk { replaced_by: None });
    }
    if !is_replaced {
        // Both are there for a moment.
        let _room = cloud.room_on_disks(new_size)?;
        let content = cloud.disks.path(cid.as_str()).map(|folder| folder.join(CONTENT));
        let new = DiskRecord { cid: new_cid.clone(), size_mib: new_size.0, cloud_properties, ..record };
        cloud.disks.make(new_cid.as_str(), &new, |folder| write_content(content.as_deref(), &folder.join(CONTENT)))?;
    }
    cloud.faults.half_way();
    cloud.disks.remove(cid.as_str())?;
    Ok(UpdatedDisk { replaced_by: Some(new_cid) })
}
