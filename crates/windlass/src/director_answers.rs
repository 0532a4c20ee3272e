//! What the director answers. Only what we show is read; `null` stands for "unknown" nearly everywhere.

mod instance;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub(crate) use instance::*;

#[derive(Debug, Deserialize)]
pub(crate) struct Info {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) uuid: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcell_version: String,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Feature>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Feature {
    pub(crate) status: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) description: String,
    pub(crate) started_at: Option<i64>,
    pub(crate) timestamp: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) result: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment: String,
}

impl Task {
    /// Whether it has yet to end.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "processing" | "cancelling")
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Needed {
    pub(crate) needed: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Stemcell {
    pub(crate) name: String,
    pub(crate) version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) operating_system: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cid: String,
    #[serde(default)]
    pub(crate) deployments: Vec<Value>,
    #[serde(default)]
    pub(crate) api_version: Option<u32>,
}

/// A line, and whether it was `added` or `removed`.
#[derive(Debug, Deserialize)]
pub(crate) struct DiffLine(pub(crate) String, pub(crate) Option<String>);

#[derive(Debug, Deserialize)]
pub(crate) struct Diff {
    #[serde(default)]
    pub(crate) diff: Vec<DiffLine>,
    /// Pins the configs that the difference was made with.
    pub(crate) context: Option<Value>,
    pub(crate) error: Option<String>,
    /// What a config was compared with.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) from: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CloudConfig {
    pub(crate) properties: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) team: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) created_at: String,
    #[serde(default)]
    pub(crate) current: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) content: String,
}

/// Another change of a config came first.
#[derive(Debug, Deserialize)]
pub(crate) struct ConfigConflict {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) latest_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) expected_latest_id: String,
}

/// A config that a deployment uses.
#[derive(Debug, Deserialize)]
pub(crate) struct DeploymentConfig {
    pub(crate) config: UsedConfig,
}

#[derive(Debug, Deserialize)]
pub(crate) struct UsedConfig {
    pub(crate) id: u64,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Certificate {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) certificate_path: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) expiry: String,
    #[serde(default)]
    pub(crate) days_left: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Release {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) release_versions: Vec<ReleaseVersion>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ReleaseVersion {
    pub(crate) version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) commit_hash: String,
    #[serde(default)]
    pub(crate) uncommitted_changes: bool,
    #[serde(default)]
    pub(crate) currently_deployed: bool,
}

/// Something that only has a name.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Variable {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) id: String,
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Snapshot {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) job: String,
    #[serde(default)]
    pub(crate) index: Option<u64>,
    pub(crate) snapshot_cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) created_at: String,
    #[serde(default)]
    pub(crate) clean: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OrphanedVm {
    pub(crate) cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) ip_addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Network {
    pub(crate) name: String,
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) created_at: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RecordedEvent {
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) parent_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) timestamp: i64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) action: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) object_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) object_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) task: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) error: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) context: BTreeMap<String, Value>,
}

/// Something that is wrong with a deployment.
#[derive(Debug, Deserialize)]
pub(crate) struct CloudProblem {
    pub(crate) id: u64,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) description: String,
    /// Empty of directors older than recovery plans.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance_group: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) resolutions: Vec<Resolution>,
}

/// A way to repair it.
#[derive(Debug, Deserialize)]
pub(crate) struct Resolution {
    pub(crate) name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) plan: String,
}

/// What a clean-up would remove.
#[derive(Debug, Deserialize)]
pub(crate) struct CleanUpPlan {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) releases: Vec<CleanableRelease>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcells: Vec<Versioned>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) compiled_packages: Vec<CompiledPackage>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) exported_releases: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) dns_blobs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) unreferenced_blobs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) orphaned_disks: Vec<OrphanedDisk>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) orphaned_vms: Vec<OrphanedVm>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CleanableRelease {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) versions: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct CompiledPackage {
    #[serde(alias = "package_name")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) stemcell_version: String,
}

/// An instance that lets a user in. A VM may have written it: how one comes there is not its to say.
#[derive(Debug, Deserialize)]
pub(crate) struct SshHost {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) ip: Option<String>,
    #[serde(default)]
    pub(crate) host_public_key: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) job: String,
}

/// Files of jobs that a deploy would change.
#[derive(Debug, Deserialize)]
pub(crate) struct ChangedFiles {
    pub(crate) files: Vec<ChangedFile>,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ChangedFile {
    pub(crate) instances: Vec<String>,
    pub(crate) job: String,
    pub(crate) file: String,
    pub(crate) change: String,
    pub(crate) lines: Vec<ChangedLine>,
    pub(crate) more: usize,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ChangedLine {
    pub(crate) number: usize,
    pub(crate) change: char,
    pub(crate) text: String,
}

/// What a deploy would do, in words.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    pub(crate) text: String,
    /// As data; directors of earlier versions may have another form of it.
    pub(crate) plan: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Deployment {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) releases: Vec<Versioned>,
    #[serde(default)]
    pub(crate) stemcells: Vec<Versioned>,
    #[serde(default)]
    pub(crate) teams: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Versioned {
    pub(crate) name: String,
    pub(crate) version: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) manifest: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OrphanedDisk {
    pub(crate) disk_cid: String,
    pub(crate) size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Disk {
    pub(crate) disk_cid: String,
    pub(crate) size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) deployment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) vm_cid: String,
    #[serde(default)]
    pub(crate) mounted: bool,
    /// Where the agent finds it, in the words of the CPI.
    #[serde(default)]
    pub(crate) hint: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Lock {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) resource: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) task_id: String,
    /// Seconds since 1970, as text.
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) timeout: String,
}

/// Everything in the clouds that the director knows, by kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Known {
    vms: BTreeSet<String>,
    disks: BTreeSet<String>,
    stemcells: BTreeSet<String>,
    snapshots: BTreeSet<String>,
}

impl Known {
    /// Whether it is on record; of kinds that directors keep no record of, everything is.
    pub(crate) fn has(&self, kind: &str, cid: &str) -> bool {
        match kind {
            "vm" => self.vms.contains(cid),
            "disk" => self.disks.contains(cid),
            "stemcell" => self.stemcells.contains(cid),
            "snapshot" => self.snapshots.contains(cid),
            _ => true,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Leak {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) request_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) method: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) subject: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) why: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
