//! Networks of the cloud config.

use std::net::IpAddr;

use ipnet::IpNet;
use windlass_contract::Object;
use windlass_manifest::{At, Problem};

use super::AddressRange;
use super::fields::{Fields, text};
use super::findings::{Findings, Place, Placed};
use crate::weight;

#[derive(Debug, Clone, PartialEq)]
pub struct NetworkDefinition {
    pub name: String,
    pub placement: NetworkPlacement,
}

/// What chooses the addresses of a network.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkPlacement {
    /// The director, from these subnets.
    Manual(Vec<Subnet>),
    /// The cloud.
    Dynamic(Vec<DynamicSubnet>),
    /// The operator, or the director from what the operator lists; the cloud routes them to the VM.
    Vip {
        /// What the director may choose from; none when each group names its own.
        pool: Vec<AddressRange>,
        /// What only the cloud understands.
        cloud_properties: Object,
    },
}

/// A subnet of a manual network.
#[derive(Debug, Clone, PartialEq)]
pub struct Subnet {
    pub range: IpNet,
    pub gateway: Option<IpAddr>,
    /// Addresses that are never used: reserved ones, the gateway, the subnet's own id, its broadcast address.
    pub reserved: Vec<AddressRange>,
    /// Addresses that are used only when asked for by name.
    pub statics: Vec<AddressRange>,
    pub dns: Vec<String>,
    /// Zones that it reaches; none for any.
    pub azs: Vec<Placed<String>>,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A subnet of a dynamic network.
#[derive(Debug, Clone, PartialEq)]
pub struct DynamicSubnet {
    pub dns: Vec<String>,
    /// Zones that it reaches; none for any.
    pub azs: Vec<Placed<String>>,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

fn reaches(azs: &[Placed<String>], az: Option<&str>) -> bool {
    az.is_none_or(|az| azs.is_empty() || azs.iter().any(|reached| reached.value == az))
}

impl Subnet {
    /// Whether instances of a zone can be in it.
    pub fn reaches(&self, az: Option<&str>) -> bool {
        reaches(&self.azs, az)
    }

    /// Whether an instance may have the address without having asked for it.
    pub fn offers(&self, address: IpAddr) -> bool {
        self.contains(address) && !has(&self.reserved, address) && !self.is_static(address)
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.range.contains(&address)
    }

    /// Whether the address is used only when asked for by name.
    pub fn is_static(&self, address: IpAddr) -> bool {
        has(&self.statics, address)
    }

    /// Whether the address is never used.
    pub fn is_reserved(&self, address: IpAddr) -> bool {
        has(&self.reserved, address)
    }

    /// What the director may choose from, from the lowest on.
    pub fn pool(&self) -> Vec<AddressRange> {
        let excluded: Vec<_> = self.reserved.iter().chain(&self.statics).copied().collect();
        AddressRange::of(self.range).without(&excluded)
    }
}

impl NetworkDefinition {
    /// What a copy takes of memory.
    pub(super) fn weight(&self) -> usize {
        let of_subnet = |dns: &[String], azs: &[Placed<String>], ranges: usize, cloud_properties: &Object| {
            let azs: usize = azs.iter().map(|az| 128 + az.value.len()).sum();
            let dns: usize = dns.iter().map(|server| 32 + server.len()).sum();
            azs + dns + 48 * ranges + weight::of_object(cloud_properties)
        };
        match &self.placement {
            NetworkPlacement::Manual(subnets) => subnets
                .iter()
                .map(|it| of_subnet(&it.dns, &it.azs, it.reserved.len() + it.statics.len(), &it.cloud_properties))
                .sum(),
            NetworkPlacement::Dynamic(subnets) => {
                subnets.iter().map(|it| of_subnet(&it.dns, &it.azs, 0, &it.cloud_properties)).sum()
            }
            NetworkPlacement::Vip { pool, cloud_properties } => of_subnet(&[], &[], pool.len(), cloud_properties),
        }
    }
}

impl DynamicSubnet {
    /// Whether instances of a zone can be in it.
    pub fn reaches(&self, az: Option<&str>) -> bool {
        reaches(&self.azs, az)
    }
}

fn has(ranges: &[AddressRange], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(address))
}

impl NetworkDefinition {
    /// Zones of all its subnets, with their places.
    pub fn azs(&self) -> Vec<&Placed<String>> {
        match &self.placement {
            NetworkPlacement::Manual(subnets) => subnets.iter().flat_map(|subnet| &subnet.azs).collect(),
            NetworkPlacement::Dynamic(subnets) => subnets.iter().flat_map(|subnet| &subnet.azs).collect(),
            NetworkPlacement::Vip { .. } => Vec::new(),
        }
    }

