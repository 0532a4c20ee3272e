//! Which addresses an instance gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use windlass_contract::network::NetworkKind;
use windlass_contract::{Network, Networks};

use crate::desired::{AddressRange, DesiredNetwork, NetworkPlacement, Subnet};

/// Addresses that are in use, and by whom. Grows while a plan is made.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken(pub(super) BTreeMap<IpAddr, String>);

/// The networks of one instance. An address that the instance has already is kept where it still fits.
pub(super) fn assign(
    networks: &[DesiredNetwork],
    az: Option<&str>,
    position: usize,
    holder: &str,
    present: Option<&Networks>,
    taken: &mut Taken,
) -> Result<Networks, String> {
    let mut assigned = Networks::new();
    for network in networks {
        let name = &network.definition.name;
        let had = present.and_then(|present| present.get(name)?.ip.as_ref()?.parse::<IpAddr>().ok());
        let mut built = match &network.definition.placement {
            NetworkPlacement::Dynamic { dns, cloud_properties } => Network {
                kind: NetworkKind::Dynamic,
                prefix: Some("32".into()),
                dns: some_list(dns),
                cloud_properties: cloud_properties.clone(),
                ..Network::default()
            },
            NetworkPlacement::Manual(subnets) => {
                let wanted = network.static_ips.get(position).copied();
                let (address, subnet) = choose(name, subnets, az, wanted, had, holder, taken)?;
                taken.0.insert(address, holder.to_owned());
                manual(address, subnet)
            }
        };
        built.default = some_list(&network.default);
        assigned.insert(name.clone(), built);
    }
    Ok(assigned)
}

fn some_list(list: &[String]) -> Option<Vec<String>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn manual(address: IpAddr, subnet: &Subnet) -> Network {
    Network {
        kind: NetworkKind::Manual,
        ip: Some(address.to_string()),
        prefix: Some(if address.is_ipv4() { "32" } else { "128" }.into()),
        netmask: Some(subnet.range.netmask().to_string()),
        gateway: subnet.gateway.map(|gateway| gateway.to_string()),
        dns: some_list(&subnet.dns),
        cloud_properties: subnet.cloud_properties.clone(),
        ..Network::default()
    }
}

fn choose<'a>(
    network: &str,
    subnets: &'a [Subnet],
    az: Option<&str>,
    wanted: Option<IpAddr>,
    had: Option<IpAddr>,
    holder: &str,
    taken: &Taken,
) -> Result<(IpAddr, &'a Subnet), String> {
    let reachable = || {
        subnets.iter().filter(move |subnet| match az {
            Some(az) => subnet.azs.is_empty() || subnet.azs.iter().any(|name| name == az),
            None => true,
        })
    };
    let mine_or_free = |address: IpAddr| taken.0.get(&address).is_none_or(|other| other == holder);
    if let Some(address) = wanted {
        let subnet = reachable()
            .find(|subnet| AddressRange::of(subnet.range).contains(address))
            .ok_or_else(|| format!("the static ip {address} is in no subnet of network '{network}' for its az"))?;
        if is_excluded(subnet, address) {
            return Err(format!("the static ip {address} is reserved in network '{network}'"));
        }
        return match taken.0.get(&address) {
            Some(other) if other != holder => Err(format!("the static ip {address} is in use by {other}")),
            _ => Ok((address, subnet)),
        };
    }
    let still_fits = |address: &IpAddr| {
        mine_or_free(*address)
            && reachable()
                .any(|subnet| AddressRange::of(subnet.range).contains(*address) && !is_excluded(subnet, *address))
    };
    if let Some(address) = had.filter(still_fits) {
        let subnet = reachable().find(|subnet| AddressRange::of(subnet.range).contains(address));
        return subnet.map(|subnet| (address, subnet)).ok_or_else(|| format!("network '{network}' changed"));
    }
    for subnet in reachable() {
        let mut excluded = excluded(subnet);
        excluded.extend(&subnet.statics);
        if let Some(address) =
            AddressRange::of(subnet.range).lowest_free(&excluded, |address| !taken.0.contains_key(&address))
        {
            return Ok((address, subnet));
        }
    }
    match az {
        Some(az) => Err(format!("network '{network}' has no free address for az '{az}'")),
        None => Err(format!("network '{network}' has no free address")),
    }
}

/// What no instance ever gets: the subnet's own id, its broadcast address, its gateway, what the operator reserved.
fn excluded(subnet: &Subnet) -> Vec<AddressRange> {
    let single = |address: IpAddr| AddressRange::of(address.into());
    let mut excluded = subnet.reserved.clone();
    excluded.push(single(subnet.range.network()));
    if subnet.range.addr().is_ipv4() {
        excluded.push(single(subnet.range.broadcast()));
    }
    excluded.extend(subnet.gateway.map(single));
    excluded
}

fn is_excluded(subnet: &Subnet, address: IpAddr) -> bool {
    excluded(subnet).iter().any(|range| range.contains(address))
}
