//! `cloud.properties.local` of `cpi.json`.

use std::path::PathBuf;

use ipnet::IpNet;
use serde::Deserialize;

use crate::isolation::IsolationChoice;

/// The configuration of the embedded cloud.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LocalConfig {
    /// Where everything is kept; absolute, because VMs outlive the process that made them.
    pub state_dir: PathBuf,
    /// How VMs are kept apart.
    #[serde(default)]
    pub isolation: IsolationChoice,
    /// The executable that runs `vm-run`; normally the one that serves the call.
    #[serde(default)]
    pub windlass: Option<PathBuf>,
    /// Where containers on dynamic networks get their addresses.
    #[serde(default = "dynamic_range")]
    pub dynamic_range: IpNet,
    /// Where networks that are made without a range get theirs.
    #[serde(default = "managed_range")]
    pub managed_range: IpNet,
    /// Below which folders light stemcells may name their images. Who uploads a stemcell is not always who may read this machine.
    #[serde(default)]
    pub image_folders: Vec<PathBuf>,
    /// Whether containers may reach beyond this machine. Turns on `ip_forward` and translates their addresses.
    #[serde(default)]
    pub outbound: bool,
}

fn dynamic_range() -> IpNet {
    IpNet::V4(ipnet::Ipv4Net::new_assert([10, 246, 0, 0].into(), 22))
}

fn managed_range() -> IpNet {
    IpNet::V4(ipnet::Ipv4Net::new_assert([10, 247, 0, 0].into(), 16))
}