    /// Whether instances of a zone can be in it.
    pub fn reaches(&self, az: Option<&str>) -> bool {
        match &self.placement {
            NetworkPlacement::Manual(subnets) => subnets.iter().any(|subnet| subnet.reaches(az)),
            NetworkPlacement::Dynamic(subnets) => subnets.iter().any(|subnet| subnet.reaches(az)),
            NetworkPlacement::Vip { .. } => true,
        }
    }
}

const NETWORK_KEYS: [&str; 7] = ["name", "type", "subnets", "dns", "cloud_properties", "managed", "default"];
const SUBNET_KEYS: [&str; 11] = [
    "name",
    "range",
    "gateway",
    "reserved",
    "static",
    "dns",
    "az",
    "azs",
    "cloud_properties",
    "prefix",
    "netmask_bits",
];

#[derive(Clone, Copy)]
enum Kind {
    Manual,
    Dynamic,
    Vip,
}

/// A network, as far as it can be read; its name is known to later checks even when the rest is wrong.
pub(super) fn read_network(at: &At<'_>, findings: &mut Findings) -> Option<(Placed<String>, NetworkDefinition)> {
    let mut fields = Fields::of(at, &NETWORK_KEYS, findings)?;
    let name = fields.name();
    if fields.boolean("managed") == Some(true) {
        fields.refuse("managed", "networks that the director makes are not supported; make it in the cloud");
    }
    let kinds = [("manual", Kind::Manual), ("dynamic", Kind::Dynamic), ("vip", Kind::Vip)];
    let kind = match fields.optional("type") {
        Some(_) => fields.word("type", &kinds),
        None => Some(Kind::Manual),
    };
    let placement = match kind {
        Some(Kind::Manual) => NetworkPlacement::Manual(manual(&mut fields)),
        Some(Kind::Dynamic) => NetworkPlacement::Dynamic(dynamic(&mut fields)),
        Some(Kind::Vip) => vip(&mut fields),
        // Said already; with no subnet nothing is said about it a second time.
        None => NetworkPlacement::Dynamic(vec![DynamicSubnet {
            dns: Vec::new(),
            azs: Vec::new(),
            cloud_properties: Object::new(),
        }]),
    };
    let name = name?;
    let definition = NetworkDefinition { name: name.value.clone(), placement };
    Some((name, definition))
}

fn manual(network: &mut Fields<'_, '_>) -> Vec<Subnet> {
    network.required("subnets");
    for (key, why) in [
        ("dns", "belongs into the subnets of a manual network"),
        ("cloud_properties", "belongs into the subnets of a manual network"),
    ] {
        network.refuse(key, why);
    }
    let mut subnets: Vec<Subnet> = Vec::new();
    let mut with_azs = 0;
    for at in network.list("subnets") {
        let Some(mut fields) = Fields::of(&at, &SUBNET_KEYS, network.findings()) else { continue };
        let Some(subnet) = subnet(&mut fields) else { continue };
        let range = AddressRange::of(subnet.range);
        if let Some(other) = subnets.iter().find(|other| AddressRange::of(other.range).overlaps(&range)) {
            fields.push(format!("the range {} overlaps {}", subnet.range, other.range));
            continue;
        }
        with_azs += usize::from(!subnet.azs.is_empty());
        subnets.push(subnet);
    }
    if with_azs > 0 && with_azs < subnets.len() {
        network.push("some of its subnets name azs and some do not; name them in all or in none");
    }
    subnets
}

fn subnet(fields: &mut Fields<'_, '_>) -> Option<Subnet> {
    for key in ["prefix", "netmask_bits"] {
        fields.refuse(key, "blocks of addresses per VM are not supported; remove it");
    }
    let azs = azs(fields);
    let dns = fields.addresses("dns");
    let cloud_properties = fields.object("cloud_properties");
    let range_at = fields.required("range")?;
    let range = fields.check(read_range(&range_at))?;
    let whole = AddressRange::of(range);
    let mut reserved = ranges(fields, "reserved", &whole);
    let own = |address: IpAddr| AddressRange::from(address);
    let mut never = vec![own(range.network())];
    if range.addr().is_ipv4() && range.prefix_len() < 31 {
        never.push(own(range.broadcast()));
    }
    let gateway_at = fields.optional("gateway");
    let gateway = gateway_at.and_then(|at| fields.check(read_gateway(&at, range, &never)));
    never.extend(gateway.map(own));
    reserved.iter_mut().for_each(|range| never.push(range.value));
    let mut statics = Vec::new();
    for range in ranges(fields, "static", &whole) {
        match never.iter().find(|never| never.overlaps(&range.value)) {
            Some(never) => fields.findings().push(range.problem(format!(
                "{} overlaps {never}, which is reserved, the gateway, or an end of the subnet",
                range.value
            ))),
            None => statics.push(range.value),
        }
    }
    Some(Subnet { range, gateway, reserved: never, statics, dns, azs, cloud_properties })
}

fn read_range(at: &At<'_>) -> Result<IpNet, Problem> {
    let wrong = || at.problem("expected a range such as 10.0.0.0/24 or fd00:1::/64");
    let range: IpNet = text(at)?.trim().parse().map_err(|_| wrong())?;
    if range.prefix_len() == range.max_prefix_len() {
        return Err(at.problem(format!("{range} is a single address; expected a range such as 10.0.0.0/24")));
    }
    Ok(range.trunc())
}

fn read_gateway(at: &At<'_>, range: IpNet, ends: &[AddressRange]) -> Result<IpAddr, Problem> {
    let gateway: IpAddr = text(at)?.trim().parse().map_err(|_| at.problem("expected a single address"))?;
    if !range.contains(&gateway) {
        return Err(at.problem(format!("{gateway} is not in the range {range}")));
    }
    if has(ends, gateway) {
        return Err(at.problem(format!("{gateway} is the id or the broadcast address of {range}")));
    }
    Ok(gateway)
}

/// `az` or `azs`, not both, not empty.
fn azs(fields: &mut Fields<'_, '_>) -> Vec<Placed<String>> {
    let az = fields.optional_text("az");
    let Some(list_at) = fields.optional("azs") else { return az.into_iter().collect() };
    let list = fields.texts("azs");
    if az.is_some() {
        fields.refuse("azs", "give either 'az' or 'azs'");
    }
    if list_at.list().is_ok_and(|list| list.is_empty()) {
        fields.refuse("azs", "is empty; name the zones, or remove it for all zones");
    }
    az.into_iter().chain(list).collect()
}

/// A list of ranges, or a single one, each within the subnet.
fn ranges(fields: &mut Fields<'_, '_>, name: &str, whole: &AddressRange) -> Vec<Placed<AddressRange>> {
    let mut found = read_ranges(fields, name);
    found.retain(|range| {
        let inside = whole.contains_range(&range.value);
        if !inside {
            fields.findings().push(range.problem(format!("{} is not in the subnet's range {whole}", range.value)));
        }
        inside
    });
    found
}

/// A list of ranges, or a single one.
pub(super) fn read_ranges(fields: &mut Fields<'_, '_>, name: &str) -> Vec<Placed<AddressRange>> {
    let Some(found) = fields.optional(name) else { return Vec::new() };
    let elements = found.list().unwrap_or_else(|_| vec![found.clone()]);
    let parse = |at: &At<'_>| {
        let value = AddressRange::parse(&text(at)?).map_err(|error| at.problem(error))?;
        Ok(Placed { value, place: Place::of(at) })
    };
    elements.iter().filter_map(|at| fields.check(parse(at))).collect()
}

