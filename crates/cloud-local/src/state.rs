//! What is kept: the records of stemcells, VMs and disks, each in the folder of its resource.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, DiskCid, DiskHint, NetworkCid, Networks, Object, SnapshotCid, StemcellCid, VmCid};
use windlass_cpi::resources::Kept;

use crate::container::boot::Boot;
use crate::container::confinement::Confinement;
use crate::container::limits::Limits;
use crate::container::users::{Ids, Users};
use crate::isolation::Isolation;
use crate::network::Wiring;
use crate::own_root::OwnRoot;
use crate::userland::Userland;

/// `stemcell.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StemcellRecord {
    pub(crate) cid: StemcellCid,
    /// Where the root file system is, if it is not in the stemcell's folder.
    #[serde(default)]
    pub(crate) root: Option<PathBuf>,
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
    /// The agent's executable: in the stemcell, or a program of this machine.
    pub(crate) agent: PathBuf,
    /// Decided once, because later calls do not carry the versions that decided it.
    pub(crate) settings_from: SettingsFrom,
    /// What a container is made from.
    #[serde(default)]
    pub(crate) container: Option<ContainerRecord>,
    /// What the root of a VM that is no container is made from, if it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own_root: Option<OwnRoot>,
    /// What the supervisor claims.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) networks: Networks,
    pub(crate) cloud_properties: Object,
    pub(crate) metadata: Object,
    /// Disks that may be attached: written before the disk's own record, which decides, and cleared after it.
    pub(crate) disks: BTreeMap<DiskCid, DiskHint>,
}

impl VmRecord {
    /// The ids of this machine that its users have, if they are its own.
    pub(crate) fn ids(&self) -> Option<Ids> {
        self.container.as_ref()?.users.ids()
    }
}

/// What a disk is made of: decided when it is made, to fit the VM that it is made for or, without one, VMs of that time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DiskForm {
    /// A folder, `data`: only for VMs in process isolation. Its size is noted, not enforced.
    #[default]
    Directory,
    /// A sparse file with an ext4 file system, `image`: for any VM of a machine on which we may mount.
    Image,
}

impl DiskForm {
    /// The form of disk that fits such VMs.
    pub(crate) fn fitting(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Container => Self::Image,
            Isolation::Process => Self::Directory,
        }
    }

    /// The name of the data in the folder of a disk or snapshot.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Directory => "data",
            Self::Image => "image",
        }
    }
}

impl std::fmt::Display for DiskForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Directory => "directory",
            Self::Image => "image",
        })
    }
}

/// What a container is made from: enough to make it again after a reboot of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    /// The stemcell's root file system, which all its VMs share.
    pub(crate) root: PathBuf,
    /// Whose programs it has beside the stemcell's own files.
    #[serde(default, skip_serializing_if = "Userland::is_of_stemcell")]
    pub(crate) userland: Userland,
    /// A program of this machine that is its agent, if the stemcell has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<PathBuf>,
    pub(crate) boot: Boot,
    /// Where the agent looks for its settings.
    pub(crate) settings_path: PathBuf,
    /// The agent's configuration, if the stemcell has none.
    pub(crate) agent_config: Option<serde_json::Value>,
    pub(crate) limits: Limits,
    #[serde(default)]
    pub(crate) confinement: Confinement,
    #[serde(default)]
    pub(crate) users: Users,
    pub(crate) wiring: Wiring,
}

/// `disk.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiskRecord {
    pub(crate) cid: DiskCid,
    pub(crate) size_mib: u64,
    #[serde(default)]
    pub(crate) form: DiskForm,
    pub(crate) cloud_properties: Object,
    pub(crate) metadata: Object,
    /// Decides whether, and to what, the disk is attached.
    pub(crate) attached_to: Option<Attachment>,
}

/// `snapshot.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) cid: SnapshotCid,
    /// The disk it was taken of, which may be gone by now.
    pub(crate) disk_cid: DiskCid,
    pub(crate) size_mib: u64,
    pub(crate) form: DiskForm,
    pub(crate) metadata: Object,
}

/// `network.json`: a range of addresses that was set aside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NetworkRecord {
    pub(crate) cid: NetworkCid,
    pub(crate) range: IpNet,
    pub(crate) gateway: IpAddr,
    pub(crate) cloud_properties: Object,
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

impl Kept for NetworkRecord {
    const FOLDER: &'static str = "networks";
    const PREFIX: &'static str = "net-";
    const FILE: &'static str = "network.json";
}

impl Kept for DiskRecord {
    const FOLDER: &'static str = "disks";
    const PREFIX: &'static str = "disk-";
    const FILE: &'static str = "disk.json";
}

impl Kept for SnapshotRecord {
    const FOLDER: &'static str = "snapshots";
    const PREFIX: &'static str = "snap-";
    const FILE: &'static str = "snapshot.json";
}
