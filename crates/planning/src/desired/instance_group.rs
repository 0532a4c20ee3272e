//! An instance group of the manifest.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_contract::MiB;
use windlass_contract::Object;
use windlass_contract::cpi::methods::VmResources;
use windlass_manifest::At;

use super::cloud_config::LARGEST_DISK;
use super::fields::{Fields, number};
use super::findings::{Findings, Place, Placed};
use super::jobs::{JobReference, read_job};
use super::networks::read_ranges;
use super::update::{UpdateBlock, read_update};
use super::{AddressRange, VmStrategy};
use crate::names::DiskName;

/// A group of equal instances. Where something required could not be read, it is none, and said so already.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceGroup {
    /// Where it stands.
    pub place: Place,
    pub name: String,
    pub instances: Option<usize>,
    /// Zones to spread over.
    pub azs: Vec<Placed<String>>,
    pub vm_size: Option<VmSize>,
    /// Extra properties of its VMs.
    pub vm_extensions: Vec<Placed<String>>,
    /// Alias.
    pub stemcell: Option<Placed<String>>,
    /// Its persistent disks.
    pub disks: Vec<WantedDisk>,
    pub networks: Vec<GroupNetwork>,
    /// For the agent.
    pub env: Object,
    pub update: UpdateBlock,
    /// Whether it has VMs all the time.
    pub lifecycle: Lifecycle,
    /// Groups that it takes over.
    pub migrated_from: Vec<MigratedFrom>,
    /// For the clouds.
    pub tags: Object,
    /// What runs on it, in its order.
    pub jobs: Vec<Arc<JobReference>>,
    /// For jobs that have none of their own.
    pub properties: Object,
}

/// The size of a VM.
#[derive(Debug, Clone, PartialEq)]
pub enum VmSize {
    Type(Placed<String>),
    /// By what it needs; the CPI says what that means.
    Resources(VmResources),
    /// By what only the cloud understands.
    Properties(Object),
}

/// A persistent disk.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedDisk {
    pub name: DiskName,
    pub size: DiskSize,
}

/// The size of a disk.
#[derive(Debug, Clone, PartialEq)]
pub enum DiskSize {
    Size(MiB),
    Type(Placed<String>),
}

/// A network of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNetwork {
    pub name: Placed<String>,
    /// One address per instance, if any.
    pub static_ips: Option<Vec<Placed<AddressRange>>>,
    /// What it is the default for.
    pub default: Vec<Placed<String>>,
    /// Networks of the same group share a network card.
    pub nic_group: Option<String>,
}

/// Whether a group has VMs all the time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// All the time.
    #[default]
    Service,
    /// Only while its errand runs.
    Errand,
}

impl Lifecycle {
    /// The word in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Errand => "errand",
        }
    }
}

/// A group that this one takes over.
#[derive(Debug, Clone, PartialEq)]
pub struct MigratedFrom {
    pub name: Placed<String>,
    /// The zone of its instances, if they have none on record.
    pub az: Option<Placed<String>>,
}

/// More instances than this in a deployment are a mistake.
pub(super) const MOST_INSTANCES: u64 = 100_000;
/// No machine has more network cards. What is on record of an instance, and all addresses, grow with them.
const MOST_NETWORKS: usize = 64;
/// What the largest machines have, and then some.
const MOST_CPUS: u64 = 1 << 20;

const KEYS: [&str; 18] = [
    "name",
    "instances",
    "azs",
    "jobs",
    "vm_type",
    "vm_resources",
    "vm_extensions",
    "stemcell",
    "persistent_disk",
    "persistent_disk_type",
    "persistent_disks",
    "networks",
    "update",
    "env",
    "lifecycle",
    "migrated_from",
    "properties",
    "tags",
];
/// Keys of manifests of long ago, and what took their place.
const GONE: [(&str, &str); 4] = [
    ("template", "'template' is gone; today's manifests have 'jobs'"),
    ("templates", "'templates' are gone; today's manifests have 'jobs'"),
    ("resource_pool", "'resource_pool' is gone; use 'vm_type' and 'stemcell'"),
    ("persistent_disk_pool", "'persistent_disk_pool' is gone; use 'persistent_disk_type'"),
];