fn dynamic(network: &mut Fields<'_, '_>) -> Vec<DynamicSubnet> {
    if network.optional("subnets").is_none() {
        let (dns, cloud_properties) = (network.addresses("dns"), network.object("cloud_properties"));
        return vec![DynamicSubnet { dns, azs: Vec::new(), cloud_properties }];
    }
    for key in ["dns", "cloud_properties"] {
        network.refuse(key, "belongs into the subnets, because this network has some");
    }
    let mut subnets = Vec::new();
    for at in network.list("subnets") {
        let known = ["name", "dns", "az", "azs", "cloud_properties"];
        let Some(mut fields) = Fields::of(&at, &known, network.findings()) else { continue };
        let (dns, azs) = (fields.addresses("dns"), azs(&mut fields));
        subnets.push(DynamicSubnet { dns, azs, cloud_properties: fields.object("cloud_properties") });
    }
    subnets
}

fn vip(network: &mut Fields<'_, '_>) -> NetworkPlacement {
    let mut pool: Vec<AddressRange> = Vec::new();
    for at in network.list("subnets") {
        let Some(mut fields) = Fields::of(&at, &["static", "az", "azs"], network.findings()) else { continue };
        for range in read_ranges(&mut fields, "static") {
            match pool.iter().find(|other| other.overlaps(&range.value)) {
                Some(other) => {
                    fields.findings().push(range.problem(format!("{} overlaps {other}", range.value)));
                }
                None => pool.push(range.value),
            }
        }
    }
    NetworkPlacement::Vip { pool, cloud_properties: network.object("cloud_properties") }
}
