//! Which interfaces a new VM gets, and which addresses they have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use windlass_contract::Networks;
use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_contract::network::{Network, NetworkKind};

use crate::client::{self, Devices, Settings};
use crate::fault::Fault;
use crate::session::Session;

/// `cloud_properties` of a network or subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkProperties {
    /// A network that the daemon manages: a bridge or OVN.
    network: Option<String>,
    /// A bridge or card of the members' own.
    parent: Option<String>,
    /// What `parent` is: `bridged`, `macvlan` or `physical`.
    nictype: Option<String>,
    vlan: Option<u16>,
    /// Whether the VM may only use its own addresses.
    #[serde(default)]
    filtering: bool,
    /// Whether the address is noted in the managed network.
    reserve_address: Option<bool>,
    /// The member or group that the subnet is on.
    target: Option<String>,
    /// That VMs of different members do not reach each other is meant.
    #[serde(default)]
    local: bool,
}

/// An interface of a VM, as its inside sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    pub(crate) gateways: Vec<IpAddr>,
    pub(crate) name_servers: Vec<String>,
}

/// What a VM gets.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) devices: Devices,
    pub(crate) interfaces: Vec<Interface>,
    /// With the addresses that were chosen here, and MACs.
    pub(crate) networks: Networks,
    /// The member or group that a subnet is on.
    pub(crate) target: Option<String>,
}

/// Plans the interfaces of the VM `vm`: one per `nic_group`, per managed network, and per other network.
pub(crate) async fn plan(session: &Session, vm: &str, networks: Networks) -> Result<Plan, Fault> {
    if networks.is_empty() {
        return Err(Fault::cloud("a VM needs at least one network"));
    }
    let mut plan = Plan { devices: Devices::new(), interfaces: Vec::new(), networks, target: None };
    let some_is_gateway = plan.networks.values().any(|network| network.is_default_for("gateway"));
    let mut cards: BTreeMap<String, usize> = BTreeMap::new();
    for (name, network) in &mut plan.networks {
        if network.kind == NetworkKind::Vip {
            let words = format!("the network '{name}' is a vip network, and this cloud has none; remove it");
            return Err(CpiError::new(ErrorType::NotSupported, words).into());
        }
        let properties: NetworkProperties = serde_json::from_value(Value::Object(network.cloud_properties.clone()))
            .map_err(|error| Fault::cloud(format!("cloud_properties of the network '{name}': {error}")))?;
        let (mut device, managed) = card(session, name, &properties).await?;
        // An instance has one interface on a managed network, so networks that share one share the interface.
        let group = match (network.other.get("nic_group").and_then(Value::as_str), device.get("network")) {
            (Some(group), _) => format!("group {group}"),
            (None, Some(bridge)) => format!("network {bridge}"),
            (None, None) => format!("own {name}"),
        };
        let index = *cards.entry(group).or_insert(plan.interfaces.len());
        let (ip, length) = address(session, name, network, managed.as_ref()).await?;
        if let Some(target) = &properties.target {
            plan.target = Some(target.clone());
        }
        if index == plan.interfaces.len() {
            let mac = mac(vm, index);
            device.insert("hwaddr".to_owned(), mac);
            device.insert("name".to_owned(), format!("eth{index}"));
            plan.interfaces.push(Interface {
                name: format!("eth{index}"),
                addresses: Vec::new(),
                gateways: Vec::new(),
                name_servers: Vec::new(),
            });
            plan.devices.insert(format!("eth{index}"), device);
        }
        let device = plan.devices.entry(format!("eth{index}")).or_default();
        reserve(device, &properties, managed.as_ref(), ip);
        let interface = &mut plan.interfaces[index];
        interface.addresses.push((ip, length));
        interface.name_servers.extend(network.dns.iter().flatten().cloned());
        if !some_is_gateway || network.is_default_for("gateway") {
            let gateway = network.gateway.as_deref().and_then(|gateway| gateway.parse::<IpAddr>().ok());
            interface.gateways.extend(gateway);
        }
        network.ip = Some(ip.to_string());
        network.preconfigured = Some(true);
        let mac = device.get("hwaddr").cloned().unwrap_or_default();
        network.other.insert("mac".to_owned(), json!(mac));
    }
    Ok(plan)
}

