//! What the director answers. Only what we show is read; `null` stands for "unknown" nearly everywhere.

mod instance;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use instance::*;

#[derive(Debug, Deserialize)]
pub struct Info {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub uuid: String,
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_version: String,
    #[serde(default)]
    pub features: BTreeMap<String, Feature>,
}

#[derive(Debug, Deserialize)]
pub struct Feature {
    pub status: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Task {
    pub id: u64,
    pub state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    pub started_at: Option<i64>,
    pub timestamp: Option<i64>,
    #[serde(default, deserialize_with = "or_default")]
    pub result: String,
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment: String,
}

impl Task {
    /// Whether it has yet to end.
    pub fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "processing" | "cancelling")
    }
}

#[derive(Debug, Deserialize)]
pub struct Needed {
    pub needed: bool,
}

#[derive(Debug, Deserialize)]
pub struct Stemcell {
    pub name: String,
    pub version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_system: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cid: String,
    #[serde(default)]
    pub deployments: Vec<Value>,
    #[serde(default)]
    pub api_version: Option<u32>,
}

/// A line, and whether it was `added` or `removed`.
#[derive(Debug, Deserialize)]
pub struct DiffLine(pub String, pub Option<String>);

#[derive(Debug, Deserialize)]
pub struct Diff {
    #[serde(default)]
    pub diff: Vec<DiffLine>,
    /// Pins the configs that the difference was made with.
    pub context: Option<Value>,
    pub error: Option<String>,
    /// What a config was compared with.
    #[serde(default, deserialize_with = "or_default")]
    pub from: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub struct CloudConfig {
    pub properties: String,
}

#[derive(Debug, Deserialize)]
pub struct Config {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub team: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(default)]
    pub current: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub content: String,
}

/// Another change of a config came first.
#[derive(Debug, Deserialize)]
pub struct ConfigConflict {
    #[serde(default, deserialize_with = "or_default")]
    pub latest_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub expected_latest_id: String,
}

/// A config that a deployment uses.
#[derive(Debug, Deserialize)]
pub struct DeploymentConfig {
    pub config: UsedConfig,
}