pub(super) fn read_group(at: &At<'_>, otherwise: UpdateBlock, findings: &mut Findings) -> Option<InstanceGroup> {
    let known: Vec<&str> = KEYS.into_iter().chain(GONE.iter().map(|(key, _)| *key)).collect();
    let mut fields = Fields::of(at, &known, findings)?;
    for (key, why) in GONE {
        fields.refuse(key, why);
    }
    let jobs = fields.list("jobs").iter().filter_map(|job| read_job(job, fields.findings()).map(Arc::new)).collect();
    let properties = fields.object("properties");
    let name = fields.name();
    let azs = fields.texts("azs");
    if fields.optional("azs").is_some_and(|at| at.list().is_ok_and(|list| list.is_empty())) {
        fields.refuse("azs", "is empty; name the zones, or remove it if networks and cloud have none");
    }
    let mut earlier = HashSet::new();
    for az in &azs {
        if !earlier.insert(&az.value) {
            fields.findings().push(az.problem(format!("the az '{}' is there already", az.value)));
        }
    }
    let lifecycles = [("service", Lifecycle::Service), ("errand", Lifecycle::Errand)];
    let group = InstanceGroup {
        place: fields.place(),
        instances: fields.number("instances", 0, MOST_INSTANCES).and_then(|number| usize::try_from(number).ok()),
        vm_size: vm_size(&mut fields),
        vm_extensions: fields.texts("vm_extensions"),
        stemcell: fields.text("stemcell"),
        disks: disks(&mut fields),
        networks: networks(&mut fields),
        env: fields.object("env"),
        update: match fields.optional("update") {
            Some(at) => read_update(&at, otherwise, fields.findings()),
            None => otherwise,
        },
        lifecycle: fields.word("lifecycle", &lifecycles).unwrap_or_default(),
        migrated_from: migrated_from(&mut fields),
        tags: fields.object("tags"),
        jobs,
        properties,
        azs,
        name: name?.value,
    };
    Some(group)
}

fn vm_size(fields: &mut Fields<'_, '_>) -> Option<VmSize> {
    let (kind, resources) = (fields.optional("vm_type"), fields.optional("vm_resources"));
    match (kind, resources) {
        (Some(_), None) => fields.optional_text("vm_type").map(VmSize::Type),
        (None, Some(at)) => vm_resources(&at, fields.findings()).map(VmSize::Resources),
        (None, None) => {
            fields.push("needs 'vm_type' or 'vm_resources'");
            None
        }
        (Some(at), Some(_)) => {
            fields.findings().push(at.problem("give either 'vm_type' or 'vm_resources'"));
            None
        }
    }
}

pub(super) fn vm_resources(at: &At<'_>, findings: &mut Findings) -> Option<VmResources> {
    let mut resources = Fields::of(at, &["cpu", "ram", "ephemeral_disk_size"], findings)?;
    let (cpu, ram, disk) = (
        resources.number("cpu", 1, MOST_CPUS),
        resources.number("ram", 1, LARGEST_DISK),
        resources.number("ephemeral_disk_size", 1, LARGEST_DISK),
    );
    Some(VmResources { cpu: cpu?, ram: MiB(ram?), ephemeral_disk_size: MiB(disk?) })
}