/// The device of a network, and the managed network that it is on.
async fn card(
    session: &Session,
    name: &str,
    properties: &NetworkProperties,
) -> Result<(Settings, Option<client::Network>), Fault> {
    let mut device = Settings::from([("type".to_owned(), "nic".to_owned())]);
    if let Some(vlan) = properties.vlan {
        device.insert("vlan".to_owned(), vlan.to_string());
    }
    if let Some(parent) = &properties.parent {
        if properties.network.is_some() {
            return Err(Fault::cloud(format!("the network '{name}' has 'network' and 'parent'; give one of them")));
        }
        let nictype = properties.nictype.as_deref().unwrap_or("bridged");
        if !["bridged", "macvlan", "physical"].contains(&nictype) {
            return Err(Fault::cloud(format!(
                "the network '{name}' has the nictype '{nictype}'; use bridged, macvlan or physical"
            )));
        }
        device.insert("nictype".to_owned(), nictype.to_owned());
        device.insert("parent".to_owned(), parent.clone());
        return Ok((device, None));
    }
    let Some(network) = properties.network.as_ref().or(session.config.network.as_ref()) else {
        return Err(Fault::cloud(format!(
            "the network '{name}' names no network of the cluster; give 'network' or 'parent' in its cloud_properties, or \
             'network' in the CPI's configuration"
        )));
    };
    let mut managed = match session.client.network(network).await {
        Ok(managed) => managed,
        Err(error) if error.is_missing() => {
            return Err(Fault::cloud(format!(
                "there is no network '{network}', which the network '{name}' names; make it in the cluster, or name another"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if !managed.managed {
        return Err(Fault::cloud(format!(
            "'{network}', which the network '{name}' names, is not managed by the cluster; name it as 'parent'"
        )));
    }
    // A certificate that is confined to a project is told no configuration.
    if managed.config.is_empty() {
        let range = session.client.range_of_network(network).await?;
        managed.config.extend(range.map(|range| ("ipv4.address".to_owned(), range)));
    }
    if !properties.local && properties.target.is_none() {
        must_span_members(session, &managed.kind, &format!("'{network}' of the network '{name}'"))?;
    }
    device.insert("network".to_owned(), network.clone());
    if properties.filtering {
        let filters: &[&str] = match managed.kind.as_str() {
            "bridge" => &["security.mac_filtering", "security.ipv4_filtering"],
            _ => &["security.mac_filtering"],
        };
        device.extend(filters.iter().map(|filter| ((*filter).to_owned(), "true".to_owned())));
    }
    Ok((device, Some(managed)))
}

/// Refuses a network in which VMs of different members would not reach each other.
pub(crate) fn must_span_members(session: &Session, kind: &str, what: &str) -> Result<(), Fault> {
    match session.server.is_clustered && kind == "bridge" {
        true => Err(Fault::cloud(format!(
            "{what} is a bridge of its own on each member, so VMs of different members do not reach each other; use a bridge on \
             the members' LAN ('parent') or an OVN network, or say 'local: true' or 'target'"
        ))),
        false => Ok(()),
    }
}

/// Notes an address in a managed network: a second VM on the same member with the same one does not start.
fn reserve(device: &mut Settings, properties: &NetworkProperties, managed: Option<&client::Network>, ip: IpAddr) {
    let takes = managed.is_some_and(|managed| {
        let has_range = subnet(managed).is_some_and(|subnet| matches!(ip, IpAddr::V4(ip) if subnet.contains(&ip)));
        has_range && managed.config.get("ipv4.dhcp").is_none_or(|dhcp| dhcp != "false")
    });
    if takes && properties.reserve_address != Some(false) {
        device.entry("ipv4.address".to_owned()).or_insert_with(|| ip.to_string());
    }
}

/// Takes back what was noted.
pub(crate) fn forget_reservations(devices: &mut Devices) {
    for device in devices.values_mut() {
        device.remove("ipv4.address");
    }
}

fn subnet(managed: &client::Network) -> Option<Ipv4Net> {
    managed.config.get("ipv4.address")?.parse().ok()
}

/// The ranges of a managed network, each with the server's own address in it.
pub(crate) fn ranges(managed: &client::Network) -> impl Iterator<Item = IpNet> {
    ["ipv4.address", "ipv6.address"].into_iter().filter_map(|key| managed.config.get(key)?.parse().ok())
}

/// The address that the caller chose, or a free one of the managed network.
async fn address(
    session: &Session,
    name: &str,
    network: &mut Network,
    managed: Option<&client::Network>,
) -> Result<(IpAddr, u8), Fault> {
    if network.kind == NetworkKind::Dynamic {
        let Some(subnet) = managed.and_then(subnet) else {
            return Err(Fault::cloud(format!(
                "the network '{name}' is dynamic, and only a managed network with an IPv4 range has addresses to give; make it \
                 manual, or name such a network"
            )));
        };
        let ip = free_address(session, subnet, name).await?;
        network.netmask = Some(subnet.netmask().to_string());
        network.gateway.get_or_insert_with(|| subnet.addr().to_string());
        return Ok((IpAddr::V4(ip), subnet.prefix_len()));
    }
    let Some(text) = &network.ip else { return Err(Fault::cloud(format!("the network '{name}' has no ip"))) };
    let Ok(ip) = text.parse::<IpAddr>() else {
        return Err(Fault::cloud(format!("the network '{name}' has the ip '{text}', which is no address")));
    };
    let whole = if ip.is_ipv4() { 32 } else { 128 };
    let Some(mask) = &network.netmask else { return Ok((ip, whole)) };
    let length = mask.parse::<IpAddr>().ok().and_then(|mask| ipnet::ip_mask_to_prefix(mask).ok());
    match length.filter(|length| *length <= whole) {
        Some(length) => Ok((ip, length)),
        None => Err(Fault::cloud(format!("the network '{name}' has the netmask '{mask}', which is none"))),
    }
}

/// How often another address is tried.
const TRIES: usize = 256;

/// An address of a managed network that no VM of the project has. What others have there, the daemon knows: the VM does not
/// start then, and the next try takes another one.
async fn free_address(session: &Session, subnet: Ipv4Net, name: &str) -> Result<Ipv4Addr, Fault> {
    let instances = session.client.instances().await?;
    let taken: BTreeSet<&str> = instances
        .iter()
        .flat_map(|instance| instance.devices.values())
        .filter_map(|device| device.get("ipv4.address").map(String::as_str))
        .collect();
    let own = subnet.addr();
    let hosts = u64::from(u32::from(subnet.broadcast())) - u64::from(u32::from(subnet.network()));
    for _ in 0..TRIES {
        let step = (Uuid::new_v4().as_u128() % u128::from(hosts.max(2) - 1)) as u32 + 1;
        let ip = Ipv4Addr::from(u32::from(subnet.network()).wrapping_add(step));
        if ip != own && ip != subnet.broadcast() && !taken.contains(ip.to_string().as_str()) {
            return Ok(ip);
        }
    }
    Err(Fault::cloud(format!("found no free address in {subnet} for the dynamic network '{name}'")))
}

/// The same again for the same VM, so that a repeated call plans the same device.
fn mac(vm: &str, index: usize) -> String {
    let hash = Sha256::digest(format!("{vm} {index}"));
    format!("00:16:3e:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2])
}
