//! Which addresses and interfaces a container gets: one interface per subnet, on the subnet's bridge.
//!
//! The machine itself is in every subnet: at the gateway's address, or, if there is no gateway or it is a VM, at the last
//! address. Directors reach their agents through it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::{IpNet, ipv4_mask_to_prefix, ipv6_mask_to_prefix};
use uuid::Uuid;
use windlass_contract::cpi::CpiError;
use windlass_contract::network::{Network, NetworkKind};
use windlass_contract::{Networks, VmCid};

use super::{Interface, Plan, Wiring, bridge, wire};
use crate::machine::StartError;

/// What a VM is planned into.
pub(crate) struct Surroundings<'a> {
    /// The state folder, which names the bridges.
    pub(crate) state: &'a Path,
    /// Where dynamic networks get their addresses, unless they say where.
    pub(crate) dynamic_range: IpNet,
    pub(crate) outbound: bool,
    /// Spreads the choices.
    pub(crate) seed: Uuid,
    /// Which VM of this cloud has which address, running or not.
    pub(crate) holders: BTreeMap<IpAddr, VmCid>,
    /// This machine's own addresses on our bridges.
    pub(crate) machines: BTreeSet<IpAddr>,
}

/// How many addresses are tried for a dynamic network.
const CANDIDATES: u128 = 4096;

/// Gives each network an address, and each subnet an interface. `is_free` tells whether a candidate for a dynamic network can
/// be had.
pub(crate) fn plan(
    mut networks: Networks,
    surroundings: &Surroundings<'_>,
    is_free: impl Fn(IpAddr) -> bool,
) -> Result<Plan, CpiError> {
    if networks.values().all(|network| network.kind == NetworkKind::Vip) {
        return Err(CpiError::cloud("a VM needs at least one network that is not a vip network"));
    }
    let mut wiring = Wiring { outbound: surroundings.outbound, ..Wiring::default() };
    let mut addresses = Vec::new();
    // The network with the way out first: its interface is `eth0`, its address the VM's main one.
    let mut names: Vec<String> = networks.keys().cloned().collect();
    names.sort_by_key(|name| !networks[name].is_default_for("gateway") || networks[name].kind == NetworkKind::Vip);
    for name in names {
        let Some(network) = networks.get_mut(&name) else { continue };
        let address = match network.kind {
            NetworkKind::Vip => {
                let vip = address(&name, network)?;
                wiring.vips.push(vip);
                vip
            }
            NetworkKind::Manual => {
                let address = address(&name, network)?;
                let subnet = subnet(&name, address, network)?;
                join(&mut wiring, &name, network, address, subnet, surroundings)?;
                address
            }
            NetworkKind::Dynamic => {
                let (address, subnet) = choose(&name, network, surroundings, &addresses, &is_free)?;
                join(&mut wiring, &name, network, address, subnet, surroundings)?;
                address
            }
        };
        if addresses.contains(&address) {
            return Err(CpiError::cloud(format!("the address {address} of network '{name}' is given twice")));
        }
        if let Some(holder) = surroundings.holders.get(&address) {
            return Err(StartError::AddressTaken { address, holder: format!("VM '{holder}'") }.into());
        }
        if surroundings.machines.contains(&address) {
            let holder = "this machine, as its own in that subnet".to_owned();
            return Err(StartError::AddressTaken { address, holder }.into());
        }
        addresses.push(address);
    }
    if wiring.interfaces.len() > wire::MOST_INTERFACES {
        let most = wire::MOST_INTERFACES;
        return Err(CpiError::cloud(format!("a VM can be in at most {most} subnets")));
    }
    wiring.gateways = gateways(&networks);
    wiring.name_servers = name_servers(&networks);
    Ok(Plan { networks, addresses, wiring })
}

/// Puts `address` on the interface of `subnet`.
fn join(
    wiring: &mut Wiring,
    name: &str,
    network: &Network,
    address: IpAddr,
    subnet: IpNet,
    surroundings: &Surroundings<'_>,
) -> Result<(), CpiError> {
    let gateway = gateway(name, network, subnet)?;
    let machine = gateway.filter(|ip| !surroundings.holders.contains_key(ip)).unwrap_or_else(|| last(subnet));
    if address == machine {
        return Err(CpiError::cloud(format!(
            "the network '{name}' has the address {address}, which is this machine's own in {subnet}; choose another one"
        )));
    }
    match wiring.interfaces.iter_mut().find(|interface| interface.subnet == subnet) {
        Some(interface) => interface.addresses.push(address),
        None => wiring.interfaces.push(Interface {
            bridge: bridge::name(surroundings.state, subnet),
            subnet,
            machine,
            addresses: vec![address],
        }),
    }
    Ok(())
}

