//! Disks, VMs and snapshots; what nobody uses, and what nobody owns.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Stemcell;
use crate::MiB;
use crate::null::or_default;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrphanedDisk {
    pub disk_cid: String,
    pub size: MiB,
    #[serde(default, with = "crate::null::text")]
    pub az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub instance_name: String,
    #[serde(default)]
    pub cloud_properties: Value,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrphanedVm {
    #[serde(default, with = "crate::null::text")]
    pub az: String,
    pub cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub instance_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ip_addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_at: String,
}

/// A disk of an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Disk {
    pub disk_cid: String,
    pub size: MiB,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment: String,
    #[serde(default, with = "crate::null::text")]
    pub instance: String,
    #[serde(default, with = "crate::null::text")]
    pub vm_cid: String,
    #[serde(default)]
    pub active: bool,
    #[serde(default)]
    pub mounted: bool,
    /// Where the agent finds it, in the words of the CPI.
    #[serde(default)]
    pub hint: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    #[serde(default, deserialize_with = "or_default")]
    pub job: String,
    #[serde(default)]
    pub index: Option<i64>,
    /// Of the instance.
    #[serde(default, deserialize_with = "or_default")]
    pub uuid: String,
    pub snapshot_cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(default)]
    pub clean: bool,
}

/// A managed network; only BOSH has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Network {
    pub name: String,
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_at: String,
}

/// What a clean-up would remove.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CleanUpPlan {
    #[serde(default, deserialize_with = "or_default")]
    pub unreferenced_blobs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub releases: Vec<CleanableRelease>,
    #[serde(default, deserialize_with = "or_default")]
    pub compiled_packages: Vec<CompiledPackage>,
    #[serde(default, deserialize_with = "or_default")]
    pub exported_releases: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub dns_blobs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcells: Vec<Stemcell>,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_vms: Vec<OrphanedVm>,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_disks: Vec<OrphanedDisk>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CleanableRelease {
    pub name: String,
    #[serde(default)]
    pub versions: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompiledPackage {
    #[serde(rename = "package_name", alias = "name")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_version: String,
}

/// Everything in the clouds that the director knows, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Of instances, and those that others took the places of.
    pub vms: BTreeSet<String>,
    /// Of instances, and orphaned ones.
    pub disks: BTreeSet<String>,
    pub stemcells: BTreeSet<String>,
    pub snapshots: BTreeSet<String>,
}

impl Known {
    /// Whether it is on record; of kinds that directors keep no record of, everything is.
    pub fn has(&self, kind: &str, cid: &str) -> bool {
        match kind {
            "vm" => self.vms.contains(cid),
            "disk" => self.disks.contains(cid),
            "stemcell" => self.stemcells.contains(cid),
            "snapshot" => self.snapshots.contains(cid),
            _ => true,
        }
    }
}

/// A change of which nobody knows whether it happened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Leak {
    #[serde(default, deserialize_with = "or_default")]
    pub request_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub method: String,
    #[serde(default, deserialize_with = "or_default")]
    pub subject: String,
    #[serde(default, with = "crate::null::text")]
    pub why: String,
}
