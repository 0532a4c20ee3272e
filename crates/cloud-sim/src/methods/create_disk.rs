//! `create_disk`: an empty content that belongs to no VM.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CreateDisk;
use windlass_contract::{DiskCid, MiB, Object};
use windlass_cpi::Call;

use crate::cloud::{SimCloud, write_content};
use crate::records::{CONTENT, DiskRecord};

/// 64 TiB; more is a mistake in units.
pub(crate) const LARGEST: MiB = MiB(64 * 1024 * 1024);

pub(crate) fn run(cloud: &SimCloud, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
    check_size(disk.size)?;
    let cid = DiskCid::new(cloud.disks.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.disks.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let _room = cloud.room_on_disks(disk.size)?;
    let record = DiskRecord {
        cid: cid.clone(),
        size_mib: disk.size.0,
        cloud_properties: disk.cloud_properties,
        metadata: Object::new(),
        attached_to: None,
    };
    cloud.disks.make(cid.as_str(), &record, |folder| {
        write_content(None, &folder.join(CONTENT))?;
        cloud.faults.half_way();
        Ok(())
    })?;
    Ok(cid)
}

/// Refuses sizes that no disk can have.
pub(crate) fn check_size(size: MiB) -> Result<(), CpiError> {
    if size == MiB(0) || size > LARGEST {
        return Err(CpiError::cloud(format!("a disk cannot have {size}; sizes are from 1 MiB to {LARGEST}")));
    }
    Ok(())
}
