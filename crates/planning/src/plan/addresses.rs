//! Which addresses an instance gets.

use std::collections::BTreeMap;
use std::net::IpAddr;

use windlass_contract::network::NetworkKind;
use windlass_contract::{Network, Networks};

use crate::desired::{AddressRange, DesiredGroup, DesiredNetwork, NetworkPlacement, Subnet, Zone};

/// Addresses with their holders. Grows while a plan is made; nothing is given back, because what is removed by a plan still
/// exists when the plan begins.
pub(super) struct Addresses {
    taken: BTreeMap<IpAddr, String>,
    /// What is left of each subnet, by network and number. An address that was passed over is never looked at again, so
    /// that planning costs as much as there are instances.
    pools: BTreeMap<(String, usize), Box<dyn Iterator<Item = IpAddr>>>,
    /// How many free addresses of each subnet are taken last: others, who plan at the same time, take the lowest ones.
    left_to_others: usize,
}

/// Whose networks are assigned.
pub(super) struct AddressRequest<'a> {
    /// `deployment/group/uuid`, as it is on record.
    pub(super) holder: &'a str,
    pub(super) zone: &'a Zone,
    /// Addresses that it asks for, by network.
    pub(super) statics: &'a BTreeMap<String, IpAddr>,
    pub(super) present: Option<&'a Networks>,
}

impl Addresses {
    pub(super) fn new(taken: BTreeMap<IpAddr, String>, left_to_others: usize) -> Self {
        Self { taken, pools: BTreeMap::new(), left_to_others }
    }

    /// The networks of one instance. An address that it has already is kept where it still fits.
    pub(super) fn assign(&mut self, group: &DesiredGroup, request: &AddressRequest<'_>) -> Result<Networks, String> {
        let mut assigned = Networks::new();
        for network in &group.networks {
            let kept = kept_candidates(group, network, request.present, &assigned);
            let built = self.one(network, request, &kept)?;
            assigned.insert(network.definition.name.clone(), built);
        }
        Ok(assigned)
    }

    /// The same networks with none of the addresses in `old`, for a VM beside the one that has those.
    pub(super) fn renew(
        &mut self,
        group: &DesiredGroup,
        request: &AddressRequest<'_>,
        mut networks: Networks,
        old: &Networks,
    ) -> Result<Networks, String> {
        for network in &group.networks {
            let name = &network.definition.name;
            let ip = networks.get(name).and_then(|network| network.ip.clone());
            if ip.is_some() && old.values().any(|old| old.ip == ip) {
                networks.insert(name.clone(), self.one(network, request, &[])?);
            }
        }
        Ok(networks)
    }

    fn one(
        &mut self,
        network: &DesiredNetwork,
        request: &AddressRequest<'_>,
        kept: &[IpAddr],
    ) -> Result<Network, String> {
        let name = &network.definition.name;
        let az = request.zone.az.as_deref();
        let wanted = request.statics.get(name).copied();
        let mut built = match &network.definition.placement {
            NetworkPlacement::Dynamic(subnets) => {
                let subnet = subnets.iter().find(|subnet| subnet.reaches(az));
                let subnet = subnet.ok_or_else(|| no_subnet(name, az))?;
                Network {
                    kind: NetworkKind::Dynamic,
                    prefix: Some("32".into()),
                    dns: some_list(&subnet.dns),
                    cloud_properties: subnet.cloud_properties.clone(),
                    ..Network::default()
                }
            }
            NetworkPlacement::Manual(subnets) => {
                let (address, subnet) = match wanted {
                    Some(address) => self.claim(name, subnets, az, address, request.holder)?,
                    None => self.choose(name, subnets, az, kept, request.holder)?,
                };
                manual(address, subnet)
            }
            NetworkPlacement::Vip { pool, cloud_properties } => {
                let address = match wanted {
                    Some(address) => self.take(name, address, request.holder)?,
                    None => self.choose_vip(name, pool, kept, request.holder)?,
                };
                Network {
                    kind: NetworkKind::Vip,
                    ip: Some(address.to_string()),
                    prefix: Some(host_prefix(address).into()),
                    cloud_properties: cloud_properties.clone(),
                    ..Network::default()
                }
            }
        };
        built.default = some_list(&network.default);
        if let Some(group) = &network.nic_group {
            built.other.insert("nic_group".into(), group.clone().into());
        }
        Ok(built)
    }

