//! Laws of planning: a deployment that is where it should be gives an empty plan; the same inputs give the same plan; no
//! two instances ever share an address, and none has one that is reserved.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use proptest::prelude::*;
use windlass_contract::{AgentId, ApiVersion, Secret};
use windlass_manifest::Document;

use windlass_contract::StemcellCid;
use windlass_contract::network::NetworkKind;

use super::*;
use crate::desired::{AddressRange, Configs, DeploymentManifest, Desired, Findings, LinksFrom, Wanted, resolve};
use crate::names::{CpiName, InstanceId};
use crate::records::{
    CompilationKey, ConfigRecord, DiskRecord, InstanceRecord, InstanceState, ReleaseRecord, StemcellRecord, VmRecord,
};

mod addons;
mod changes;
mod compiled;
mod copies;
mod jobs;
mod laws;
mod limits;
mod links;
mod mutated;
mod places;
mod states;

const CLOUD: &str = "
azs: [{name: z1, cloud_properties: {zone: a}}, {name: z2}, {name: z3}]
vm_types: [{name: small, cloud_properties: {cpu: 1}}, {name: large, cloud_properties: {cpu: 4}}]
disk_types: [{name: d, disk_size: 64}, {name: e, disk_size: 128}, {name: f, disk_size: 64, cloud_properties: {type: ssd}}]
networks:
- name: n
  subnets:
  - {range: 10.0.1.0/24, gateway: 10.0.1.1, reserved: [10.0.1.2 - 10.0.1.9], azs: [z1], dns: [10.0.1.1]}
  - {range: 10.0.2.0/24, gateway: 10.0.2.1, static: [10.0.2.2 - 10.0.2.20], azs: [z2, z3]}
- name: m
  subnets:
  - {range: 10.0.1.0/28, azs: [z1]}
  - {range: 10.0.3.0/24, azs: [z2, z3]}
- name: fixed
  subnets:
  - {range: 10.4.1.0/24, gateway: 10.4.1.1, static: [10.4.1.10 - 10.4.1.50], azs: [z1]}
  - {range: 10.4.2.0/24, gateway: 10.4.2.1, static: [10.4.2.10 - 10.4.2.50], azs: [z2]}
  - {range: 10.4.3.0/24, gateway: 10.4.3.1, static: [10.4.3.10 - 10.4.3.50], azs: [z3]}
- name: huge
  subnets: [{range: 'fd00:1::/64', gateway: 'fd00:1::1', reserved: ['fd00:1::2 - fd00:1::ffff'], azs: [z1, z2, z3]}]
- {name: dyn, type: dynamic}
- {name: pub, type: vip}
- {name: pool, type: vip, subnets: [{static: [203.0.113.1 - 203.0.113.40]}]}
";

/// What may differ from one manifest to the next.
#[derive(Debug, Clone)]
struct Shape {
    instances: usize,
    azs: &'static str,
    vm_type: &'static str,
    disk: &'static str,
    networks: &'static str,
    stemcell: &'static str,
    strategy: &'static str,
    lifecycle: &'static str,
    tags: &'static str,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let azs = prop::sample::select(vec!["[z1]", "[z2]", "[z1, z2]", "[z3, z1, z2]"]);
    let vm_type = prop::sample::select(vec!["vm_type: small", "vm_type: large", RESOURCES]);
    let disk = prop::sample::select(vec!["", "d", "e", "f", "named"]);
    let networks = prop::sample::select(vec!["n", "m", "dyn", "huge", "several", "pool"]);
    let strategy = prop::sample::select(vec!["delete-create", "create-swap-delete"]);
    let lifecycle = prop::sample::select(vec!["service", "service", "service", "errand"]);
    let others =
        (prop::sample::select(vec!["one", "latest"]), strategy, lifecycle, prop::sample::select(vec!["{}", "{a: b}"]));
    (0_usize..7, azs, vm_type, disk, networks, others).prop_map(
        |(instances, azs, vm_type, disk, networks, (stemcell, strategy, lifecycle, tags))| Shape {
            instances,
            azs,
            vm_type,
            disk,
            networks,
            stemcell,
            strategy,
            lifecycle,
            tags,
        },
    )
}

const RESOURCES: &str = "vm_resources: {cpu: 1, ram: 512, ephemeral_disk_size: 1024}";

