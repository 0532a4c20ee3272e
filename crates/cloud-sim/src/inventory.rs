//! What there is in the cloud, for people and tests.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use windlass_contract::VmCid;
use windlass_contract::cpi::CpiError;

use crate::cloud::SimCloud;
use crate::config::{self, SimConfig};
use crate::records::{DiskRecord, NetworkRecord, SnapshotRecord, StemcellRecord, USER_DATA, VmRecord};

/// Everything that there is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inventory {
    pub stemcells: Vec<StemcellRecord>,
    pub vms: Vec<VmRecord>,
    /// Disks; one that is attached to a VM which is gone is not attached.
    pub disks: Vec<DiskRecord>,
    pub snapshots: Vec<SnapshotRecord>,
    pub networks: Vec<NetworkRecord>,
}

/// Everything that there is in the cloud with the configuration at `config`, or without one.
pub fn status(config: Option<&Path>) -> Result<Inventory, CpiError> {
    let cloud = open(config)?;
    let mut disks = cloud.disks.all()?;
    for disk in &mut disks {
        disk.attached_to = cloud.holder(disk)?;
    }
    Ok(Inventory {
        stemcells: cloud.stemcells.all()?,
        vms: cloud.vms.all()?,
        disks,
        snapshots: cloud.snapshots.all()?,
        networks: cloud.networks.all()?,
    })
}

/// The document that a VM was given to boot with. It holds secrets.
pub fn settings(config: Option<&Path>, vm: &VmCid) -> Result<Value, CpiError> {
    let cloud = open(config)?;
    let folder = cloud.vms.path(vm.as_str()).filter(|folder| folder.is_dir());
    let path = folder.ok_or_else(|| CpiError::vm_not_found(vm))?.join(USER_DATA);
    let bytes =
        std::fs::read(&path).map_err(|error| CpiError::cloud(format!("cannot read {}: {error}", path.display())))?;
    serde_json::from_slice(&bytes).map_err(|error| CpiError::cloud(format!("{} is not JSON: {error}", path.display())))
}

/// Switches a VM off, as if it had crashed: its agent is gone until `reboot_vm`.
pub fn kill(config: Option<&Path>, vm: &VmCid) -> Result<(), CpiError> {
    let cloud = open(config)?;
    let Some((_lock, mut record)) = cloud.vms.lock_existing(vm.as_str())? else {
        return Err(CpiError::vm_not_found(vm));
    };
    cloud.switch_off(&mut record)
}

/// The folder in which the cloud with the configuration at `config`, or without one, keeps everything.
pub fn state_dir(config: Option<&Path>) -> Result<PathBuf, CpiError> {
    config::load(config)?.plugin::<SimConfig>()?.state_dir()
}

fn open(config: Option<&Path>) -> Result<SimCloud, CpiError> {
    SimCloud::new(config::load(config)?.plugin()?)
}