fn disks(fields: &mut Fields<'_, '_>) -> Vec<WantedDisk> {
    let keys = ["persistent_disk", "persistent_disk_type", "persistent_disks"];
    let given: Vec<_> = keys.into_iter().filter(|key| fields.optional(key).is_some()).collect();
    if let [first, second, ..] = given.as_slice() {
        fields.refuse(second, &format!("give only one of '{first}' and '{second}'"));
        return Vec::new();
    }
    match given.first() {
        Some(&"persistent_disk") => {
            let at = fields.optional("persistent_disk");
            let size = at.and_then(|at| fields.check(number(&at, 0, LARGEST_DISK)));
            let size = size.filter(|size| *size > 0).map(|size| DiskSize::Size(MiB(size)));
            size.map(|size| WantedDisk { name: DiskName::Managed, size }).into_iter().collect()
        }
        Some(&"persistent_disk_type") => {
            let kind = fields.optional_text("persistent_disk_type").map(DiskSize::Type);
            kind.map(|size| WantedDisk { name: DiskName::Managed, size }).into_iter().collect()
        }
        _ => named_disks(fields),
    }
}

fn named_disks(fields: &mut Fields<'_, '_>) -> Vec<WantedDisk> {
    let mut disks: Vec<WantedDisk> = Vec::new();
    for at in fields.list("persistent_disks") {
        let Some(mut disk) = Fields::of(&at, &["name", "type"], fields.findings()) else { continue };
        let (Some(name), Some(kind)) = (disk.name(), disk.text("type")) else { continue };
        if disks.iter().any(|other| other.name.as_str() == name.value) {
            fields.findings().push(name.problem(format!("the disk '{}' is there already", name.value)));
            continue;
        }
        disks.push(WantedDisk { name: DiskName::Named(name.value), size: DiskSize::Type(kind) });
    }
    disks
}

fn networks(fields: &mut Fields<'_, '_>) -> Vec<GroupNetwork> {
    let mut networks: Vec<GroupNetwork> = Vec::new();
    let Some(at) = fields.required("networks") else { return networks };
    if at.list().is_ok_and(|list| list.is_empty()) {
        fields.refuse("networks", "an instance group needs a network");
    }
    if at.list().is_ok_and(|list| list.len() > MOST_NETWORKS) {
        fields.refuse("networks", &format!("an instance group has at most {MOST_NETWORKS} networks"));
        return networks;
    }
    for at in fields.list("networks") {
        let known = ["name", "static_ips", "default", "nic_group"];
        let Some(mut network) = Fields::of(&at, &known, fields.findings()) else { continue };
        let static_ips = network.optional("static_ips").is_some().then(|| read_ranges(&mut network, "static_ips"));
        let default = network.texts("default");
        let nic_group = network.optional_text("nic_group").map(|group| group.value);
        let Some(name) = network.text("name") else { continue };
        if networks.iter().any(|other| other.name.value == name.value) {
            fields.findings().push(name.problem(format!("the network '{}' is there already", name.value)));
            continue;
        }
        networks.push(GroupNetwork { name, static_ips, default, nic_group });
    }
    networks
}

fn migrated_from(fields: &mut Fields<'_, '_>) -> Vec<MigratedFrom> {
    let mut groups = Vec::new();
    for at in fields.list("migrated_from") {
        let Some(mut group) = Fields::of(&at, &["name", "az"], fields.findings()) else { continue };
        let az = group.optional_text("az");
        groups.extend(group.text("name").map(|name| MigratedFrom { name, az }));
    }
    groups
}

impl InstanceGroup {
    /// How VMs are replaced. One that is made beside the old one needs addresses of its own, so addresses that are given
    /// leave no choice; the reason is told then.
    pub(super) fn strategy(&self, has_vip: bool) -> (VmStrategy, Option<&'static str>) {
        let given = self.networks.iter().any(|network| network.static_ips.is_some());
        match self.update.vm_strategy {
            VmStrategy::CreateSwapDelete if given => (VmStrategy::DeleteCreate, Some("static_ips")),
            VmStrategy::CreateSwapDelete if has_vip => (VmStrategy::DeleteCreate, Some("a vip network")),
            strategy => (strategy, None),
        }
    }
}