fn address(name: &str, network: &Network) -> Result<IpAddr, CpiError> {
    let Some(ip) = &network.ip else { return Err(CpiError::cloud(format!("the network '{name}' has no ip"))) };
    let address = ip
        .parse::<IpAddr>()
        .map_err(|_| CpiError::cloud(format!("the network '{name}' has the ip '{ip}', which is no address")))?;
    if address.is_loopback() {
        return Err(CpiError::cloud(format!(
            "the network '{name}' has the address {address}, and loopback addresses are only for process isolation; give the \
             network another range, or set 'cloud.properties.local.isolation' to 'process'"
        )));
    }
    let is_link_local = match address {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if address.is_multicast() || address.is_unspecified() || is_link_local {
        return Err(CpiError::cloud(format!("the network '{name}' has the address {address}, which no VM can have")));
    }
    Ok(address)
}

fn subnet(name: &str, address: IpAddr, network: &Network) -> Result<IpNet, CpiError> {
    let refused = |why: &str| CpiError::cloud(format!("the network '{name}' {why}"));
    let Some(mask) = &network.netmask else { return Err(refused("has no netmask")) };
    let length = match (address, mask.parse::<IpAddr>()) {
        (IpAddr::V4(_), Ok(IpAddr::V4(mask))) => ipv4_mask_to_prefix(mask).ok(),
        (IpAddr::V6(_), Ok(IpAddr::V6(mask))) => ipv6_mask_to_prefix(mask).ok(),
        _ => mask.parse().ok(),
    };
    let subnet = length.and_then(|length| IpNet::new(address, length).ok()).map(|subnet| subnet.trunc());
    let subnet =
        subnet.ok_or_else(|| refused(&format!("has the netmask '{mask}', which does not go with {address}")))?;
    check_size(subnet).map_err(|why| refused(&why))?;
    if address == subnet.network() || (address.is_ipv4() && address == subnet.broadcast()) {
        return Err(refused(&format!("has the address {address}, which is the first or last of {subnet}")));
    }
    Ok(subnet)
}

/// A subnet must hold a VM and this machine, and must not be everything.
pub(crate) fn check_size(subnet: IpNet) -> Result<(), String> {
    let (least, most) = if subnet.addr().is_ipv4() { (8, 30) } else { (16, 126) };
    let length = subnet.prefix_len();
    if (least..=most).contains(&length) {
        return Ok(());
    }
    Err(format!("has the subnet {subnet}, and a prefix has {least} to {most} bits"))
}

fn gateway(name: &str, network: &Network, subnet: IpNet) -> Result<Option<IpAddr>, CpiError> {
    let Some(text) = &network.gateway else { return Ok(None) };
    match text.parse::<IpAddr>() {
        Ok(gateway) if subnet.contains(&gateway) && gateway != subnet.network() => Ok(Some(gateway)),
        _ => Err(CpiError::cloud(format!("the network '{name}' has the gateway '{text}', which is not in {subnet}"))),
    }
}

/// Chooses a free address for a dynamic network, and tells the network what was chosen.
fn choose(
    name: &str,
    network: &mut Network,
    surroundings: &Surroundings<'_>,
    taken: &[IpAddr],
    is_free: impl Fn(IpAddr) -> bool,
) -> Result<(IpAddr, IpNet), CpiError> {
    let range = match network.cloud_properties.get("range") {
        None => surroundings.dynamic_range,
        Some(range) => range.as_str().and_then(|range| range.parse().ok()).ok_or_else(|| {
            CpiError::cloud(format!("the network '{name}' has 'cloud_properties.range' {range}, which is no subnet"))
        })?,
    };
    let range = range.trunc();
    check_size(range).map_err(|why| CpiError::cloud(format!("the network '{name}' {why}")))?;
    let machine = first(range);
    let carried = network.ip.as_deref().and_then(|ip| ip.parse().ok()).filter(|ip| range.contains(ip));
    let usable = |address: &IpAddr| {
        *address != machine
            && *address != range.network()
            && *address != range.broadcast()
            && !taken.contains(address)
            && !surroundings.holders.contains_key(address)
            && !surroundings.machines.contains(address)
            && is_free(*address)
    };
    let address = carried.into_iter().chain(candidates(range, surroundings.seed)).find(usable).ok_or_else(|| {
        CpiError::cloud(format!(
            "found no free address in {range} for the dynamic network '{name}'; give it a larger range"
        ))
    })?;
    network.ip = Some(address.to_string());
    network.netmask = Some(range.netmask().to_string());
    network.gateway = Some(machine.to_string());
    Ok((address, range))
}

/// Addresses of `range`, spread by the VM's id, so that VMs that are made at the same time try different ones.
fn candidates(range: IpNet, seed: Uuid) -> impl Iterator<Item = IpAddr> {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    let size = 1u128.checked_shl(bits).unwrap_or(u128::MAX);
    let start = seed.as_u128() % size;
    (0..size.min(CANDIDATES)).map(move |step| nth(range, start.wrapping_add(step) % size))
}

fn nth(range: IpNet, offset: u128) -> IpAddr {
    match range.network() {
        IpAddr::V4(ip) => {
            IpAddr::V4(Ipv4Addr::from(u32::from(ip).wrapping_add(u32::try_from(offset).unwrap_or(u32::MAX))))
        }
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip).wrapping_add(offset))),
    }
}

