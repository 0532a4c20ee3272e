//! One thing to be done in a cloud: which call it is, and what is true once it was answered.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use windlass_contract::cpi::Method;
use windlass_contract::cpi::methods::{
    AttachDisk, CreateDisk, CreateStemcell, CreateVm, DeleteDisk, DeleteSnapshot, DeleteStemcell, DeleteVm, DetachDisk,
    RebootVm, ResizeDisk, SetDiskMetadata, SetVmMetadata, SnapshotDisk,
};
use windlass_contract::stemcell::StemcellManifest;
use windlass_contract::{AgentId, ApiVersion, DiskCid, MiB, Networks, Object, Secret, SnapshotCid, StemcellCid, VmCid};
use windlass_planning::names::{CpiName, DiskName, InstanceId};
use windlass_planning::records::{AgentCertificate, StemcellOfVm};
use windlass_planning::software::VariableSet;

/// A change in a cloud. It is stored with its intent, so that it can be repeated exactly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// Make a stemcell from an unpacked image.
    CreateStemcell {
        stemcell: NewStemcell,
        image: PathBuf,
    },
    /// Remove a stemcell.
    DeleteStemcell {
        cpi: CpiName,
        cid: StemcellCid,
    },
    /// Make a VM.
    CreateVm {
        vm: Box<NewVm>,
    },
    /// Remove a VM.
    DeleteVm {
        cid: VmCid,
    },
    /// Name a VM for people.
    SetVmMetadata {
        cid: VmCid,
        metadata: Object,
    },
    /// Restart a VM.
    RebootVm {
        cid: VmCid,
    },
    /// Make a disk.
    CreateDisk {
        disk: NewDisk,
        /// The VM that it will be attached to.
        near: Option<VmCid>,
    },
    AttachDisk {
        vm: VmCid,
        disk: DiskCid,
    },
    DetachDisk {
        vm: VmCid,
        disk: DiskCid,
    },
    /// Name a disk for people.
    SetDiskMetadata {
        cid: DiskCid,
        metadata: Object,
    },
    /// Make a detached disk larger.
    ResizeDisk {
        cid: DiskCid,
        size: MiB,
    },
    /// Remove a disk with its data.
    DeleteDisk {
        cid: DiskCid,
    },
    /// Take a snapshot of a disk.
    SnapshotDisk {
        disk: DiskCid,
        cpi: CpiName,
        /// Whether nothing writes to it meanwhile.
        clean: bool,
        /// What the cloud shows about it.
        metadata: Object,
    },
    /// Remove a snapshot.
    DeleteSnapshot {
        cid: SnapshotCid,
    },
}

/// A stemcell to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewStemcell {
    pub name: String,
    pub version: String,
    /// What deployments name.
    pub operating_system: String,
    /// Digest of the image.
    pub sha1: String,
    /// What its agent can do; none counts as 1.
    pub api_version: Option<ApiVersion>,
    /// Second argument of `create_stemcell`.
    pub cloud_properties: Object,
    pub cpi: CpiName,
}

/// A VM to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewVm {
    /// Chosen by us.
    pub agent_id: AgentId,
    /// The instance that it belongs to.
    pub instance: InstanceId,
    pub cpi: CpiName,
    pub stemcell_cid: StemcellCid,
    /// What it is made from.
    pub stemcell: StemcellOfVm,
    /// What only the cloud understands.
    pub cloud_properties: Object,
    /// Planned networks.
    pub networks: Networks,
    /// Disks that will be attached.
    pub disk_cids: Vec<DiskCid>,
    /// Goes into the agent's settings verbatim; has keys and passwords.
    pub env: Object,
    /// The part of it that the manifest asked for.
    pub wanted_env: Object,
    /// Stands for the values of variables in it, which are put in when the CPI is asked and are not on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_values: Option<String>,
    /// The versions of variables that those are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariableSet>,
    /// Credentials of the agent, also in `env`.
    pub mbus_user: String,
    /// Credentials of the agent, also in `env`.
    pub mbus_password: Secret,
    /// What the agent shows and trusts.
    #[serde(default)]
    pub certificate: Option<AgentCertificate>,
    /// Whether it is made beside the instance's VM, to take its place later.
    #[serde(default)]
    pub spare: bool,
}

/// A disk to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDisk {
    /// The instance that it belongs to.
    pub instance: InstanceId,
    #[serde(default)]
    pub name: DiskName,
    pub cpi: CpiName,
    pub size: MiB,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

impl Change {
    /// The name of the CPI's method.
    pub fn method(&self) -> &'static str {
        match self {
            Self::CreateStemcell { .. } => CreateStemcell::NAME,
            Self::DeleteStemcell { .. } => DeleteStemcell::NAME,
            Self::CreateVm { .. } => CreateVm::NAME,
            Self::DeleteVm { .. } => DeleteVm::NAME,
            Self::SetVmMetadata { .. } => SetVmMetadata::NAME,
            Self::RebootVm { .. } => RebootVm::NAME,
            Self::CreateDisk { .. } => CreateDisk::NAME,
            Self::AttachDisk { .. } => AttachDisk::NAME,
            Self::DetachDisk { .. } => DetachDisk::NAME,
            Self::SetDiskMetadata { .. } => SetDiskMetadata::NAME,
            Self::ResizeDisk { .. } => ResizeDisk::NAME,
            Self::DeleteDisk { .. } => DeleteDisk::NAME,
            Self::SnapshotDisk { .. } => SnapshotDisk::NAME,
            Self::DeleteSnapshot { .. } => DeleteSnapshot::NAME,
        }
    }

    /// What the change is about, for people.
    pub fn subject(&self) -> String {
        match self {
            Self::CreateStemcell { stemcell, .. } => format!("stemcell {}/{}", stemcell.name, stemcell.version),
            Self::DeleteStemcell { cid, .. } => format!("stemcell {cid}"),
            Self::CreateVm { vm } => format!("a VM for instance {}", vm.instance),
            Self::DeleteVm { cid } | Self::SetVmMetadata { cid, .. } | Self::RebootVm { cid } => format!("VM {cid}"),
            Self::CreateDisk { disk, .. } => format!("a disk of {} for instance {}", disk.size, disk.instance),
            Self::AttachDisk { vm, disk } | Self::DetachDisk { vm, disk } => format!("disk {disk} and VM {vm}"),
            Self::SetDiskMetadata { cid, .. } | Self::ResizeDisk { cid, .. } | Self::DeleteDisk { cid } => {
                format!("disk {cid}")
            }
            Self::SnapshotDisk { disk, .. } => format!("a snapshot of disk {disk}"),
            Self::DeleteSnapshot { cid } => format!("snapshot {cid}"),
        }
    }

    /// Whether nothing exists because of it, so that its intent need not survive a loss of power.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::SetVmMetadata { .. } | Self::SetDiskMetadata { .. })
    }

    /// Whether doing it a second time does no harm, whatever the CPI remembers.
    pub fn is_repeatable(&self) -> bool {
        !matches!(
            self,
            Self::CreateStemcell { .. } | Self::CreateVm { .. } | Self::CreateDisk { .. } | Self::SnapshotDisk { .. }
        )
    }
}

impl NewStemcell {
    /// The stemcell with this manifest, for a CPI.
    pub fn of(manifest: &StemcellManifest, cpi: &CpiName) -> Self {
        Self {
            name: manifest.name.clone(),
            version: manifest.version.clone(),
            operating_system: manifest.os().to_owned(),
            sha1: manifest.sha1.clone(),
            api_version: manifest.api_version,
            cloud_properties: manifest.cloud_properties.clone(),
            cpi: cpi.clone(),
        }
    }
}
