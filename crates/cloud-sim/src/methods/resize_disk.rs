//! `resize_disk`: makes a detached disk larger, never smaller.

use windlass_contract::MiB;
use windlass_contract::cpi::methods::ResizeDisk;
use windlass_contract::cpi::{CpiError, ErrorType};

use super::create_disk::check_size;
use crate::cloud::SimCloud;
use crate::config::ResizeMode;
use crate::records::DiskRecord;

pub(crate) fn run(cloud: &SimCloud, disk: ResizeDisk) -> Result<(), CpiError> {
    let cid = disk.disk_cid;
    check_size(disk.new_size)?;
    let Some((_lock, mut record)) = cloud.disks.lock_existing(cid.as_str())? else {
        return Err(CpiError::disk_not_found(&cid));
    };
    cloud.must_be_detached(&record)?;
    let growth = growth(&record, disk.new_size)?;
    match cloud.config.resize_disk {
        ResizeMode::NotSupported => {
            return Err(CpiError::new(
                ErrorType::NotSupported,
                "this cloud's disks have the size that they were made with",
            ));
        }
        ResizeMode::Real if growth > MiB(0) => {}
        ResizeMode::Real | ResizeMode::Pretended => return Ok(()),
    }
    let _room = cloud.room_on_disks(growth)?;
    record.size_mib = disk.new_size.0;
    cloud.faults.half_way();
    Ok(cloud.disks.write(cid.as_str(), &record)?)
}

/// How much larger a disk is to become. Callers copy to a new disk when it is to become smaller.
pub(crate) fn growth(disk: &DiskRecord, new_size: MiB) -> Result<MiB, CpiError> {
    new_size.0.checked_sub(disk.size_mib).map(MiB).ok_or_else(|| {
        let (cid, size) = (&disk.cid, MiB(disk.size_mib));
        CpiError::new(
            ErrorType::NotSupported,
            format!("the disk '{cid}' has {size} and cannot shrink to {new_size}; copy its content to a new disk"),
        )
    })
}
