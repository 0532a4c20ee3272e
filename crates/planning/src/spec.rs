//! What an instance should be, completely: what a plan leads to, and what is on record of the last one.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use windlass_contract::network::NetworkKind;
use windlass_contract::{ApiVersion, MiB, Networks, Object, StemcellCid};

use crate::names::{CpiName, DiskName};
use crate::software::{SoftwareOfInstance, VariableSet};

/// What an instance should be, completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The CPI that serves its zone.
    pub cpi: CpiName,
    /// The stemcell in that cloud.
    pub stemcell_cid: StemcellCid,
    pub stemcell: StemcellOfVm,
    /// The name of the VM's type; none for one that is sized by what it needs.
    pub vm_type: Option<String>,
    /// Zone, type and extensions together.
    pub cloud_properties: Object,
    /// With addresses, where the director chooses them.
    pub networks: Networks,
    /// Its persistent disks.
    #[serde(default)]
    pub disks: Vec<DiskSpec>,
    /// For the agent, without what the director adds.
    pub env: Object,
    /// Stands for the values of variables in it, so that a change of them is noticed; none if it has no variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_values: Option<String>,
    /// For the clouds.
    pub tags: Object,
    /// The versions of variables that it was brought to; none where it uses none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariableSet>,
    /// What templates see in the place of its address; none where they see that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns_address: Option<String>,
    /// The jobs that run on it; none where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<SoftwareOfInstance>,
}

/// The stemcell that a VM was made from. Later calls send this version, whatever is uploaded meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StemcellOfVm {
    pub name: String,
    pub version: String,
    /// What its agent can do.
    pub api_version: Option<ApiVersion>,
}

/// What a disk should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskSpec {
    #[serde(default)]
    pub name: DiskName,
    pub size: MiB,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

impl InstanceSpec {
    /// The disk that the agent mounts by itself.
    pub fn managed_disk(&self) -> Option<&DiskSpec> {
        self.disk(&DiskName::Managed)
    }

    pub fn disk(&self, name: &DiskName) -> Option<&DiskSpec> {
        self.disks.iter().find(|disk| disk.name == *name)
    }

    /// Addresses that the director chose, with their networks.
    pub fn reserved_addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        reserved_addresses(&self.networks)
    }
}

/// Addresses that a director chose, with their networks.
pub fn reserved_addresses(networks: &Networks) -> impl Iterator<Item = (&str, IpAddr)> {
    networks
        .iter()
        .filter(|(_, network)| network.kind != NetworkKind::Dynamic)
        .filter_map(|(name, network)| Some((name.as_str(), network.ip.as_ref()?.parse().ok()?)))
}