fn group(number: usize, shape: &Shape) -> String {
    let Shape { instances, azs, vm_type, disk, networks, stemcell, strategy, lifecycle, tags } = shape;
    let disk = match *disk {
        "" => String::new(),
        "named" => ", persistent_disks: [{name: data, type: d}, {name: log, type: e}]".to_owned(),
        one => format!(", persistent_disk_type: {one}"),
    };
    let networks = match *networks {
        "several" => "[{name: n, default: [dns, gateway]}, {name: dyn}, {name: huge}]".to_owned(),
        one => format!("[{{name: {one}}}]"),
    };
    format!(
        "- {{name: g{number}, instances: {instances}, azs: {azs}, {vm_type}, stemcell: {stemcell}, networks: {networks}, lifecycle: {lifecycle}, tags: {tags}, update: {{vm_strategy: {strategy}}}{disk}}}\n"
    )
}

fn desired(shapes: &[Shape]) -> Desired {
    wanted(&shapes.iter().enumerate().map(|(number, shape)| group(number, shape)).collect::<String>())
}

fn wanted(groups: &str) -> Desired {
    wanted_from(CLOUD, groups)
}

fn wanted_from(cloud: &str, groups: &str) -> Desired {
    let manifest = manifest(groups);
    let (desired, findings) = read(cloud, &Document::parse(&manifest).unwrap());
    assert!(findings.is_clean(), "{findings}");
    desired
}

fn manifest(groups: &str) -> String {
    format!(
        "name: law\nstemcells: [{{alias: one, os: os, version: '1'}}, {{alias: latest, os: os, version: latest}}]\ninstance_groups:\n{groups}"
    )
}

fn read(cloud: &str, manifest: &Document) -> (Desired, Findings) {
    let others = BTreeMap::new();
    read_with(cloud, manifest, &[jobs::release("1"), jobs::release("2")], LinksFrom::Manifest(&others))
}

fn read_with(
    cloud: &str,
    manifest: &Document,
    releases: &[ReleaseRecord],
    links: LinksFrom<'_>,
) -> (Desired, Findings) {
    read_configs(&[config("cloud", "c", cloud)], manifest, releases, links)
}

fn config(kind: &str, name: &str, content: &str) -> ConfigRecord {
    ConfigRecord { id: 1, kind: kind.into(), name: name.into(), content: content.into(), created_at: 0, team: None }
}

fn read_configs(
    configs: &[ConfigRecord],
    manifest: &Document,
    releases: &[ReleaseRecord],
    links: LinksFrom<'_>,
) -> (Desired, Findings) {
    read_compiled(configs, manifest, (releases, &BTreeSet::new()), links)
}

fn read_compiled(
    configs: &[ConfigRecord],
    manifest: &Document,
    (releases, compiled): (&[ReleaseRecord], &BTreeSet<CompilationKey>),
    links: LinksFrom<'_>,
) -> (Desired, Findings) {
    let mut findings = Findings::new();
    let Configs { cloud, runtime, cpis } = Configs::read(configs, &mut findings);
    let manifest = DeploymentManifest::read(manifest, &mut findings);
    let stemcells = stemcells();
    let wanted = Wanted {
        manifest: &manifest,
        cloud: &cloud,
        runtime: &runtime,
        cpis: &cpis,
        stemcells: &stemcells,
        releases,
        compiled,
        teams: &["t".to_owned()],
        links,
        names: Default::default(),
    };
    let desired = resolve(wanted, &mut findings);
    (desired, findings)
}

fn stemcells() -> [StemcellRecord; 3] {
    let stemcell = |version: &str, id| StemcellRecord {
        id,
        name: "s".into(),
        version: version.into(),
        operating_system: "os".into(),
        cpi: CpiName::Default,
        cid: StemcellCid::new(format!("sc-{version}")).unwrap(),
        api_version: Some(ApiVersion::V2),
        deployments: Vec::new(),
    };
    [stemcell("1", 1), stemcell("1.10", 2), stemcell("1.9", 3)]
}

/// New ids, none of which is one of `current`.
fn ids(current: &Current) -> impl FnMut() -> InstanceId {
    let mut next = current.instances.len();
    let known: BTreeSet<InstanceId> = current.instances.iter().map(|instance| instance.record.id.clone()).collect();
    move || {
        next += 1;
        std::iter::successors(Some(format!("id-{next}").into()), |id: &InstanceId| Some(format!("{id}x").into()))
            .find(|id| !known.contains(id))
            .unwrap()
    }
}

