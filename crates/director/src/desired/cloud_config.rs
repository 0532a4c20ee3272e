//! The cloud config: what the clouds offer.

use std::net::IpAddr;

use ipnet::IpNet;
use windlass_contract::Object;
use windlass_manifest::{At, Document, Problem, Problems};

use super::{AddressRange, object, optional_text, text, texts};

/// All cloud configs together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CloudConfig {
    /// Availability zones.
    pub azs: Vec<Az>,
    /// Sizes of VMs.
    pub vm_types: Vec<VmType>,
    /// Extra properties of VMs.
    pub vm_extensions: Vec<VmType>,
    /// Sizes of disks.
    pub disk_types: Vec<DiskType>,
    /// Networks.
    pub networks: Vec<NetworkDefinition>,
}

/// An availability zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Az {
    /// Name.
    pub name: String,
    /// The CPI that serves it; the default one when it does not say.
    pub cpi: Option<String>,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A size of VM, or an extension of one.
#[derive(Debug, Clone, PartialEq)]
pub struct VmType {
    /// Name.
    pub name: String,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A size of disk.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskType {
    /// Name.
    pub name: String,
    /// In MiB.
    pub size: u64,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A network.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkDefinition {
    /// Name.
    pub name: String,
    /// Who chooses addresses, and from what.
    pub placement: NetworkPlacement,
}

/// Who chooses the addresses of a network.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkPlacement {
    /// The director, from these subnets.
    Manual(Vec<Subnet>),
    /// The cloud.
    Dynamic {
        /// Name servers.
        dns: Vec<String>,
        /// What only the cloud understands.
        cloud_properties: Object,
    },
}

/// A subnet of a manual network.
#[derive(Debug, Clone, PartialEq)]
pub struct Subnet {
    /// Its addresses.
    pub range: IpNet,
    /// Its gateway.
    pub gateway: Option<IpAddr>,
    /// Addresses that are never used.
    pub reserved: Vec<AddressRange>,
    /// Addresses that are used only when asked for by name.
    pub statics: Vec<AddressRange>,
    /// Name servers.
    pub dns: Vec<String>,
    /// Zones that it reaches; none for any.
    pub azs: Vec<String>,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// What a cloud config may have.
const KEYS: [&str; 6] = ["azs", "vm_types", "vm_extensions", "disk_types", "networks", "compilation"];

impl CloudConfig {
    /// Reads and adds one config; several are concatenated key by key.
    pub fn read(&mut self, document: &Document) -> Result<(), Problems> {
        let mut problems = Problems::new();
        let root = document.root();
        let keys = root.entries().map_err(|problem| {
            let mut problems = Problems::new();
            problems.push(problem);
            problems
        })?;
        if !keys.iter().any(|(key, _)| KEYS.contains(key)) {
            problems.push(root.problem(format!("is no cloud config: it has none of {}", KEYS.join(", "))));
        }
        let known_azs: Vec<String>;
        {
            let mut each = |key: &str, read: &mut dyn FnMut(&At<'_>) -> Result<(), Problem>| {
                for at in problems.check(root.optional_list(key)).unwrap_or_default() {
                    problems.check(read(&at));
                }
            };
            each("azs", &mut |at| {
                let az = Az {
                    name: text(&at.field("name")?)?,
                    cpi: optional_text(at, "cpi")?,
                    cloud_properties: object(at, "cloud_properties")?,
                };
                add(&mut self.azs, az, |az| &az.name, at)
            });
            each("vm_types", &mut |at| add(&mut self.vm_types, vm_type(at)?, |vm_type| &vm_type.name, at));
            each("vm_extensions", &mut |at| add(&mut self.vm_extensions, vm_type(at)?, |vm_type| &vm_type.name, at));
            each("disk_types", &mut |at| {
                let disk_type = DiskType {
                    name: text(&at.field("name")?)?,
                    size: at.field("disk_size")?.unsigned()?,
                    cloud_properties: object(at, "cloud_properties")?,
                };
                add(&mut self.disk_types, disk_type, |disk_type| &disk_type.name, at)
            });
            known_azs = self.azs.iter().map(|az| az.name.clone()).collect();
            each("networks", &mut |at| {
                let network = network(at, &known_azs)?;
                add(&mut self.networks, network, |network| &network.name, at)
            });
        }
        problems.into_result(())
    }
}

fn add<T>(to: &mut Vec<T>, new: T, name: impl Fn(&T) -> &String, at: &At<'_>) -> Result<(), Problem> {
    if to.iter().any(|other| name(other) == name(&new)) {
        return Err(at.problem(format!("the name '{}' is taken already", name(&new))));
    }
    to.push(new);
    Ok(())
}

fn vm_type(at: &At<'_>) -> Result<VmType, Problem> {
    Ok(VmType { name: text(&at.field("name")?)?, cloud_properties: object(at, "cloud_properties")? })
}

fn network(at: &At<'_>, azs: &[String]) -> Result<NetworkDefinition, Problem> {
    let name = text(&at.field("name")?)?;
    let kind = optional_text(at, "type")?.unwrap_or_else(|| "manual".into());
    let placement = match kind.as_str() {
        "manual" => NetworkPlacement::Manual(subnets(at, azs)?),
        "dynamic" => {
            NetworkPlacement::Dynamic { dns: texts(at, "dns")?, cloud_properties: object(at, "cloud_properties")? }
        }
        other => {
            return Err(at
                .field("type")?
                .problem(format!("'{other}' networks are not supported; use manual or dynamic")));
        }
    };
    Ok(NetworkDefinition { name, placement })
}

fn subnets(at: &At<'_>, azs: &[String]) -> Result<Vec<Subnet>, Problem> {
    let mut subnets: Vec<Subnet> = Vec::new();
    for at in at.field("subnets")?.list()? {
        let subnet = subnet(&at, azs)?;
        let range = AddressRange::of(subnet.range);
        if let Some(other) = subnets.iter().find(|other| AddressRange::of(other.range).overlaps(&range)) {
            return Err(at.problem(format!("the range {} overlaps {}", subnet.range, other.range)));
        }
        subnets.push(subnet);
    }
    Ok(subnets)
}

fn subnet(at: &At<'_>, known_azs: &[String]) -> Result<Subnet, Problem> {
    let range_at = at.field("range")?;
    let range: IpNet = text(&range_at)?
        .parse()
        .map_err(|_| range_at.problem("expected a range such as 10.0.0.0/24"))
        .map(|net: IpNet| net.trunc())?;
    let whole = AddressRange::of(range);
    let gateway = at
        .optional("gateway")?
        .map(|at| {
            let gateway: IpAddr = text(&at)?.parse().map_err(|_| at.problem("expected an address"))?;
            if whole.contains(gateway) { Ok(gateway) } else { Err(at.problem(format!("is not in the range {range}"))) }
        })
        .transpose()?;
    let reserved = ranges(at, "reserved", &whole)?;
    let statics = ranges(at, "static", &whole)?;
    let mut azs = texts(at, "azs")?;
    azs.extend(optional_text(at, "az")?);
    if let Some(unknown) = azs.iter().find(|az| !known_azs.contains(az)) {
        return Err(at.problem(format!("the az '{unknown}' is not in the cloud config")));
    }
    let cloud_properties = object(at, "cloud_properties")?;
    Ok(Subnet { range, gateway, reserved, statics, dns: texts(at, "dns")?, azs, cloud_properties })
}

/// A list of ranges, or a single one.
fn ranges(at: &At<'_>, name: &str, whole: &AddressRange) -> Result<Vec<AddressRange>, Problem> {
    let Some(found) = at.optional(name)? else { return Ok(Vec::new()) };
    let elements = found.list().unwrap_or_else(|_| vec![found.clone()]);
    elements
        .iter()
        .map(|at| {
            let range = AddressRange::parse(&text(at)?).map_err(|error| at.problem(error))?;
            if whole.contains_range(&range) { Ok(range) } else { Err(at.problem("is not in the subnet's range")) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<CloudConfig, String> {
        let document = Document::parse(yaml).map_err(|error| error.to_string())?;
        let mut config = CloudConfig::default();
        config.read(&document).map_err(|problems| problems.to_string())?;
        Ok(config)
    }

    #[test]
    fn a_cloud_config_is_read() {
        let config = read(
            "azs:\n- name: z1\n  cloud_properties: {zone: a}\nvm_types:\n- name: small\ndisk_types:\n- name: d\n  disk_size: 1024\nnetworks:\n- name: n\n  subnets:\n  - range: 10.0.0.0/24\n    gateway: 10.0.0.1\n    reserved: [10.0.0.2 - 10.0.0.9]\n    static: 10.0.0.20\n    azs: [z1]\n- name: d\n  type: dynamic\n",
        )
        .unwrap();
        assert_eq!(config.azs[0].cloud_properties["zone"], "a");
        let NetworkPlacement::Manual(subnets) = &config.networks[0].placement else { panic!("manual") };
        assert_eq!(subnets[0].statics.len(), 1);
        assert!(matches!(config.networks[1].placement, NetworkPlacement::Dynamic { .. }));
    }

    #[test]
    fn another_document_is_not_taken_for_a_cloud_config() {
        assert!(read("name: redis\n").unwrap_err().contains("is no cloud config"));
        assert_eq!(read("").unwrap_err().lines().count(), 1);
    }

    #[test]
    fn all_problems_are_named_at_once_with_path_and_line() {
        let problems = read(
            "azs:\n- name: z1\n- name: z1\ndisk_types:\n- name: d\n  disk_size: -5\nnetworks:\n- name: n\n  subnets:\n  - range: 10.0.0.0/24\n    gateway: 10.1.0.1\n",
        )
        .unwrap_err();
        for expected in [
            "azs[1]: the name 'z1' is taken",
            "disk_types[0].disk_size",
            "networks[0].subnets[0].gateway: is not in the range",
            "line 11",
        ] {
            assert!(problems.contains(expected), "{expected} in: {problems}");
        }
    }
}
