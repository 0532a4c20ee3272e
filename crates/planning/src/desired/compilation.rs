//! The `compilation` block of the cloud config: the VMs that packages are compiled on.

use windlass_contract::Object;
use windlass_manifest::At;

use super::fields::Fields;
use super::findings::Findings;
use super::instance_group::{GroupNetwork, InstanceGroup, Lifecycle, VmSize, vm_resources};
use super::update::UpdateBlock;

/// How packages are compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Compilation {
    /// The cloud config that it stands in.
    pub document: String,
    /// Whether a worker compiles several packages on one VM.
    pub reuse_vms: bool,
    /// Whether VMs of workers are given up rather than deleted.
    pub orphan_workers: bool,
    /// The workers, like a group of instances that has no stemcell of its own.
    pub workers: InstanceGroup,
}

const KEYS: [&str; 10] = [
    "workers",
    "network",
    "az",
    "reuse_compilation_vms",
    "orphan_workers",
    "vm_type",
    "vm_resources",
    "cloud_properties",
    "vm_extensions",
    "env",
];

/// More than this at once are a mistake.
const MOST_WORKERS: u64 = 1000;

impl Compilation {
    pub(super) fn read(document: &str, at: &At<'_>, findings: &mut Findings) -> Option<Self> {
        let mut fields = Fields::of(at, &KEYS, findings)?;
        let count = fields.number("workers", 1, MOST_WORKERS).and_then(|number| usize::try_from(number).ok());
        let reuse_vms = fields.boolean("reuse_compilation_vms").unwrap_or(false);
        let orphan_workers = fields.boolean("orphan_workers").unwrap_or(false);
        let network = fields.text("network").map(|name| GroupNetwork {
            name,
            static_ips: None,
            default: Vec::new(),
            nic_group: None,
        });
        let workers = InstanceGroup {
            place: fields.place(),
            name: "compilation".to_owned(),
            instances: count,
            azs: fields.optional_text("az").into_iter().collect(),
            vm_size: vm_size(&mut fields),
            vm_extensions: fields.texts("vm_extensions"),
            stemcell: None,
            disks: Vec::new(),
            networks: network.into_iter().collect(),
            env: fields.object("env"),
            update: UpdateBlock::default(),
            lifecycle: Lifecycle::Service,
            migrated_from: Vec::new(),
            tags: Object::new(),
            jobs: Vec::new(),
            properties: Object::new(),
        };
        Some(Self { document: document.to_owned(), reuse_vms, orphan_workers, workers })
    }
}

/// A worker may be of any size: then its cloud properties are those of its zone.
fn vm_size(fields: &mut Fields<'_, '_>) -> Option<VmSize> {
    let sizes = ["vm_type", "vm_resources", "cloud_properties"];
    if sizes.into_iter().filter(|key| fields.optional(key).is_some()).count() > 1 {
        fields.push("give only one of 'vm_type', 'vm_resources' and 'cloud_properties'");
        return None;
    }
    if let Some(at) = fields.optional("vm_resources") {
        return vm_resources(&at, fields.findings()).map(VmSize::Resources);
    }
    match fields.optional_text("vm_type") {
        Some(name) => Some(VmSize::Type(name)),
        None => Some(VmSize::Properties(fields.object("cloud_properties"))),
    }
}
