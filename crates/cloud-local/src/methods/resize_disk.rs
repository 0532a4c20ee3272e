//! `resize_disk`: makes a disk larger, with its data.

use windlass_contract::cpi::methods::ResizeDisk;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::{DiskCid, MiB};

use super::create_disk::LARGEST;
use crate::cloud::LocalCloud;
use crate::disks::LockedDisk;

pub(crate) fn run(cloud: &LocalCloud, asked: ResizeDisk) -> Result<(), CpiError> {
    let ResizeDisk { disk_cid, new_size } = asked;
    let Some(mut disk) = LockedDisk::lock(cloud, &disk_cid)? else {
        return Err(CpiError::disk_not_found(&disk_cid));
    };
    grow(&mut disk, &disk_cid, new_size)
}

/// The same size is a success; a smaller one is left to the caller, who can copy to a new disk.
pub(super) fn grow(disk: &mut LockedDisk<'_>, cid: &DiskCid, size: MiB) -> Result<(), CpiError> {
    let current = MiB(disk.record.size_mib);
    if size > LARGEST {
        return Err(CpiError::cloud(format!("the disk '{cid}' cannot have {size}; the largest has {LARGEST}")));
    }
    if size < current {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            format!("the disk '{cid}' has {current} and cannot shrink to {size}"),
        ));
    }
    if size > current {
        disk.grow(size.0)?;
    }
    Ok(())
}
