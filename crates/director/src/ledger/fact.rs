//! What is true once a cloud or an agent confirmed it.

use serde::{Deserialize, Serialize};
use windlass_contract::{
    AgentId, ApiVersion, DiskCid, DiskHint, Networks, Object, Secret, SnapshotCid, StemcellCid, VmCid,
};

use super::NewStemcell;

/// A fact to be recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// A stemcell is in the cloud.
    StemcellCreated {
        /// What it was made from.
        stemcell: NewStemcell,
        /// Its cid.
        cid: StemcellCid,
    },
    /// A stemcell is gone from the cloud.
    StemcellDeleted {
        /// Its CPI.
        cpi: String,
        /// Its cid.
        cid: StemcellCid,
    },
    /// A VM exists.
    VmCreated {
        /// All about it.
        vm: Box<VmRecord>,
    },
    /// The VM's agent answered and knows who it is.
    VmReady {
        /// The VM.
        cid: VmCid,
    },
    /// A VM that was made beside an instance's took its place; the old one belongs to no instance any more.
    VmSwapped {
        /// The old VM.
        from: VmCid,
        /// The new VM.
        to: VmCid,
    },
    /// A VM is gone, and so are its attachments.
    VmDeleted {
        /// The VM.
        cid: VmCid,
    },
    /// A disk exists and is attached to nothing.
    DiskCreated {
        /// All about it.
        disk: DiskRecord,
    },
    /// A disk is attached, and this is where the VM finds it.
    DiskAttached {
        /// The disk.
        disk: DiskCid,
        /// The VM.
        vm: VmCid,
        /// None from a CPI of version 1.
        hint: Option<DiskHint>,
    },
    /// The agent mounted the disk: it is the instance's disk now.
    DiskMounted {
        /// The disk.
        disk: DiskCid,
    },
    /// The VM sees that the disk has this size.
    DiskResized {
        /// The disk.
        disk: DiskCid,
        /// In MiB.
        size: u64,
    },
    /// The data of a disk is on another one, which is the instance's disk now.
    DiskReplaced {
        /// The disk that had the data.
        old: DiskCid,
        /// The disk that has it.
        new: DiskCid,
    },
    /// A disk is attached to nothing.
    DiskDetached {
        /// The disk.
        disk: DiskCid,
    },
    /// A disk belongs to no instance any more; its data is kept.
    DiskOrphaned {
        /// The disk.
        disk: DiskCid,
    },
    /// A disk is gone with its data.
    DiskDeleted {
        /// The disk.
        disk: DiskCid,
    },
    /// An orphaned disk, or one that only the cloud knew, is an instance's disk now.
    DiskAdopted {
        /// All about it.
        disk: DiskRecord,
    },
    /// A snapshot exists.
    SnapshotTaken {
        /// All about it.
        snapshot: SnapshotRecord,
    },
    /// A snapshot is gone.
    SnapshotDeleted {
        /// The snapshot.
        cid: SnapshotCid,
    },
    /// An instance has neither VM nor disk any more, and nobody wants it.
    InstanceRemoved {
        /// Its id.
        instance: String,
    },
    /// Something that leaves no record, such as metadata.
    Nothing,
}

impl Fact {
    /// Whether it is found out again by whoever forgets it, so that it need not survive a loss of power.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::Nothing | Self::VmReady { .. })
    }
}

/// A VM as the director knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmRecord {
    /// Its cid.
    pub cid: VmCid,
    /// Its agent.
    pub agent_id: AgentId,
    /// The instance that it belongs to.
    pub instance: String,
    /// The CPI that made it.
    pub cpi: String,
    /// What it was made from.
    pub stemcell: StemcellOfVm,
    /// As the cloud answered, or as planned where it answered nothing.
    pub networks: Networks,
    /// As sent.
    pub cloud_properties: Object,
    /// As the manifest asked for it, without what the director added.
    pub wanted_env: Object,
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

/// The stemcell that a VM was made from. Later calls send this version, whatever is uploaded meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StemcellOfVm {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// What its agent can do.
    pub api_version: Option<ApiVersion>,
}

/// A persistent disk as the director knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Its cid.
    pub cid: DiskCid,
    /// The instance that it belongs to.
    pub instance: String,
    /// Empty for the one that the agent mounts by itself.
    #[serde(default)]
    pub name: String,
    /// The CPI that made it.
    pub cpi: String,
    /// In MiB.
    pub size: u64,
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
    /// Its cid.
    pub cid: SnapshotCid,
    /// The disk.
    pub disk: DiskCid,
    /// The CPI that has both.
    pub cpi: String,
    /// Whether nothing wrote to the disk meanwhile.
    pub clean: bool,
    /// Unix seconds.
    pub created_at: i64,
}