#[derive(Debug, Deserialize)]
pub struct UsedConfig {
    pub id: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct Certificate {
    #[serde(default, deserialize_with = "or_default")]
    pub certificate_path: String,
    #[serde(default, deserialize_with = "or_default")]
    pub expiry: String,
    #[serde(default)]
    pub days_left: i64,
}

#[derive(Debug, Deserialize)]
pub struct Release {
    pub name: String,
    #[serde(default)]
    pub release_versions: Vec<ReleaseVersion>,
}

#[derive(Debug, Deserialize)]
pub struct ReleaseVersion {
    pub version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub commit_hash: String,
    #[serde(default)]
    pub uncommitted_changes: bool,
    #[serde(default)]
    pub currently_deployed: bool,
}

/// Something that only has a name.
#[derive(Debug, Deserialize)]
pub struct Named {
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct Variable {
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    pub name: String,
}

#[derive(Debug, Deserialize)]
pub struct Snapshot {
    #[serde(default, deserialize_with = "or_default")]
    pub job: String,
    #[serde(default)]
    pub index: Option<u64>,
    pub snapshot_cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(default)]
    pub clean: bool,
}

#[derive(Debug, Deserialize)]
pub struct OrphanedVm {
    pub cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub instance_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub ip_addresses: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub struct Network {
    pub name: String,
    #[serde(default, rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub struct RecordedEvent {
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub parent_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub timestamp: i64,
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub action: String,
    #[serde(default, deserialize_with = "or_default")]
    pub object_type: String,
    #[serde(default, deserialize_with = "or_default")]
    pub object_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub task: String,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub error: String,
    #[serde(default, deserialize_with = "or_default")]
    pub context: BTreeMap<String, Value>,
}

/// Something that is wrong with a deployment.
#[derive(Debug, Deserialize)]
pub struct CloudProblem {
    pub id: u64,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Empty of directors older than recovery plans.
    #[serde(default, deserialize_with = "or_default")]
    pub instance_group: String,
    #[serde(default, deserialize_with = "or_default")]
    pub resolutions: Vec<Resolution>,
}

/// A way to repair it.
#[derive(Debug, Deserialize)]
pub struct Resolution {
    pub name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub plan: String,
}

/// What a clean-up would remove.
#[derive(Debug, Deserialize)]
pub struct CleanUpPlan {
    #[serde(default, deserialize_with = "or_default")]
    pub releases: Vec<CleanableRelease>,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcells: Vec<Versioned>,
    #[serde(default, deserialize_with = "or_default")]
    pub compiled_packages: Vec<CompiledPackage>,
    #[serde(default, deserialize_with = "or_default")]
    pub exported_releases: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub dns_blobs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub unreferenced_blobs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_disks: Vec<OrphanedDisk>,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_vms: Vec<OrphanedVm>,
}

#[derive(Debug, Deserialize)]
pub struct CleanableRelease {
    pub name: String,
    #[serde(default)]
    pub versions: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct CompiledPackage {
    #[serde(alias = "package_name")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_version: String,
}

/// An instance that lets a user in. A VM may have written it: how one comes there is not its to say.
#[derive(Debug, Deserialize)]
pub struct SshHost {
    #[serde(default, deserialize_with = "or_default")]
    pub status: String,
    #[serde(default)]
    pub ip: Option<String>,
    #[serde(default)]
    pub host_public_key: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub job: String,
}

/// Files of jobs that a deploy would change.
#[derive(Debug, Deserialize)]
pub struct ChangedFiles {
    pub files: Vec<ChangedFile>,
    pub notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct ChangedFile {
    pub instances: Vec<String>,
    pub job: String,
    pub file: String,
    pub change: String,
    pub lines: Vec<ChangedLine>,
    pub more: usize,
}

#[derive(Debug, Deserialize)]
pub struct ChangedLine {
    pub number: usize,
    pub change: char,
    pub text: String,
}

/// What a deploy would do, in words.
#[derive(Debug, Deserialize)]
pub struct Plan {
    pub text: String,
    /// As data; directors of earlier versions may have another form of it.
    pub plan: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub struct Deployment {
    pub name: String,
    #[serde(default)]
    pub releases: Vec<Versioned>,
    #[serde(default)]
    pub stemcells: Vec<Versioned>,
    #[serde(default)]
    pub teams: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub struct Versioned {
    pub name: String,
    pub version: String,
}

#[derive(Debug, Deserialize)]
pub struct Manifest {
    pub manifest: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct OrphanedDisk {
    pub disk_cid: String,
    pub size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub az: String,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub instance_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub orphaned_at: String,
}

#[derive(Debug, Deserialize)]
pub struct Disk {
    pub disk_cid: String,
    pub size: u64,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub vm_cid: String,
    #[serde(default)]
    pub mounted: bool,
    /// Where the agent finds it, in the words of the CPI.
    #[serde(default)]
    pub hint: Value,
}

#[derive(Debug, Deserialize)]
pub struct Lock {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub resource: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub task_id: String,
    /// Seconds since 1970, as text.
    #[serde(default, deserialize_with = "or_default")]
    pub timeout: String,
}

/// Everything in the clouds that the director knows, by kind.
#[derive(Debug, Deserialize)]
pub struct Known {
    vms: BTreeSet<String>,
    disks: BTreeSet<String>,
    stemcells: BTreeSet<String>,
    snapshots: BTreeSet<String>,
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

#[derive(Debug, Deserialize)]
pub struct Leak {
    #[serde(default, deserialize_with = "or_default")]
    pub request_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub method: String,
    #[serde(default, deserialize_with = "or_default")]
    pub subject: String,
    #[serde(default, deserialize_with = "or_default")]
    pub why: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
