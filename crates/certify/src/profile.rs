//! What a cloud needs to be told: networks, cloud properties, sizes.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_manifest::Document;

/// A profile; everything has a default that fits the simulated and the embedded cloud.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// A tarball; without one, a minimal stemcell is built.
    pub stemcell: Option<PathBuf>,
    /// How VMs are made.
    pub vm: VmProfile,
    /// How disks are made.
    pub disk: DiskProfile,
    /// Where VMs are put.
    pub networks: NetworksProfile,
    /// What `create_network` is asked for.
    pub managed_network: ManagedNetwork,
    /// Sent in the context of every call, as the properties of a cpi-config entry are.
    pub context: Object,
    /// Laid over `context`: credentials that the cloud must refuse. Without them that check is not observed.
    pub wrong_credentials: Option<Object>,
    /// Laid over `context`: makes `info` report a lower version, where the CPI has such a setting.
    pub lower_version: Object,
    /// Seconds that one call may take.
    pub deadline: u64,
    /// Seconds that a VM may take until its agent answers, in the version table.
    pub boot: u64,
    /// How many calls run at once where calls run at once.
    pub parallel: usize,
    /// What the CPI is configured with, where that is known. No report shows its credentials.
    #[serde(skip)]
    pub configuration: Object,
}

/// How VMs are made.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VmProfile {
    /// Third argument of `create_vm`.
    pub cloud_properties: Object,
    /// What `calculate_vm_cloud_properties` is asked for.
    pub resources: Object,
}

/// How disks are made.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskProfile {
    /// MiB.
    pub size: u64,
    /// MiB, after growth.
    pub larger: u64,
    /// Second argument of `create_disk`.
    pub cloud_properties: Object,
}

/// Where VMs are put. Networks that are left out are not used; one of them must be there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworksProfile {
    /// Addresses come from the cloud.
    #[serde(default)]
    pub dynamic: Option<DynamicNetwork>,
    /// Addresses come from us.
    #[serde(default)]
    pub manual: Option<ManualNetwork>,
}

/// A network whose addresses come from the cloud.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DynamicNetwork {
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// A network whose addresses come from us.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManualNetwork {
    /// Addresses from the tenth on are used.
    pub range: IpNet,
    /// The first address of the range unless said otherwise.
    #[serde(default)]
    pub gateway: Option<IpAddr>,
    #[serde(default)]
    pub dns: Vec<IpAddr>,
    /// What only the cloud understands.
    #[serde(default)]
    pub cloud_properties: Object,
}

/// What `create_network` is asked for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ManagedNetwork {
    pub range: IpNet,
    /// In the range.
    pub gateway: IpAddr,
    /// Asked for instead of a range.
    pub netmask_bits: u8,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

/// a profile that cannot be used
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// not YAML
    #[error("the profile is not YAML")]
    Parse(#[source] Box<windlass_manifest::ParseError>),
    /// something is wrong in it
    #[error("the profile cannot be used")]
    Field(#[source] Box<windlass_manifest::Problem>),
    /// there is nowhere to put a VM
    #[error("the profile has neither a dynamic nor a manual network; VMs need one")]
    NoNetwork,
    /// the manual network is too small
    #[error("the profile's manual network {0} is too small; it needs at least 64 addresses")]
    SmallNetwork(IpNet),
}

impl Profile {
    /// Reads a profile.
    pub fn from_yaml(text: &str) -> Result<Self, ProfileError> {
        let document = Document::parse(text).map_err(|error| ProfileError::Parse(Box::new(error)))?;
        let profile: Self = document.root().decode().map_err(|error| ProfileError::Field(Box::new(error)))?;
        if profile.networks.dynamic.is_none() && profile.networks.manual.is_none() {
            return Err(ProfileError::NoNetwork);
        }
        if let Some(manual) = &profile.networks.manual
            && manual.range.hosts().nth(63).is_none()
        {
            return Err(ProfileError::SmallNetwork(manual.range));
        }
        Ok(profile)
    }

    pub(crate) fn call_deadline(&self) -> Duration {
        Duration::from_secs(self.deadline.max(1))
    }
}

impl DynamicNetwork {
    pub(crate) fn to_json(&self) -> Value {
        json!({"type": "dynamic", "default": ["dns", "gateway"], "cloud_properties": self.cloud_properties})
    }
}

impl ManualNetwork {
    /// The network with its `count`th address; addresses are used again when all had their turn.
    pub(crate) fn to_json(&self, count: usize) -> Value {
        let usable = self.range.hosts().skip(9).take(200).count().max(1);
        let ip = self.range.hosts().nth(9 + count % usable).unwrap_or(self.range.network());
        let gateway = self.gateway.or_else(|| self.range.hosts().next()).unwrap_or(self.range.network());
        json!({
            "type": "manual", "ip": ip, "netmask": self.range.netmask(), "gateway": gateway, "dns": self.dns,
            "default": ["dns", "gateway"], "cloud_properties": self.cloud_properties,
        })
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            stemcell: None,
            vm: VmProfile::default(),
            disk: DiskProfile::default(),
            networks: NetworksProfile::default(),
            managed_network: ManagedNetwork::default(),
            context: Object::new(),
            wrong_credentials: None,
            lower_version: object(json!({"debug": {"cpi": {"api_version": 1}}})),
            deadline: 120,
            boot: 120,
            parallel: 8,
            configuration: Object::new(),
        }
    }
}

