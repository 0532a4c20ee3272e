//! Answers, and the shapes they take on the wire in each version.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::limits::CloudLimits;
use crate::{ApiVersion, DiskCid, DiskHint, NetworkCid, Networks, Object, SnapshotCid, StemcellCid, VmCid};

/// A result that can be written for, and read from, a request of a given version.
pub trait Answer: Sized {
    /// What a CPI writes.
    fn to_wire(&self, version: ApiVersion) -> Value;
    /// What a caller reads; the error says what is wrong with the value.
    fn from_wire(value: Value, version: ApiVersion) -> Result<Self, String>;
}

/// Answer of methods without one. Whatever CPIs put there is ignored.
impl Answer for () {
    fn to_wire(&self, _: ApiVersion) -> Value {
        Value::Null
    }

    fn from_wire(_: Value, _: ApiVersion) -> Result<Self, String> {
        Ok(())
    }
}

macro_rules! plain_answers {
    ($($answer:ty),*) => {$(
        impl Answer for $answer {
            fn to_wire(&self, _: ApiVersion) -> Value {
                json!(self)
            }

            fn from_wire(value: Value, _: ApiVersion) -> Result<Self, String> {
                serde_json::from_value(value).map_err(|error| error.to_string())
            }
        }
    )*};
}

plain_answers!(bool, StemcellCid, VmCid, DiskCid, SnapshotCid, Vec<DiskCid>, Object, CpiInfo);

/// What `info` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpiInfo {
    /// Formats of stemcells that the CPI takes; no list means any.
    #[serde(default)]
    pub stemcell_formats: Vec<String>,
    /// The CPI's highest version; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<ApiVersion>,
    /// What only our CPIs say; other callers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windlass: Option<Extensions>,
}

/// What our CPIs can do beyond the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extensions {
    /// A request repeated with the same unique id gets the first answer again instead of a second effect.
    #[serde(default)]
    pub replay: bool,
    /// Whether jobs of releases run on its VMs; a CPI that says nothing is taken for one whose VMs run them.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub jobs: bool,
    /// Why they do not, with what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_reason: Option<String>,
    /// The only operating system whose VMs run jobs; none if those of every stemcell do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_os: Option<String>,
    /// Whether `nesting: true` among the properties of a VM lets its programs make containers.
    #[serde(default, skip_serializing_if = "is_no")]
    pub nesting: bool,
    /// What a plan cannot have there.
    #[serde(flatten)]
    pub limits: CloudLimits,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_no(value: &bool) -> bool {
    !*value
}

impl Default for Extensions {
    fn default() -> Self {
        Self {
            replay: false,
            jobs: true,
            jobs_reason: None,
            jobs_os: None,
            nesting: false,
            limits: CloudLimits::default(),
        }
    }
}

impl CpiInfo {
    /// Whether the CPI remembers requests.
    pub fn replays(&self) -> bool {
        self.windlass.as_ref().is_some_and(|extensions| extensions.replay)
    }

    /// What a plan cannot have in the cloud.
    pub fn limits(&self) -> CloudLimits {
        self.windlass.as_ref().map(|extensions| extensions.limits.clone()).unwrap_or_default()
    }

    /// Whether `nesting: true` among the properties of a VM loosens what keeps it apart.
    pub fn nests_containers(&self) -> bool {
        self.windlass.as_ref().is_some_and(|extensions| extensions.nesting)
    }

    /// Why jobs of releases do not run on VMs of a stemcell with this operating system; none if they do.
    pub fn jobs_refusal(&self, os: &str) -> Option<String> {
        let extensions = self.windlass.as_ref()?;
        if !extensions.jobs {
            return Some(extensions.jobs_reason.clone().unwrap_or_else(|| "its CPI says so".to_owned()));
        }
        let needed = extensions.jobs_os.as_ref().filter(|needed| *needed != os)?;
        Some(format!("they need a stemcell of the operating system '{needed}', not '{os}'"))
    }
}

/// What `create_vm` answers.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedVm {
    pub cid: VmCid,
    /// Its networks, with the addresses that the cloud chose.
    pub networks: Networks,
    /// What CPIs of early documents tell about the VM's disks, as they tell it. Never sent: today's directors take two elements.
    pub disks: Option<Object>,
}