/// What is once a plan was carried out.
fn carry_out(plan: &Plan, before: &Current, prefix: &str) -> Current {
    let mut after = Current { calculated: before.calculated.clone(), ..Current::default() };
    for instance in plan.instances() {
        let present = before.instances.iter().find(|present| present.record.id == instance.id);
        let spec = instance.spec.clone().unwrap();
        let record = InstanceRecord {
            id: instance.id.clone(),
            deployment: plan.deployment.clone(),
            group: instance.group.clone(),
            index: instance.index,
            az: instance.az.clone(),
            bootstrap: instance.bootstrap,
            state: instance.state,
            spec: Some(spec.clone()),
            applied: None,
            converged: true,
            ignored: false,
        };
        let mut vm = present.and_then(|present| present.vm.clone());
        let mut spare = None;
        let mut disks = present.map(|present| present.disks.clone()).unwrap_or_default();
        for action in instance.actions.iter() {
            assert!(!action.reason.is_empty(), "every action has its reason");
            match &action.what {
                ActionKind::Prepare => {}
                ActionKind::DeleteVm { vm: cid } => {
                    assert_eq!(vm.as_ref().map(|vm| &vm.cid), Some(cid));
                    vm = None;
                    for disk in disks.iter_mut().filter(|disk| disk.vm.as_ref() == Some(cid)) {
                        (disk.vm, disk.mounted) = (None, false);
                    }
                }
                ActionKind::CreateVm => vm = Some(new_vm(instance, &spec, prefix)),
                ActionKind::CreateSpareVm => {
                    let old = vm.as_ref().unwrap();
                    spare = Some(new_vm(instance, &spec, prefix));
                    for (name, network) in &spec.networks {
                        let old = old.networks.get(name).and_then(|network| network.ip.clone());
                        assert!(old.is_none() || old != network.ip, "two VMs have two addresses");
                    }
                }
                ActionKind::SwapVm { from } => {
                    assert_eq!(vm.as_ref().map(|vm| &vm.cid), Some(from));
                    assert!(disks.iter().all(|disk| disk.vm.as_ref() != Some(from)), "its disks were detached");
                    vm = spare.take();
                }
                ActionKind::AttachDisk { disk, name } => {
                    let vm = vm.as_ref().map(|vm| vm.cid.clone());
                    match disk {
                        Some(cid) => {
                            let known = disks.iter_mut().find(|known| &known.cid == cid).unwrap();
                            (known.vm, known.mounted, known.active) = (vm, true, true);
                        }
                        None => disks.push(new_disk(instance, spec.disk(name).unwrap(), prefix, vm)),
                    }
                }
                ActionKind::ResizeDisk { disk, from, to, .. } => {
                    let known = disks.iter_mut().find(|known| &known.cid == disk).unwrap();
                    assert!(known.size == *from && from < to && known.mounted);
                    known.size = *to;
                }
                ActionKind::MigrateDisk { disk, name, from, .. } => {
                    let known = disks.iter().position(|known| &known.cid == disk).unwrap();
                    assert!(disks[known].size == *from && disks[known].mounted);
                    disks.remove(known);
                    let vm = vm.as_ref().map(|vm| vm.cid.clone());
                    disks.push(new_disk(instance, spec.disk(name).unwrap(), &format!("{prefix}-copy"), vm));
                }
                ActionKind::OrphanDisk { disk } => disks.retain(|known| &known.cid != disk),
                ActionKind::DetachDisk { disk } => {
                    for known in disks.iter_mut().filter(|known| &known.cid == disk) {
                        (known.vm, known.mounted) = (None, false);
                    }
                }
                ActionKind::Stop { .. }
                | ActionKind::Start
                | ActionKind::CreateDisk { .. }
                | ActionKind::SetMetadata => {}
                ActionKind::RemoveInstance => panic!("a wanted instance is not removed"),
            }
        }
        assert!(spare.is_none(), "a spare VM is put to use");
        for (_, address) in spec.reserved_addresses() {
            after.addresses.insert(address, format!("{}/{}/{}", plan.deployment, instance.group, instance.id));
        }
        after.instances.push(CurrentInstance { record, vm, spare: None, disks, unresponsive: false });
    }
    after
}

