//! What is true once a cloud or an agent confirmed it.

use serde::{Deserialize, Serialize};
use windlass_contract::{DiskCid, DiskHint, MiB, SnapshotCid, StemcellCid, VmCid};
use windlass_planning::names::{CpiName, InstanceId};
use windlass_planning::records::{DiskRecord, SnapshotRecord, VmRecord};

use super::NewStemcell;

/// A fact to be recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// A stemcell is in the cloud.
    StemcellCreated {
        /// What it was made from.
        stemcell: NewStemcell,
        cid: StemcellCid,
    },
    /// A stemcell is gone from the cloud.
    StemcellDeleted { cpi: CpiName, cid: StemcellCid },
    /// A VM exists.
    VmCreated { vm: Box<VmRecord> },
    /// The VM's agent answered and knows who it is.
    VmReady { cid: VmCid },
    /// A VM that was made beside an instance's took its place; the old one belongs to no instance any more.
    VmSwapped {
        /// The old VM.
        from: VmCid,
        /// The new VM.
        to: VmCid,
    },
    /// A VM belongs to no instance any more, and is deleted later.
    VmOrphaned { cid: VmCid },
    /// A VM is gone, and so are its attachments.
    VmDeleted { cid: VmCid },
    /// A disk exists and is attached to nothing.
    DiskCreated { disk: DiskRecord },
    /// A disk is attached, and this is where the VM finds it.
    DiskAttached {
        disk: DiskCid,
        vm: VmCid,
        /// None from a CPI of version 1.
        hint: Option<DiskHint>,
    },
    /// The agent mounted the disk: it is the instance's disk now.
    DiskMounted { disk: DiskCid },
    /// The agent is about to unmount the disk, or may have: nothing may be started before it is mounted again.
    DiskUnmounted { disk: DiskCid },
    /// The VM sees that the disk has this size.
    DiskResized { disk: DiskCid, size: MiB },
    /// The data of a disk is on another one, which is the instance's disk now.
    DiskReplaced {
        /// The disk that had the data.
        old: DiskCid,
        /// The disk that has it.
        new: DiskCid,
    },
    /// A disk is attached to nothing.
    DiskDetached { disk: DiskCid },
    /// A disk belongs to no instance any more; its data is kept.
    DiskOrphaned { disk: DiskCid },
    /// A disk is gone with its data.
    DiskDeleted { disk: DiskCid },
    /// An orphaned disk, or one that only the cloud knew, is an instance's disk now.
    DiskAdopted { disk: DiskRecord },
    /// A snapshot exists.
    SnapshotTaken { snapshot: SnapshotRecord },
    /// A snapshot is gone.
    SnapshotDeleted { cid: SnapshotCid },
    /// An instance has neither VM nor disk any more, and nobody wants it.
    InstanceRemoved { instance: InstanceId },
    /// Something that leaves no record, such as metadata.
    Nothing,
}

impl Fact {
    /// Its name on the wire, for people who report a defect; records have secrets.
    pub fn name(&self) -> String {
        let tag = serde_json::to_value(self).ok().and_then(|fact| fact.get("fact")?.as_str().map(str::to_owned));
        tag.unwrap_or_default()
    }

    /// Whether a director that forgot it finds it out again, so that it need not survive a loss of power.
    pub fn is_light(&self) -> bool {
        matches!(self, Self::Nothing | Self::VmReady { .. })
    }
}
