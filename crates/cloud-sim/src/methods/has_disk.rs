//! `has_disk`: whether a disk exists.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::HasDisk;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, disk: HasDisk) -> Result<bool, CpiError> {
    Ok(cloud.disks.read(disk.disk_cid.as_str())?.is_some())
}
