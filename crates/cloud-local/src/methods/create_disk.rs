//! `create_disk`: a disk that belongs to no VM: blank, or with what a snapshot has (`cloud_properties.snapshot_cid`).

use std::path::PathBuf;

use serde_json::Value;
use windlass_contract::cpi::methods::CreateDisk;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::{DiskCid, MiB, Object, SnapshotCid, VmCid};
use windlass_cpi::Call;
use windlass_durable::lock::FileLock;

use crate::cloud::LocalCloud;
use crate::disks::locked::fill_new;
use crate::state::{DiskForm, DiskRecord};

/// 64 TiB; more is a mistake in units.
pub(crate) const LARGEST: MiB = MiB(64 * 1024 * 1024);

pub(crate) fn run(cloud: &LocalCloud, call: &Call, disk: CreateDisk) -> Result<DiskCid, CpiError> {
    if disk.size == MiB(0) || disk.size > LARGEST {
        let size = disk.size;
        return Err(CpiError::cloud(format!("a disk of {size} cannot be made; sizes are from 1 MiB to {LARGEST}")));
    }
    let cid = DiskCid::new(cloud.disks.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if cloud.disks.read(cid.as_str())?.is_some() {
        return Ok(cid);
    }
    let form = form(cloud, disk.vm_cid.as_ref())?;
    let source = source(cloud, &disk, form)?;
    let record = DiskRecord {
        cid: cid.clone(),
        size_mib: disk.size.0,
        form,
        cloud_properties: disk.cloud_properties,
        metadata: Object::new(),
        attached_to: None,
    };
    cloud.disks.make(cid.as_str(), &record, |folder| {
        let from = source.as_ref().map(|(_, from)| from.as_path());
        Ok(fill_new(form, &folder.join(form.file()), record.size_mib, from)?)
    })?;
    Ok(cid)
}

/// What fits the VM that the disk is likely for, or else VMs that are made now.
fn form(cloud: &LocalCloud, vm: Option<&VmCid>) -> Result<DiskForm, CpiError> {
    let vm = vm.map(|vm| cloud.vms.read(vm.as_str())).transpose()?.flatten();
    let isolation = vm.map_or_else(|| cloud.isolation(), |vm| Ok(vm.isolation))?;
    Ok(DiskForm::fitting(isolation))
}

/// The data of the snapshot to start from, locked so that it stays until it is copied.
fn source(cloud: &LocalCloud, disk: &CreateDisk, form: DiskForm) -> Result<Option<(FileLock, PathBuf)>, CpiError> {
    let Some(asked) = disk.cloud_properties.get("snapshot_cid") else { return Ok(None) };
    let cid = match asked {
        Value::String(cid) => SnapshotCid::new(cid.clone()).map_err(|error| CpiError::cloud(error.to_string()))?,
        other => return Err(CpiError::cloud(format!("'snapshot_cid' names a snapshot, and {other} is no name"))),
    };
    let (Some(folder), Some((lock, snapshot))) =
        (cloud.snapshots.path(cid.as_str()), cloud.snapshots.lock_existing(cid.as_str())?)
    else {
        return Err(CpiError::cloud(format!("there is no snapshot '{cid}' to make a disk from")));
    };
    if snapshot.form != form {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            format!("the snapshot '{cid}' is of the form '{}', and disks are now of the form '{form}'", snapshot.form),
        ));
    }
    if disk.size < MiB(snapshot.size_mib) {
        return Err(CpiError::cloud(format!(
            "the snapshot '{cid}' does not fit on a disk of {}; ask for at least {}",
            disk.size,
            MiB(snapshot.size_mib)
        )));
    }
    Ok(Some((lock, folder.join(form.file()))))
}