impl Answer for CreatedVm {
    fn to_wire(&self, version: ApiVersion) -> Value {
        if version.has_v2_results() { json!([self.cid, self.networks]) } else { json!(self.cid) }
    }

    /// Also takes `[cid, disks]` and `[cid, networks, disks]` of early documents: an object is disks if it has
    /// `system` or `ephemeral` and none of its values has a `type`.
    fn from_wire(value: Value, version: ApiVersion) -> Result<Self, String> {
        let cid = |value: Value| serde_json::from_value::<VmCid>(value).map_err(|error| error.to_string());
        match value {
            Value::Array(elements) => {
                let mut elements = elements.into_iter();
                let cid = cid(elements.next().ok_or("an empty array has no VM cid")?)?;
                let mut objects = elements.take(2).map(|element| match element {
                    Value::Object(object) => Some(object),
                    _ => None,
                });
                let (second, third) = (objects.next().flatten(), objects.next().flatten());
                let (networks, disks) = match second {
                    Some(disks) if looks_like_disks(&disks) => (None, Some(disks)),
                    networks => (networks, third),
                };
                let networks = networks.map(|networks| serde_json::from_value(Value::Object(networks))).transpose();
                let networks = networks.map_err(|error| error.to_string())?.unwrap_or_default();
                Ok(Self { cid, networks, disks })
            }
            bare if !version.has_v2_results() => Ok(Self { cid: cid(bare)?, networks: Networks::new(), disks: None }),
            other => Err(format!("expected [cid, networks] in version {version}, got {other}")),
        }
    }
}

fn looks_like_disks(object: &Object) -> bool {
    (object.contains_key("system") || object.contains_key("ephemeral"))
        && !object.values().any(|value| value.get("type").is_some())
}

/// What `attach_disk` answers: a hint from version 2 on, nothing before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedDisk {
    /// Where the disk is found in the VM; none in version 1, where it goes through the registry.
    pub hint: Option<DiskHint>,
}

impl Answer for AttachedDisk {
    fn to_wire(&self, version: ApiVersion) -> Value {
        match &self.hint {
            Some(hint) if version.has_v2_results() => hint.clone().into(),
            _ => Value::Null,
        }
    }

    fn from_wire(value: Value, version: ApiVersion) -> Result<Self, String> {
        if !version.has_v2_results() {
            return Ok(Self { hint: None });
        }
        DiskHint::try_from(value).map(|hint| Self { hint: Some(hint) }).map_err(|error| error.to_string())
    }
}

/// What `update_disk` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdatedDisk {
    /// The disk that replaced the old one; none if it was changed in place.
    pub replaced_by: Option<DiskCid>,
}

impl Answer for UpdatedDisk {
    fn to_wire(&self, _: ApiVersion) -> Value {
        json!(self.replaced_by)
    }

    /// `""` and `true` would overwrite the record of a disk, so they are refused.
    fn from_wire(value: Value, _: ApiVersion) -> Result<Self, String> {
        match value {
            Value::Null | Value::Bool(false) => Ok(Self { replaced_by: None }),
            other => serde_json::from_value(other)
                .map(|cid| Self { replaced_by: Some(cid) })
                .map_err(|error| error.to_string()),
        }
    }
}

/// What `create_network` answers.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedNetwork {
    pub cid: NetworkCid,
    /// `range`, `gateway` and `reserved`, as far as the cloud chose them.
    pub address_properties: Object,
    /// Sent with the network in `create_vm` from then on.
    pub cloud_properties: Object,
}

impl Answer for CreatedNetwork {
    fn to_wire(&self, _: ApiVersion) -> Value {
        json!([self.cid, self.address_properties, self.cloud_properties])
    }

