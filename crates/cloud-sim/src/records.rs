//! What is kept: the records of all resources, each in the folder of its resource.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, DiskCid, DiskHint, NetworkCid, Networks, Object, SnapshotCid, StemcellCid, VmCid};
use windlass_cpi::resources::Kept;

/// `stemcell.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StemcellRecord {
    /// Its cid.
    pub cid: StemcellCid,
    /// As the caller gave them.
    pub cloud_properties: Object,
    /// `env.tags` of version 3.
    pub tags: Object,
    /// Of the image.
    pub image_bytes: u64,
}

/// `vm.json`. The VM exists if, and only if, this file does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmRecord {
    /// Its cid.
    pub cid: VmCid,
    /// The agent that it would run.
    pub agent_id: AgentId,
    /// What it was made from.
    pub stemcell_cid: StemcellCid,
    /// Where its agent would get its settings.
    pub settings_from: SettingsFrom,
    /// As the caller gave them.
    pub cloud_properties: Object,
    /// With the addresses that the cloud chose.
    pub networks: Networks,
    /// What no other VM may have.
    pub addresses: Vec<Address>,
    /// What callers named it with.
    pub metadata: Object,
    /// How often it was started.
    pub boots: u64,
    /// Disks that may be attached: written before the disk's own record, which decides, and cleared after it.
    pub disks: BTreeMap<DiskCid, DiskHint>,
}

/// An address in one of the cloud's networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The network; the same address in another one is another address.
    pub network: String,
    /// The address.
    pub ip: IpAddr,
}

/// `disk.json`. What is on the disk is in the file [`CONTENT`] beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Its cid.
    pub cid: DiskCid,
    /// Noted, not enforced.
    pub size_mib: u64,
    /// As the caller gave them.
    pub cloud_properties: Object,
    /// What callers named it with.
    pub metadata: Object,
    /// Decides whether, and to what, the disk is attached.
    pub attached_to: Option<VmCid>,
}

/// `snapshot.json`. What was on the disk is in the file [`CONTENT`] beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Its cid.
    pub cid: SnapshotCid,
    /// The disk, which may be gone.
    pub disk_cid: DiskCid,
    /// Of the disk at that time.
    pub size_mib: u64,
    /// What the caller named it with.
    pub metadata: Object,
}

/// `network.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Its cid.
    pub cid: NetworkCid,
    /// Its addresses.
    pub range: IpNet,
    /// One of them, which no VM gets.
    pub gateway: IpAddr,
    /// As the caller gave them.
    pub cloud_properties: Object,
}

/// The file with what is on a disk, or was when a snapshot was taken.
pub const CONTENT: &str = "content";

/// The document that a VM was given to boot with.
pub(crate) const USER_DATA: &str = "user-data.json";

macro_rules! kept {
    ($($record:ty: $folder:literal, $prefix:literal, $file:literal;)*) => {$(
        impl Kept for $record {
            const FOLDER: &'static str = $folder;
            const PREFIX: &'static str = $prefix;
            const FILE: &'static str = $file;
        }
    )*};
}

kept! {
    StemcellRecord: "stemcells", "sc-", "stemcell.json";
    VmRecord: "vms", "vm-", "vm.json";
    DiskRecord: "disks", "disk-", "disk.json";
    SnapshotRecord: "snapshots", "snap-", "snapshot.json";
    NetworkRecord: "networks", "net-", "network.json";
}
