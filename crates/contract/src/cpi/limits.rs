//! What cannot be had in a cloud, as far as its CPI knows before it is asked for it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::MiB;

/// What cannot be had in a cloud. A director refuses a plan that needs it before anything is stopped; what is not said here is
/// found out when it is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudLimits {
    /// The size of the largest disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_disk_mib: Option<MiB>,
    /// Ranges that no subnet of VMs may overlap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks_in_use: Vec<NetworkInUse>,
    /// The ranges that all subnets of VMs must be in; none if they may be anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks_within: Vec<IpNet>,
    /// Addresses that nobody else can have, each with the cid of the VM that has it, or other words for its holder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses_in_use: BTreeMap<IpAddr, String>,
}

/// A range that something other than VMs uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkInUse {
    pub range: IpNet,
    /// What uses the range, for people.
    pub by: String,
}

/// More than this is not told: `info` is asked often, and its answer must stay short.
pub const MOST_IN_USE: usize = 1000;

impl CloudLimits {
    /// Why a disk of this size cannot be had.
    pub fn disk_refusal(&self, size: MiB) -> Option<String> {
        let largest = self.largest_disk_mib.filter(|largest| size > *largest)?;
        Some(format!("a disk of {size} cannot be had: the largest in this cloud has {largest}"))
    }

    /// Why a subnet with this range cannot be had.
    pub fn network_refusal(&self, range: IpNet) -> Option<String> {
        let contains = |one: &IpNet, other: &IpNet| one.contains(other);
        let overlaps = |used: &&NetworkInUse| contains(&used.range, &range) || contains(&range, &used.range);
        if let Some(NetworkInUse { range: used, by }) = self.networks_in_use.iter().find(overlaps) {
            return Some(format!("{range} overlaps {used}, which is used by {by}; choose another range"));
        }
        if self.networks_within.is_empty() || self.networks_within.iter().any(|within| contains(within, &range)) {
            return None;
        }
        let within: Vec<_> = self.networks_within.iter().map(ToString::to_string).collect();
        Some(format!("{range} is not in {}, where all VMs of this cloud must be", within.join(" or ")))
    }

    /// Why a VM cannot have this address.
    pub fn address_refusal(&self, address: IpAddr) -> Option<String> {
        let holder = self.addresses_in_use.get(&address)?;
        // Leaks are VMs.
        let remedy =
            if holder.starts_with("process ") { "end that" } else { "delete that ('windlass leaks' tells how)" };
        Some(format!(
            "the address {address} is taken in the cloud by {holder}, which this director does not know; \
             {remedy}, or choose another address"
        ))
    }
}
