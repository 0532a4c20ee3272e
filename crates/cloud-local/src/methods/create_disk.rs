//! `create_disk`: an empty folder that belongs to no VM. Its size is noted, not enforced.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::CreateDisk;
use windlass_contract::{DiskCid, MiB, Object};
use windlass_cpi::Call;
use windlass_durable::file;

use crate::cloud::LocalCloud;
use crate::state::DiskRecord;

/// 64 TiB; more is a mistake in units.
const LARGEST: MiB = MiB(64 * 1024 * 1024);

pub(crate) fn run(cloud: &LocalCloud, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
    if disk.size == MiB(0) || disk.size > LARGEST {
        let size = disk.size;
        return Err(CpiError::cloud(format!("a disk of {size} cannot be made; sizes are from 1 MiB to {LARGEST}")));
    }
    let cid = DiskCid::new(cloud.disks.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.disks.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let record = DiskRecord {
        cid: cid.clone(),
        size_mib: disk.size.0,
        cloud_properties: disk.cloud_properties,
        metadata: Object::new(),
        attached_to: None,
    };
    cloud.disks.make(cid.as_str(), &record, |folder| {
        let data = folder.join("data");
        file::create_private_dir(&data)
            .map_err(|error| CpiError::cloud(format!("cannot make {}: {error}", data.display())))
    })?;
    Ok(cid)
}
