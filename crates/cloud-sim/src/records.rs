//! What is kept: the records of all resources, each in the folder of its resource.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, DiskCid, DiskHint, NetworkCid, Networks, Object, SnapshotCid, StemcellCid, VmCid};
use windlass_cpi::resources::Kept;

use crate::addresses::parse;
use crate::agents::AgentBehaviour;

/// `stemcell.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StemcellRecord {
    pub cid: StemcellCid,
    /// As the caller gave them.
    pub cloud_properties: Object,
    /// `env.tags` of version 3.
    pub tags: Object,
    pub image_bytes: u64,
}

/// `vm.json`. The VM exists if, and only if, this file does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VmRecord {
    pub cid: VmCid,
    /// The agent that it runs.
    pub agent_id: AgentId,
    /// What it was made from.
    pub stemcell_cid: StemcellCid,
    /// Where its agent gets its settings.
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
    /// When it was started last, in milliseconds since 1970.
    #[serde(default)]
    pub started_at: u64,
    /// Whether it is switched off: its agent, or a person, did that.
    #[serde(default)]
    pub is_off: bool,
    /// What its agent is like.
    #[serde(default)]
    pub agent: AgentBehaviour,
    /// Disks that may be attached: written before the disk's own record, which decides, and cleared after it.
    pub disks: BTreeMap<DiskCid, DiskHint>,
}

impl VmRecord {
    /// Where its agent listens: in the network with the gateway, or else in any. Only loopback addresses exist here; at
    /// others there is no agent.
    pub fn agent_address(&self) -> Option<IpAddr> {
        let mut networks: Vec<_> = self.networks.values().collect();
        networks.sort_by_key(|network| !network.is_default_for("gateway"));
        networks.into_iter().filter_map(|network| parse(network.ip.as_deref()?)).find(IpAddr::is_loopback)
    }
}

/// Now, as [`VmRecord::started_at`] has it.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// An address in one of the cloud's networks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The network; the same address in another one is another address.
    pub network: String,
    pub ip: IpAddr,
}

/// `disk.json`. What is on the disk is in the folder [`CONTENT`] beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRecord {
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

/// `snapshot.json`. What was on the disk is in the folder [`CONTENT`] beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRecord {
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
    pub cid: NetworkCid,
    pub range: IpNet,
    /// One of them, which no VM gets.
    pub gateway: IpAddr,
    /// As the caller gave them.
    pub cloud_properties: Object,
}

/// The folder with what is on a disk, or was when a snapshot was taken.
pub const CONTENT: &str = "content";

/// The document that a VM was given to boot with.
pub(crate) const USER_DATA: &str = "user-data.json";

/// Where an agent finds that document that gets it late.
pub(crate) const LATE_USER_DATA: &str = "late-user-data.json";

/// The folder of a VM's agent, what `/var/vcap` is elsewhere.
pub(crate) const BASE: &str = "base";

/// The folder in which a VM sees its disks.
pub(crate) const DISKS: &str = "disks";

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
