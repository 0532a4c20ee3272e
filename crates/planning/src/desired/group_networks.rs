//! The networks of a group: which subnets, which static addresses, and which network is the default for what.

use std::net::IpAddr;

use super::cloud_config::Section;
use super::findings::{Findings, Placed};
use super::instance_group::{GroupNetwork, InstanceGroup};
use super::networks::{NetworkDefinition, NetworkPlacement};
use super::resolve::{DesiredNetwork, Resolver};
use crate::weight::Room;

impl Resolver<'_> {
    /// With one network, that one is the default for everything; with several, the manifest says which.
    pub(super) fn networks(
        &self,
        group: &InstanceGroup,
        room: &mut Room,
        findings: &mut Findings,
    ) -> Vec<DesiredNetwork> {
        let mut networks = Vec::new();
        for network in &group.networks {
            self.wanted.cloud.find(Section::Networks, &network.name, findings);
            let Some(definition) =
                self.wanted.cloud.networks.iter().find(|definition| definition.name == network.name.value)
            else {
                continue;
            };
            if self.wanted.cloud.is_readable(Section::Networks) {
                self.check_zones(group, network, definition, findings);
            }
            let static_ips = check_static_ips(group, network, definition, room, findings);
            let mut default: Vec<String> = Vec::new();
            for purpose in &network.default {
                if !["dns", "gateway", "addressable"].contains(&purpose.value.as_str()) {
                    let message = format!("expected 'dns', 'gateway' or 'addressable', found '{}'", purpose.value);
                    findings.push(purpose.problem(message));
                } else if !default.contains(&purpose.value) {
                    default.push(purpose.value.clone());
                }
            }
            default.sort();
            let nic_group = network.nic_group.clone();
            networks.push(DesiredNetwork { definition: definition.clone(), static_ips, default, nic_group });
        }
        settle_defaults(group, &mut networks, findings);
        networks
    }

    fn check_zones(
        &self,
        group: &InstanceGroup,
        network: &GroupNetwork,
        definition: &NetworkDefinition,
        findings: &mut Findings,
    ) {
        let name = &network.name;
        if group.azs.is_empty() && !definition.azs().is_empty() {
            let message = format!("the subnets of '{}' name azs, so the group must name its own", name.value);
            findings.push(name.problem(message));
        }
        // About a zone that does not exist enough was said.
        let exists = |az: &&Placed<String>| self.wanted.cloud.azs.iter().any(|known| known.name == az.value);
        for az in group.azs.iter().filter(exists).filter(|az| !definition.reaches(Some(&az.value))) {
            findings.push(name.problem(format!("no subnet of '{}' reaches the az '{}'", name.value, az.value)));
        }
    }
}

/// What an address that was asked for takes of memory, here and with the instance that gets it.
const OF_A_STATIC_IP: usize = 128;

/// The addresses, if there is one for each instance and each can be had.
fn check_static_ips(
    group: &InstanceGroup,
    network: &GroupNetwork,
    definition: &NetworkDefinition,
    room: &mut Room,
    findings: &mut Findings,
) -> Vec<IpAddr> {
    let name = &network.name;
    let given = match (&definition.placement, &network.static_ips) {
        (NetworkPlacement::Vip { pool, .. }, None) if pool.is_empty() => {
            findings.push(name.problem(format!(
                "the vip network '{}' needs static_ips here, or subnets with 'static' in the cloud config",
                name.value
            )));
            return Vec::new();
        }
        (_, None) => return Vec::new(),
        (NetworkPlacement::Dynamic(_), Some(_)) => {
            let message =
                format!("the network '{}' is dynamic, so the cloud chooses addresses; remove static_ips", name.value);
            findings.push(name.problem(message));
            return Vec::new();
        }
        (NetworkPlacement::Vip { pool, .. }, Some(_)) if !pool.is_empty() => {
            let message = format!("the vip network '{}' has addresses of its own; remove static_ips", name.value);
            findings.push(name.problem(message));
            return Vec::new();
        }
        (_, Some(given)) => given,
    };
    let problems = findings.problems().len();
    let total = given.iter().fold(0_u128, |total, range| total.saturating_add(range.value.size()));
    let Some(instances) = group.instances else { return Vec::new() };
    if total != instances as u128 {
        let message = format!("there are {total} static_ips for {instances} instances; give one each");
        findings.push(name.problem(message));
        return Vec::new();
    }
    for (index, range) in given.iter().enumerate() {
        if let Some(other) = given[..index].iter().find(|other| other.value.overlaps(&range.value)) {
            findings.push(range.problem(format!("{} is there already, in {}", range.value, other.value)));
            continue;
        }
        if let NetworkPlacement::Manual(subnets) = &definition.placement {
            let wrong = range.value.iter().find_map(|address| why_not_static(group, subnets, address));
            if let Some(message) = wrong {
                findings.push(range.problem(format!("{message} of network '{}'", name.value)));
            }
        }
    }
    if findings.problems().len() > problems {
        return Vec::new();
    }
    // A range of a few letters has one for each instance, in each network of each group.
    if let Err(message) = room.take(instances.saturating_mul(OF_A_STATIC_IP)) {
        findings.push(name.problem(message));
        return Vec::new();
    }
    given.iter().flat_map(|range| range.value.iter()).collect()
}

fn why_not_static(group: &InstanceGroup, subnets: &[super::Subnet], address: IpAddr) -> Option<String> {
    let Some(subnet) = subnets.iter().find(|subnet| subnet.contains(address)) else {
        return Some(format!("the static ip {address} is in no subnet"));
    };
    if subnet.is_reserved(address) {
        return Some(format!("the static ip {address} is reserved, the gateway, or an end of a subnet"));
    }
    if !subnet.is_static(address) {
        return Some(format!(
            "the static ip {address} is not in 'static' of the subnet {}; add it there",
            subnet.range
        ));
    }
    let reached = group.azs.is_empty() || group.azs.iter().any(|az| subnet.reaches(Some(&az.value)));
    (!reached).then(|| format!("the static ip {address} is for other azs than the group's, in subnet {}", subnet.range))
}

fn settle_defaults(group: &InstanceGroup, networks: &mut [DesiredNetwork], findings: &mut Findings) {
    if networks.len() < group.networks.len() {
        return;
    }
    if let [only] = networks {
        for purpose in ["dns", "gateway"] {
            if !only.default.iter().any(|claimed| claimed == purpose) {
                only.default.push(purpose.to_owned());
            }
        }
        only.default.sort();
        return;
    }
    for (purpose, needed) in [("dns", true), ("gateway", true), ("addressable", false)] {
        let claims: Vec<&Placed<String>> =
            group.networks.iter().flat_map(|network| &network.default).filter(|claim| claim.value == purpose).collect();
        match claims.as_slice() {
            [] if needed && !group.networks.is_empty() => findings.push(group.place.problem(format!(
                "with several networks, one must be the default for '{purpose}': add default: [{purpose}] to it"
            ))),
            [_, second, ..] => {
                let message = format!("another network of the group is the default for '{purpose}' already");
                findings.push(second.problem(message));
            }
            _ => {}
        }
    }
}
