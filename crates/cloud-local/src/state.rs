//! What is kept: the records of stemcells, VMs and disks, each in the folder of its resource.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, DiskCid, DiskHint, Networks, Object, StemcellCid, VmCid};
use windlass_cpi::resources::Kept;

use crate::isolation::Isolation;

/// `stemcell.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StemcellRecord {
    pub(crate) cid: StemcellCid,
    pub(crate) cloud_properties: Object,
}

/// `vm.json`. The VM exists if, and only if, this file does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct VmRecord {
    pub(crate) cid: VmCid,
    /// How the VM is kept apart, from its creation on.
    #[serde(default)]
    pub(crate) isolation: Isolation,
    pub(crate) agent_id: AgentId,
    pub(crate) stemcell_cid: StemcellCid,
    /// The agent's executable in the stemcell.
    pub(crate) agent: PathBuf,
    /// Decided once, because later calls do not carry the versions that decided it.
    pub(crate) settings_from: SettingsFrom,
    /// What the supervisor claims.
    pub(crate) addresses: Vec<Ipv4Addr>,
    pub(crate) networks: Networks,
    pub(crate) cloud_properties: Object,
    pub(crate) metadata: Object,
    /// Disks that may be attached: written before the disk's own record, which decides, and cleared after it.
    pub(crate) disks: BTreeMap<DiskCid, DiskHint>,
}

/// `disk.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiskRecord {
    pub(crate) cid: DiskCid,
    pub(crate) size_mib: u64,
    pub(crate) cloud_properties: Object,
    pub(crate) metadata: Object,
    /// Decides whether, and to what, the disk is attached.
    pub(crate) attached_to: Option<Attachment>,
}

/// Where a disk is attached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) vm: VmCid,
    pub(crate) hint: DiskHint,
}

impl Kept for StemcellRecord {
    const FOLDER: &'static str = "stemcells";
    const PREFIX: &'static str = "sc-";
    const FILE: &'static str = "stemcell.json";
}

impl Kept for VmRecord {
    const FOLDER: &'static str = "vms";
    const PREFIX: &'static str = "vm-";
    const FILE: &'static str = "vm.json";
}

impl Kept for DiskRecord {
    const FOLDER: &'static str = "disks";
    const PREFIX: &'static str = "disk-";
    const FILE: &'static str = "disk.json";
}
