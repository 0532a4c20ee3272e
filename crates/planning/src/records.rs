//! What is, as a director or a state file knows it: plain types without a way to a database.

use serde::{Deserialize, Serialize};
use windlass_contract::{
    AgentId, ApiVersion, DiskCid, DiskHint, MiB, Networks, Object, Secret, SnapshotCid, StemcellCid, VmCid,
};

use crate::names::{CpiName, DeploymentName, DiskName, InstanceId, InstanceName};
pub use crate::software::CompilationKey;
use crate::spec::InstanceSpec;
pub use crate::spec::StemcellOfVm;

/// An instance of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceRecord {
    pub id: InstanceId,
    pub deployment: DeploymentName,
    pub group: String,
    /// Counted from 0; the lowest free number is used first.
    pub index: i64,
    /// Its availability zone.
    pub az: Option<String>,
    /// Exactly one instance of a group is the first to be updated.
    pub bootstrap: bool,
    /// What the operator wants.
    pub state: InstanceState,
    /// What it was last brought to, or is to be brought to.
    pub spec: Option<InstanceSpec>,
    /// What it was last brought to, where that is not `spec`: a deploy has not reached it yet, or failed before it did.
    pub applied: Option<InstanceSpec>,
    /// Whether it got there.
    pub converged: bool,
    /// Whether the operator wants it to be left alone; changed by `Store::set_ignored` only.
    pub ignored: bool,
}

impl InstanceRecord {
    pub fn name(&self) -> InstanceName {
        InstanceName::of(&self.group, &self.id)
    }

    /// What it was last brought to, by which everything goes that is no deploy; one that never was is brought to its spec.
    pub fn applied_spec(&self) -> Option<&InstanceSpec> {
        self.applied.as_ref().or(self.spec.as_ref())
    }
}

/// What the operator wants of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    #[default]
    Started,
    /// It has a VM on which nothing runs.
    Stopped,
    /// It has no VM; its disks and addresses are kept.
    Detached,
}

impl InstanceState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Detached => "detached",
        }
    }
}

/// A VM as the director knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmRecord {
    pub cid: VmCid,
    pub agent_id: AgentId,
    /// The instance that it belongs to.
    pub instance: InstanceId,
    /// The CPI that made it.
    pub cpi: CpiName,
    /// What it was made from.
    pub stemcell: StemcellOfVm,
    /// As the cloud answered, or as planned where it answered nothing.
    pub networks: Networks,
    /// As sent.
    pub cloud_properties: Object,
    /// As the manifest asked for it, without what the director added.
    pub wanted_env: Object,
    /// Stands for the values of variables in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_values: Option<String>,
    /// Credentials of the agent.
    pub mbus_user: String,
    /// Credentials of the agent.
    pub mbus_password: Secret,
    /// Unix seconds.
    pub created_at: i64,
    /// Whether the agent answered and knows who it is.
    pub ready: bool,
    /// Whether it stands beside the instance's VM, to take its place.
    #[serde(default)]
    pub spare: bool,
    /// What the CPI told of its disks when it made it; only CPIs of early documents do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Object>,
    /// What the agent shows and trusts; none where that is not ours to decide, or was not noted yet.
    #[serde(default)]
    pub certificate: Option<AgentCertificate>,
}

/// The certificate of an agent, and whom it trusts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCertificate {
    /// Unix seconds.
    pub issued_at: i64,
    /// Unix seconds.
    pub expires_at: i64,
    /// What stands for all CAs that the agent takes directors' certificates from.
    pub trusts: String,
}

/// A persistent disk as the director knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRecord {
    pub cid: DiskCid,
    /// The instance that it belongs to.
    pub instance: InstanceId,
    #[serde(default)]
    pub name: DiskName,
    /// The CPI that made it.
    pub cpi: CpiName,
    pub size: MiB,
    /// As sent.
    pub cloud_properties: Object,
    /// Whether it is the instance's disk, rather than one that was not mounted yet or is being replaced.
    pub active: bool,
    /// The VM that it is attached to.
    pub vm: Option<VmCid>,
    /// Whether that VM's agent mounted it.
    pub mounted: bool,
    /// Where that VM finds it. Shown to people; never used in place of calling `attach_disk`.
    pub hint: Option<DiskHint>,
}

/// A snapshot of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub cid: SnapshotCid,
    pub disk: DiskCid,
    /// The CPI that has both.
    pub cpi: CpiName,
    /// Whether nothing wrote to the disk meanwhile.
    pub clean: bool,
    /// Unix seconds.
    pub created_at: i64,
}

/// A stemcell that was uploaded to a CPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StemcellRecord {
    pub id: i64,
    pub name: String,
    pub version: String,
    /// What deployments name.
    pub operating_system: String,
    /// The CPI's name.
    pub cpi: CpiName,
    pub cid: StemcellCid,
    /// What its agent can do; none counts as 1.
    pub api_version: Option<ApiVersion>,
    /// Deployments that use it.
    pub deployments: Vec<String>,
}

/// One version of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRecord {
    /// Counts up over all configs.
    pub id: i64,
    /// `cloud`, `runtime`, `cpi`, `deploy`, …
    pub kind: String,
    /// `default` unless named.
    pub name: String,
    /// YAML, verbatim.
    pub content: String,
    /// Unix seconds.
    pub created_at: i64,
    /// The team whose deployments alone use it; none if all do.
    pub team: Option<String>,
}

impl ConfigRecord {
    /// Whether deployments of these teams use it.
    pub fn is_for(&self, teams: &[String]) -> bool {
        self.team.as_ref().is_none_or(|team| teams.contains(team))
    }
}

/// A version of a release, and what it has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReleaseRecord {
    pub id: i64,
    pub name: String,
    pub version: String,
    pub commit_hash: String,
    pub uncommitted_changes: bool,
    pub jobs: Vec<JobRecord>,
    pub packages: Vec<PackageRecord>,
    /// Deployments that use it.
    pub deployments: Vec<String>,
}

/// A job of a release.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    /// 0 before it is on record.
    pub id: i64,
    pub name: String,
    pub version: String,
    pub fingerprint: String,
    pub sha1: String,
    /// The file that its archive is in.
    pub blob: String,
    /// `job.MF`.
    pub spec: serde_json::Value,
}

/// A package of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageRecord {
    /// 0 before it is on record.
    pub id: i64,
    pub name: String,
    pub version: String,
    pub fingerprint: String,
    /// None if only compiled releases brought it.
    pub source: Option<PackageSource>,
    pub dependencies: Vec<String>,
}

/// What a package is compiled from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageSource {
    pub sha1: String,
    /// The file that its archive is in.
    pub blob: String,
}

/// A package that was compiled for a stemcell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompiledPackage {
    pub key: CompilationKey,
    /// Counts up when it is compiled again.
    pub build: i64,
    pub sha1: String,
    /// The file that its archive is in.
    pub blob: String,
}

impl CompiledPackage {
    /// As agents know it.
    pub fn version(&self) -> String {
        format!("{}.{}", self.key.version, self.build)
    }
}
