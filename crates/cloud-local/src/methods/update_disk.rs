//! `update_disk`: another size and other properties, in place.

use windlass_contract::cpi::methods::UpdateDisk;
use windlass_contract::cpi::{CpiError, UpdatedDisk};

use super::resize_disk::grow;
use crate::cloud::LocalCloud;
use crate::disks::LockedDisk;

pub(crate) fn run(cloud: &LocalCloud, asked: UpdateDisk) -> Result<UpdatedDisk, CpiError> {
    let UpdateDisk { disk_cid, new_size, cloud_properties } = asked;
    let Some(mut disk) = LockedDisk::lock(cloud, &disk_cid)? else {
        return Err(CpiError::disk_not_found(&disk_cid));
    };
    grow(&mut disk, &disk_cid, new_size)?;
    if disk.record.cloud_properties != cloud_properties {
        disk.record.cloud_properties = cloud_properties;
        disk.save()?;
    }
    Ok(UpdatedDisk { replaced_by: None })
}