    /// Also takes the object with `network_cid` and `cloud_properties` that one library describes.
    fn from_wire(value: Value, _: ApiVersion) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Early {
            network_cid: NetworkCid,
            #[serde(default)]
            address_properties: Object,
            cloud_properties: Object,
        }
        let (cid, address_properties, cloud_properties) = if value.is_object() {
            let early: Early = serde_json::from_value(value).map_err(|error| error.to_string())?;
            (early.network_cid, early.address_properties, early.cloud_properties)
        } else {
            serde_json::from_value(value).map_err(|error| error.to_string())?
        };
        Ok(Self { cid, address_properties, cloud_properties })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created(value: Value, version: u32) -> Result<CreatedVm, String> {
        CreatedVm::from_wire(value, ApiVersion(version))
    }

    #[test]
    fn create_vm_answers_by_the_requests_version() {
        let vm = CreatedVm { cid: VmCid::new("vm-7").unwrap(), networks: Networks::new(), disks: None };
        assert_eq!(vm.to_wire(ApiVersion::V1), json!("vm-7"));
        assert_eq!(vm.to_wire(ApiVersion::V2), json!(["vm-7", {}]));
        assert_eq!(created(json!("vm-7"), 1).unwrap(), vm);
        assert_eq!(created(json!(["vm-7", {}]), 2).unwrap(), vm);
    }

    #[test]
    fn create_vm_in_the_forms_of_early_documents() {
        let disks = json!({"system": "/dev/sda", "ephemeral": "/dev/sdb"});
        let networks = json!({"system": {"type": "manual", "ip": "10.0.0.6"}});
        let pair = created(json!(["vm-7", disks]), 2).unwrap();
        assert!(pair.networks.is_empty());
        assert_eq!(pair.disks.as_ref(), disks.as_object());
        let triple = created(json!(["vm-7", networks, disks]), 2).unwrap();
        assert_eq!(triple.networks["system"].ip.as_deref(), Some("10.0.0.6"));
        assert_eq!(triple.disks.as_ref(), disks.as_object());
        assert_eq!(triple.to_wire(ApiVersion::V2), json!(["vm-7", triple.networks]), "they are not passed on");
        assert_eq!(created(json!(["vm-7", networks, null]), 2).unwrap().disks, None);
        assert_eq!(created(json!(["vm-7", null, disks]), 2).unwrap().disks.as_ref(), disks.as_object());
    }

    #[test]
    fn a_bare_string_in_version_2_is_refused_instead_of_becoming_a_one_letter_cid() {
        assert!(created(json!("vm-7"), 2).unwrap_err().contains("expected [cid, networks]"));
        assert!(created(json!([]), 2).is_err());
        assert!(created(json!([""]), 2).is_err());
    }

    #[test]
    fn update_disk_never_replaces_a_disk_by_nonsense() {
        let read = |value| UpdatedDisk::from_wire(value, ApiVersion::V2).map(|updated| updated.replaced_by);
        assert_eq!(read(Value::Null), Ok(None));
        assert_eq!(read(json!("disk-2")), Ok(Some(DiskCid::new("disk-2").unwrap())));
        assert!(read(json!("")).is_err() && read(json!(true)).is_err());
    }

    #[test]
    fn create_network_is_a_triple_and_was_an_object_once() {
        let triple = json!(["n-1", {"range": "10.0.0.0/24"}, {"name": "n"}]);
        let network = CreatedNetwork::from_wire(triple.clone(), ApiVersion::V2).unwrap();
        assert_eq!(network.to_wire(ApiVersion::V2), triple);
        let early = json!({"network_cid": "n-1", "cloud_properties": {"name": "n"}});
        assert_eq!(CreatedNetwork::from_wire(early, ApiVersion::V2).unwrap().cloud_properties["name"], "n");
        assert!(CreatedNetwork::from_wire(json!(["n-1"]), ApiVersion::V2).is_err());
    }

    #[test]
    fn attach_disk_needs_a_hint_in_version_2_and_none_in_version_1() {
        assert_eq!(AttachedDisk::from_wire(json!("/dev/sdc"), ApiVersion::V1).unwrap().hint, None);
        assert!(AttachedDisk::from_wire(json!({"path": "/dev/sdc"}), ApiVersion::V2).unwrap().hint.is_some());
        assert!(AttachedDisk::from_wire(Value::Null, ApiVersion::V2).unwrap_err().contains("empty"));
    }
}