/// The first address of a subnet that anything can have.
pub(crate) fn first(subnet: IpNet) -> IpAddr {
    nth(subnet, 1)
}

/// The last address of a subnet that anything can have.
fn last(subnet: IpNet) -> IpAddr {
    match subnet.broadcast() {
        IpAddr::V4(ip) => IpAddr::V4(Ipv4Addr::from(u32::from(ip) - 1)),
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip) - 1)),
    }
}

/// The gateway of the network that is the default for it, per family. A VM with one network needs not say so.
fn gateways(networks: &Networks) -> Vec<IpAddr> {
    let real = || networks.values().filter(|network| network.kind != NetworkKind::Vip);
    let is_only = real().count() == 1;
    let mut gateways: Vec<IpAddr> = Vec::new();
    for network in real().filter(|network| is_only || network.is_default_for("gateway")) {
        let gateway = network.gateway.as_deref().and_then(|gateway| gateway.parse::<IpAddr>().ok());
        gateways.extend(gateway.filter(|gateway| !gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4())));
    }
    gateways
}

/// The name servers of the network that is the default for them, or else of all networks.
fn name_servers(networks: &Networks) -> Vec<String> {
    let of = |network: &Network| network.dns.clone().unwrap_or_default();
    let chosen: Vec<String> = networks.values().filter(|network| network.is_default_for("dns")).flat_map(of).collect();
    let mut servers = if chosen.is_empty() { networks.values().flat_map(of).collect() } else { chosen };
    // They become lines of a file.
    servers.retain(|server: &String| server.parse::<IpAddr>().is_ok());
    servers.dedup();
    servers
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn surroundings<'a>() -> Surroundings<'a> {
        Surroundings {
            state: Path::new("/state"),
            dynamic_range: "10.246.0.0/29".parse().unwrap(),
            outbound: false,
            seed: Uuid::nil(),
            holders: BTreeMap::from([(ip("10.0.0.9"), VmCid::new("vm-9").unwrap())]),
            machines: BTreeSet::from([ip("10.0.0.1")]),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn planned(networks: serde_json::Value) -> Result<Plan, CpiError> {
        plan(serde_json::from_value(networks).unwrap(), &surroundings(), |_| true)
    }

    fn manual(ip: &str) -> serde_json::Value {
        json!({"type": "manual", "ip": ip, "netmask": "255.255.255.0", "gateway": "10.0.0.1", "default": ["gateway"]})
    }

    #[test]
    fn what_cannot_be_is_refused_and_the_remedy_named() {
        for (networks, words) in [
            (json!({}), "at least one network"),
            (json!({"a": {"type": "vip", "ip": "10.1.0.1"}}), "at least one network that is not"),
            (json!({"a": {"ip": "127.0.0.5", "netmask": "255.0.0.0"}}), "process isolation"),
            (json!({"a": {"ip": "224.0.0.5", "netmask": "255.0.0.0"}}), "no VM can have"),
            (json!({"a": {"ip": "10.0.0.5"}}), "no netmask"),
            (json!({"a": {"ip": "10.0.0.5", "netmask": "255.0.255.0"}}), "does not go with"),
            (json!({"a": {"ip": "10.0.0.5", "netmask": "ffff::"}}), "does not go with"),
            (json!({"a": {"ip": "10.0.0.5", "netmask": "0.0.0.0"}}), "8 to 30 bits"),
            (json!({"a": {"ip": "10.0.0.0", "netmask": "255.255.255.0"}}), "first or last"),
            (json!({"a": {"ip": "10.0.0.255", "netmask": "255.255.255.0"}}), "first or last"),
            (json!({"a": {"ip": "10.0.0.5", "netmask": "255.255.255.0", "gateway": "10.0.1.1"}}), "not in 10.0.0.0/24"),
            (json!({"a": {"ip": "10.0.0.254", "netmask": "255.255.255.0"}}), "this machine's own"),
            (json!({"a": {"ip": "nonsense", "netmask": "255.255.255.0"}}), "no address"),
            (json!({"a": manual("10.0.0.9")}), "taken by VM 'vm-9'"),
            (json!({"a": {"ip": "10.0.0.1", "netmask": "255.255.255.0"}}), "taken by this machine"),
            (json!({"a": manual("10.0.0.5"), "b": manual("10.0.0.5")}), "given twice"),
            (json!({"a": {"type": "dynamic", "cloud_properties": {"range": "x"}}}), "no subnet"),
        ] {
            let error = planned(networks).unwrap_err().message;
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_vm_has_one_interface_per_subnet_and_the_way_out_first() {
        let plan = planned(json!({
            "a": {"ip": "10.3.0.5", "netmask": "255.255.0.0", "dns": ["10.3.0.2"]},
            "b": manual("10.0.0.5"),
            "c": {"ip": "10.3.7.7", "netmask": "255.255.0.0"},
            "d": {"ip": "fd00::5", "netmask": "ffff:ffff:ffff:ffff::", "gateway": "fd00::1", "default": ["gateway"]},
            "e": {"type": "vip", "ip": "192.0.2.7"},
        }))
        .unwrap();
        let interfaces = &plan.wiring.interfaces;
        let subnets: Vec<String> = interfaces.iter().map(|interface| interface.subnet.to_string()).collect();
        assert_eq!(subnets, ["10.0.0.0/24", "fd00::/64", "10.3.0.0/16"]);
        assert_eq!(interfaces[2].addresses, [ip("10.3.0.5"), ip("10.3.7.7")]);
        let machines: Vec<IpAddr> = interfaces.iter().map(|interface| interface.machine).collect();
        assert_eq!(machines, [ip("10.0.0.1"), ip("fd00::1"), ip("10.3.255.254")]);
        assert_eq!(plan.wiring.gateways, [ip("10.0.0.1"), ip("fd00::1")]);
        assert_eq!((plan.wiring.vips, plan.addresses[0]), (vec![ip("192.0.2.7")], ip("10.0.0.5")));
        assert_eq!(plan.wiring.name_servers, ["10.3.0.2"]);
    }

    #[test]
    fn the_machine_leaves_a_gateway_that_is_a_vm_alone() {
        let plan = planned(json!({"a": {"ip": "10.0.0.5", "netmask": "24", "gateway": "10.0.0.9"}})).unwrap();
        assert_eq!(plan.wiring.interfaces[0].machine, ip("10.0.0.254"));
        assert_eq!(plan.wiring.gateways, [ip("10.0.0.9")]);
    }

    #[test]
    fn dynamic_networks_get_what_is_free_and_are_told() {
        let mut surroundings = surroundings();
        let mut given = BTreeSet::new();
        let dynamic: Networks = serde_json::from_value(json!({"a": {"type": "dynamic"}})).unwrap();
        for number in 0..5 {
            surroundings.seed = Uuid::from_u128(number * 7);
            let plan = plan(dynamic.clone(), &surroundings, |_| true).unwrap();
            assert_eq!(plan.networks["a"].ip.as_deref(), Some(plan.addresses[0].to_string().as_str()));
            assert_eq!(plan.networks["a"].netmask.as_deref(), Some("255.255.255.248"));
            assert_eq!(plan.wiring.gateways, [ip("10.246.0.1")]);
            assert!(given.insert(plan.addresses[0]));
            surroundings.holders.insert(plan.addresses[0], VmCid::new("vm-1").unwrap());
        }
        assert!(!given.contains(&ip("10.246.0.1")), "that is this machine");
        let full = plan(dynamic.clone(), &surroundings, |_| true).unwrap_err().message;
        assert!(full.contains("no free address in 10.246.0.0/29"), "{full}");
        surroundings.dynamic_range = "fd00:1::/64".parse().unwrap();
        surroundings.seed = Uuid::from_u128(u128::MAX);
        let plan = plan(dynamic, &surroundings, |address| address != ip("fd00:1::2")).unwrap();
        assert!(surroundings.dynamic_range.contains(&plan.addresses[0]));
    }
}