impl Default for VmProfile {
    fn default() -> Self {
        let resources = object(json!({"cpu": 1, "ram": 256, "ephemeral_disk_size": 1024}));
        Self { cloud_properties: Object::new(), resources }
    }
}

impl Default for DiskProfile {
    fn default() -> Self {
        Self { size: 1024, larger: 2048, cloud_properties: Object::new() }
    }
}

impl Default for NetworksProfile {
    /// Loopback, because the embedded cloud has no other addresses without privileges and the simulated one takes any;
    /// a range of this run's own, because others may be certifying, too.
    fn default() -> Self {
        let [a, b, ..] = uuid::Uuid::new_v4().into_bytes();
        let network = Ipv4Addr::new(127, 128 + a % 64, b, 0);
        let range = ipnet::Ipv4Net::new_assert(network, 24).into();
        let dns = vec![Ipv4Addr::LOCALHOST.into()];
        let manual = ManualNetwork { range, gateway: None, dns, cloud_properties: Object::new() };
        Self { dynamic: Some(DynamicNetwork::default()), manual: Some(manual) }
    }
}

impl Default for ManagedNetwork {
    fn default() -> Self {
        let [a, b, ..] = uuid::Uuid::new_v4().into_bytes();
        let range = ipnet::Ipv4Net::new_assert(Ipv4Addr::new(10, a, b, 0), 24);
        Self {
            range: range.into(),
            gateway: range.hosts().next().unwrap_or(range.network()).into(),
            netmask_bits: 24,
            cloud_properties: Object::new(),
        }
    }
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(object) => object,
        _ => Object::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_profile_is_the_default_one_and_a_typing_error_is_named() {
        let read = Profile::from_yaml("disk: {size: 2048, larger: 4096}").unwrap();
        assert_eq!((read.disk.size, read.vm), (2048, VmProfile::default()));
        let error = Profile::from_yaml("dsik: {size: 1}").unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("dsik"), "{source}");
        assert!(matches!(Profile::from_yaml("networks: {}"), Err(ProfileError::NoNetwork)));
        let small = "networks: {manual: {range: 10.0.0.0/29}}";
        assert!(matches!(Profile::from_yaml(small), Err(ProfileError::SmallNetwork(_))));
    }

    #[test]
    fn the_shipped_profiles_are_read() {
        for text in [
            include_str!("../profiles/sim.yml"),
            include_str!("../profiles/local.yml"),
            include_str!("../profiles/local-container.yml"),
        ] {
            Profile::from_yaml(text).unwrap();
        }
    }

    #[test]
    fn manual_addresses_come_from_the_range_one_after_the_other() {
        let network = |count| {
            let range = "10.1.2.0/24".parse().unwrap();
            ManualNetwork { range, gateway: None, dns: Vec::new(), cloud_properties: Object::new() }.to_json(count)
        };
        assert_eq!(network(0)["ip"], "10.1.2.10");
        assert_eq!(network(1)["ip"], "10.1.2.11");
        assert_eq!(network(200)["ip"], "10.1.2.10");
        assert_eq!((&network(0)["gateway"], &network(0)["netmask"]), (&json!("10.1.2.1"), &json!("255.255.255.0")));
    }
}