    /// An address that was asked for.
    fn claim<'a>(
        &mut self,
        network: &str,
        subnets: &'a [Subnet],
        az: Option<&str>,
        address: IpAddr,
        holder: &str,
    ) -> Result<(IpAddr, &'a Subnet), String> {
        let subnet = subnets.iter().filter(|subnet| subnet.reaches(az)).find(|subnet| subnet.is_static(address));
        let subnet =
            subnet.ok_or_else(|| format!("the static ip {address} of network '{network}' cannot be used in its az"))?;
        Ok((self.take(network, address, holder)?, subnet))
    }

    fn take(&mut self, network: &str, address: IpAddr, holder: &str) -> Result<IpAddr, String> {
        match self.taken.get(&address) {
            Some(other) if other != holder => Err(format!(
                "the static ip {address} of network '{network}' is in use by {other}; \
                 choose another, or deploy first without it there"
            )),
            _ => {
                self.taken.insert(address, holder.to_owned());
                Ok(address)
            }
        }
    }

    /// One that it has, or else the lowest free one.
    fn choose<'a>(
        &mut self,
        network: &str,
        subnets: &'a [Subnet],
        az: Option<&str>,
        kept: &[IpAddr],
        holder: &str,
    ) -> Result<(IpAddr, &'a Subnet), String> {
        let reachable = || subnets.iter().enumerate().filter(|(_, subnet)| subnet.reaches(az));
        for address in kept.iter().filter(|address| self.is_free_for(**address, holder)) {
            if let Some((_, subnet)) = reachable().find(|(_, subnet)| subnet.offers(*address)) {
                self.taken.insert(*address, holder.to_owned());
                return Ok((*address, subnet));
            }
        }
        for (number, subnet) in reachable() {
            if let Some(address) = self.lowest_free(network, number, || subnet.pool()) {
                self.taken.insert(address, holder.to_owned());
                return Ok((address, subnet));
            }
        }
        Err(match az {
            Some(az) => format!("network '{network}' has no free address for az '{az}'; give it another subnet"),
            None => format!("network '{network}' has no free address; give it another subnet"),
        })
    }

    fn choose_vip(
        &mut self,
        network: &str,
        pool: &[AddressRange],
        kept: &[IpAddr],
        holder: &str,
    ) -> Result<IpAddr, String> {
        let in_pool = |address: &IpAddr| pool.iter().any(|range| range.contains(*address));
        let had = kept.iter().copied().find(|address| in_pool(address) && self.is_free_for(*address, holder));
        let address = match had {
            Some(address) => Some(address),
            None => self.lowest_free(network, 0, || pool.to_vec()),
        };
        let address = address.ok_or_else(|| format!("the vip network '{network}' has no free address"))?;
        self.taken.insert(address, holder.to_owned());
        Ok(address)
    }

    fn is_free_for(&self, address: IpAddr, holder: &str) -> bool {
        self.taken.get(&address).is_none_or(|other| other == holder)
    }

    fn lowest_free(
        &mut self,
        network: &str,
        number: usize,
        pool: impl FnOnce() -> Vec<AddressRange>,
    ) -> Option<IpAddr> {
        let start = || -> Box<dyn Iterator<Item = IpAddr>> {
            let mut all = pool().into_iter().flat_map(AddressRange::iter);
            let is_free = |address: &IpAddr| !self.taken.contains_key(address);
            let last: Vec<IpAddr> = all.by_ref().filter(is_free).take(self.left_to_others).collect();
            Box::new(all.chain(last))
        };
        let left = self.pools.entry((network.to_owned(), number)).or_insert_with(start);
        left.find(|address| !self.taken.contains_key(address))
    }
}

/// What an instance has in this network; and in networks that it leaves, because a network may have been renamed.
fn kept_candidates(
    group: &DesiredGroup,
    network: &DesiredNetwork,
    present: Option<&Networks>,
    assigned: &Networks,
) -> Vec<IpAddr> {
    let Some(present) = present else { return Vec::new() };
    let address = |network: &Network| network.ip.as_ref()?.parse::<IpAddr>().ok();
    let name = &network.definition.name;
    let is_left = |name: &String| !group.networks.iter().any(|network| network.definition.name == *name);
    let same = present.get(name).and_then(address);
    let left = present.iter().filter(|(name, _)| is_left(name)).filter_map(|(_, network)| address(network));
    let is_assigned = |candidate: &IpAddr| assigned.values().any(|network| address(network) == Some(*candidate));
    same.into_iter().chain(left).filter(|candidate| !is_assigned(candidate)).collect()
}

fn no_subnet(network: &str, az: Option<&str>) -> String {
    format!("network '{network}' has no subnet for az '{}'", az.unwrap_or_default())
}

fn some_list(list: &[String]) -> Option<Vec<String>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn host_prefix(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "32" } else { "128" }
}

fn manual(address: IpAddr, subnet: &Subnet) -> Network {
    Network {
        kind: NetworkKind::Manual,
        ip: Some(address.to_string()),
        prefix: Some(host_prefix(address).into()),
        netmask: Some(subnet.range.netmask().to_string()),
        gateway: subnet.gateway.map(|gateway| gateway.to_string()),
        dns: some_list(&subnet.dns),
        cloud_properties: subnet.cloud_properties.clone(),
        ..Network::default()
    }
}