fn new_disk(instance: &InstancePlan, spec: &DiskSpec, prefix: &str, vm: Option<VmCid>) -> DiskRecord {
    DiskRecord {
        cid: DiskCid::new(format!("disk-{prefix}-{}{}", instance.id, spec.name.as_str())).unwrap(),
        instance: instance.id.clone(),
        name: spec.name.clone(),
        cpi: CpiName::Default,
        size: spec.size,
        cloud_properties: spec.cloud_properties.clone(),
        active: true,
        vm,
        mounted: true,
        hint: None,
    }
}

fn new_vm(instance: &InstancePlan, spec: &InstanceSpec, prefix: &str) -> VmRecord {
    VmRecord {
        cid: VmCid::new(format!("vm-{prefix}-{}", instance.id)).unwrap(),
        agent_id: AgentId::random(),
        instance: instance.id.clone(),
        cpi: CpiName::Default,
        stemcell: spec.stemcell.clone(),
        networks: spec.networks.clone(),
        cloud_properties: spec.cloud_properties.clone(),
        wanted_env: spec.env.clone(),
        env_values: spec.env_values.clone(),
        disks: None,
        mbus_user: String::new(),
        mbus_password: Secret::new(""),
        created_at: 0,
        ready: true,
        certificate: None,
        spare: false,
    }
}

fn nothing() -> Current {
    let mut current = Current::default();
    let resources = windlass_contract::cpi::methods::VmResources {
        cpu: 1,
        ram: windlass_contract::MiB(512),
        ephemeral_disk_size: windlass_contract::MiB(1024),
    };
    let calculated = serde_json::json!({"cpu": 9}).as_object().cloned().unwrap();
    current.calculated.insert(&CpiName::Default, resources, calculated);
    current
}

fn attempt(desired: &Desired, current: &Current, options: &PlanOptions) -> Result<Plan, String> {
    let mut findings = Findings::new();
    let plan = plan(desired, current, options, &jobs::Hashed, &mut ids(current), &mut findings);
    if findings.is_clean() { Ok(plan) } else { Err(findings.to_string()) }
}

fn planned(desired: &Desired, current: &Current) -> Plan {
    attempt(desired, current, &PlanOptions::default()).unwrap()
}

/// Addresses of a plan by instance. No two are the same, and none is one that nobody may have.
fn addresses(plan: &Plan) -> BTreeMap<(InstanceId, String), IpAddr> {
    let never: Vec<AddressRange> = [
        "10.0.1.0 - 10.0.1.0",
        "10.0.1.255",
        "10.0.2.0 - 10.0.2.20",
        "10.0.2.255",
        "10.0.3.0",
        "10.0.3.255",
        "fd00:1:: - fd00:1::ffff",
    ]
    .iter()
    .map(|range| AddressRange::parse(range).unwrap())
    .collect();
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for instance in plan.instances() {
        for (network, address) in instance.spec.as_ref().unwrap().reserved_addresses() {
            assert!(seen.insert(address), "{address} is given twice");
            assert!(!never.iter().any(|range| range.contains(address)), "{address} is reserved");
            found.insert((instance.id.clone(), network.to_owned()), address);
        }
    }
    found
}

fn shape() -> Shape {
    Shape {
        instances: 1,
        azs: "[z1]",
        vm_type: "vm_type: small",
        disk: "d",
        networks: "n",
        stemcell: "one",
        strategy: "delete-create",
        lifecycle: "service",
        tags: "{}",
    }
}

fn deployed_as(shape: Shape) -> Current {
    carry_out(&planned(&desired(&[shape]), &nothing()), &nothing(), "0")
}

fn deployed() -> Current {
    deployed_as(shape())
}

fn whats(plan: &Plan) -> Vec<&'static str> {
    plan.instances()
        .flat_map(|instance| instance.actions.iter())
        .map(|action| match action.what {
            ActionKind::Prepare => "prepare",
            ActionKind::Stop { .. } => "stop",
            ActionKind::DetachDisk { .. } => "detach",
            ActionKind::DeleteVm { .. } => "delete",
            ActionKind::CreateVm => "create",
            ActionKind::CreateDisk { .. } => "create disk",
            ActionKind::AttachDisk { .. } => "attach",
            ActionKind::OrphanDisk { .. } => "orphan",
            ActionKind::Start => "start",
            ActionKind::RemoveInstance => "remove",
            ActionKind::CreateSpareVm => "create spare",
            ActionKind::SwapVm { .. } => "swap",
            ActionKind::SetMetadata => "metadata",
            ActionKind::ResizeDisk { .. } => "resize",
            ActionKind::MigrateDisk { .. } => "migrate",
        })
        .collect()
}
