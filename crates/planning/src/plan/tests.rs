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
use crate::names::CpiName;
use crate::records::{
    CompilationKey, ConfigRecord, InstanceRecord, InstanceState, ReleaseRecord, StemcellRecord, VmRecord,
};

mod addons;
mod compiled;
mod copies;
mod jobs;
mod limits;
mod links;
mod mutated;
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
fn ids(current: &Current) -> impl FnMut() -> String {
    let mut next = current.instances.len();
    let known: BTreeSet<String> = current.instances.iter().map(|instance| instance.record.id.clone()).collect();
    move || {
        next += 1;
        std::iter::successors(Some(format!("id-{next}")), |id| Some(format!("{id}x")))
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

#[test]
fn groups_whose_new_vms_nest_are_named_until_they_are_there() {
    let cloud = CLOUD.replace("{cpu: 4}", "{cpu: 4, nesting: true}");
    let group = |name: &str, vm_type: &str| {
        format!(
            "- {{name: {name}, instances: 2, azs: [z1], vm_type: {vm_type}, stemcell: one, networks: [{{name: n}}]}}\n"
        )
    };
    let desired = wanted_from(&cloud, &(group("plain", "small") + &group("nested", "large")));
    let first = planned(&desired, &nothing());
    assert_eq!(first.groups_that_nest(), BTreeSet::from([("nested", &CpiName::Default)]));
    let after = carry_out(&first, &nothing(), "one");
    assert_eq!(planned(&desired, &after).groups_that_nest(), BTreeSet::new());
}

/// Addresses of a plan by instance. No two are the same, and none is one that nobody may have.
fn addresses(plan: &Plan) -> BTreeMap<(String, String), IpAddr> {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_deployment_that_is_where_it_should_be_gives_an_empty_plan(
        rounds in prop::collection::vec(prop::collection::vec(shapes(), 0..3), 1..4),
    ) {
        let mut current = nothing();
        for (round, shapes) in rounds.iter().enumerate() {
            let wanted = desired(shapes);
            let plan = planned(&wanted, &current);
            prop_assert_eq!(&plan, &planned(&wanted, &current), "the same inputs give the same plan");
            for (group, shape) in plan.groups.iter().zip(shapes) {
                prop_assert_eq!(group.instances.len(), shape.instances);
                prop_assert_eq!(group.instances.iter().filter(|instance| instance.bootstrap).count(), shape.instances.min(1));
                let indices: BTreeSet<_> = group.instances.iter().map(|instance| instance.index).collect();
                prop_assert_eq!(indices.len(), shape.instances, "no index twice");
            }
            addresses(&plan);
            current = carry_out(&plan, &current, &round.to_string());
            let again = planned(&wanted, &current);
            prop_assert!(again.is_empty(), "{}", again.describe());
        }
    }

    #[test]
    fn an_address_is_kept_as_long_as_it_fits(shape in shapes(), more in 0_usize..4) {
        let shape = Shape { instances: shape.instances + 1, strategy: "delete-create", ..shape };
        let current = carry_out(&planned(&desired(std::slice::from_ref(&shape)), &nothing()), &nothing(), "0");
        let before: BTreeMap<_, _> = current.instances.iter().map(|instance| (&instance.record.id, &instance.record.spec)).collect();
        let grown = Shape { instances: shape.instances + more, vm_type: "vm_type: large", ..shape };
        for instance in planned(&desired(&[grown]), &current).instances() {
            if let Some(Some(before)) = before.get(&instance.id) {
                prop_assert_eq!(&instance.spec.as_ref().unwrap().networks, &before.networks);
            }
        }
    }

    #[test]
    fn what_is_removed_and_added_again_gets_the_same_places(shape in shapes(), fewer in 0_usize..4) {
        let shape = Shape { instances: shape.instances + 1, ..shape };
        let smaller = Shape { instances: shape.instances.saturating_sub(fewer), ..shape.clone() };
        let (whole, part) = (desired(std::slice::from_ref(&shape)), desired(&[smaller]));
        let first = planned(&whole, &nothing());
        let current = carry_out(&first, &nothing(), "0");
        let current = carry_out(&planned(&part, &current), &current, "1");
        let again = planned(&whole, &current);
        let places = |plan: &Plan| -> BTreeMap<i64, Vec<IpAddr>> {
            plan.instances()
                .map(|one| (one.index, one.spec.as_ref().unwrap().reserved_addresses().map(|(_, address)| address).collect()))
                .collect()
        };
        let indices = |plan: &Plan| places(plan).into_keys().collect::<Vec<_>>();
        prop_assert_eq!(indices(&again), indices(&first));
        let all = |plan: &Plan| places(plan).into_values().flatten().collect::<BTreeSet<_>>();
        prop_assert_eq!(all(&again), all(&first));
        for present in &current.instances {
            prop_assert!(again.instances().any(|one| one.id == present.record.id), "whoever is there stays");
        }
    }

    #[test]
    fn static_addresses_stay_with_their_owners(counts in prop::collection::vec(0_usize..4, 3), then in prop::collection::vec(0_usize..4, 3)) {
        let manifest = |counts: &[usize]| {
            let ips: Vec<String> = counts
                .iter()
                .enumerate()
                .flat_map(|(zone, many)| (0..*many).map(move |last| format!("10.4.{}.{}", zone + 1, 10 + last)))
                .collect();
            format!(
                "- {{name: g, instances: {}, azs: [z1, z2, z3], vm_type: small, stemcell: one, networks: [{{name: fixed, static_ips: [{}]}}]}}\n",
                ips.len(), ips.join(", ")
            )
        };
        let (first, second) = (wanted(&manifest(&counts)), wanted(&manifest(&then)));
        let before = carry_out(&planned(&first, &nothing()), &nothing(), "0");
        prop_assert!(planned(&first, &before).is_empty());
        let plan = planned(&second, &before);
        let had: BTreeMap<IpAddr, &String> = before.instances.iter().map(|one| {
            (one.record.spec.as_ref().unwrap().networks["fixed"].ip.as_ref().unwrap().parse().unwrap(), &one.record.id)
        }).collect();
        for (holder, address) in addresses(&plan) {
            if let ("fixed", Some(owner)) = (holder.1.as_str(), had.get(&address)) {
                prop_assert_eq!(&holder.0, *owner, "{} stays", address);
            }
        }
        prop_assert!(planned(&second, &carry_out(&plan, &before, "1")).is_empty());
    }
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

#[test]
fn the_first_address_after_the_reserved_ones_is_taken_and_kept() {
    let current = deployed();
    let spec = current.instances[0].record.spec.as_ref().unwrap();
    assert_eq!(spec.networks["n"].ip.as_deref(), Some("10.0.1.10"));
    assert_eq!(spec.networks["n"].netmask.as_deref(), Some("255.255.255.0"));
    assert_eq!(spec.networks["n"].default.as_deref(), Some(&["dns".to_owned(), "gateway".to_owned()][..]));
    assert_eq!(spec.cloud_properties["zone"], "a");
    assert_eq!(spec.cloud_properties["cpu"], 1);
}

#[test]
fn a_recreate_carries_the_disk_over_in_the_right_order() {
    let options = PlanOptions { recreate: true, ..PlanOptions::default() };
    let plan = attempt(&desired(&[shape()]), &deployed(), &options).unwrap();
    assert_eq!(whats(&plan), ["stop", "detach", "delete", "create", "attach", "start"]);
}

#[test]
fn a_vm_that_is_gone_is_made_again_with_its_disk() {
    let mut current = deployed();
    current.instances[0].vm = None;
    current.instances[0].disks[0].vm = None;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["create", "attach", "start"]);
}

#[test]
fn work_that_was_interrupted_is_finished() {
    let mut current = deployed();
    current.instances[0].disks[0].mounted = false;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["attach", "start"]);
    let mut current = deployed();
    current.instances[0].record.converged = false;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["start"]);
    let mut current = deployed();
    current.instances[0].vm.as_mut().unwrap().ready = false;
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["create", "start"]);
}

#[test]
fn a_change_that_failed_is_planned_again_whatever_the_spec_says_by_then() {
    let mut current = deployed();
    let wanted = desired(&[Shape { vm_type: "vm_type: large", networks: "dyn", stemcell: "latest", ..shape() }]);
    let first = planned(&wanted, &current);
    // The deploy stored what it was about to do, and then failed before it touched the VM.
    current.instances[0].record.spec = first.instances().next().unwrap().spec.clone();
    current.instances[0].record.converged = false;
    assert_eq!(whats(&planned(&wanted, &current)), whats(&first));
    let mut current = deployed();
    current.instances[0].vm.as_mut().unwrap().wanted_env.insert("old".into(), true.into());
    assert!(planned(&desired(&[shape()]), &current).describe().contains("its env changes (old)"));
}

#[test]
fn a_vm_whose_env_has_another_value_of_a_variable_is_replaced_and_no_value_is_told() {
    let mut wanted = desired(&[shape()]);
    wanted.groups[0].env.insert("password".into(), "((p))".into());
    let mut current = deployed();
    current.variables = Some(crate::software::VariableSet(7));
    let vm = current.instances[0].vm.as_mut().unwrap();
    vm.wanted_env = wanted.groups[0].env.clone();
    vm.env_values = Some("digest of p".into());
    let plan = planned(&wanted, &current);
    assert_eq!(plan.instances().next().unwrap().spec.as_ref().unwrap().variables, current.variables);
    assert!(!plan.describe().contains("env"), "{}", plan.describe());
    current.instances[0].vm.as_mut().unwrap().env_values = Some("digest of another".into());
    assert!(
        planned(&wanted, &current).describe().contains("values of variables in its env or cloud_properties change")
    );
}

#[test]
fn a_silent_agent_is_an_obstacle_that_names_its_remedy_and_fix_replaces_the_vm() {
    let mut current = deployed();
    current.instances[0].unresponsive = true;
    let wanted = desired(&[shape()]);
    let problems = attempt(&wanted, &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("does not answer; use --fix"), "{problems}");
    let options = PlanOptions { fix: true, ..PlanOptions::default() };
    let plan = attempt(&wanted, &current, &options).unwrap();
    assert_eq!(whats(&plan), ["delete", "create", "attach", "start"], "a dead agent is asked for nothing");
}

#[test]
fn a_changed_stemcell_says_so_in_the_plan() {
    let plan = planned(&desired(&[Shape { stemcell: "latest", ..shape() }]), &deployed());
    assert!(plan.describe().contains("the stemcell changes from s/1 to s/1.10"), "{}", plan.describe());
}

#[test]
fn a_removed_instance_keeps_its_data() {
    let plan = planned(&desired(&[Shape { instances: 0, ..shape() }]), &deployed());
    let whats: Vec<_> = plan.removed[0].actions.iter().map(|action| action.what.describe()).collect();
    assert_eq!(whats, ["stop", "delete VM vm-0-id-1", "orphan disk disk-0-id-1 (data is kept)", "remove instance"]);
}

#[test]
fn a_full_network_is_named() {
    let mut current = Current::default();
    for last in 10..=254 {
        current.addresses.insert(format!("10.0.1.{last}").parse().unwrap(), "other/g/i".into());
    }
    let problems = attempt(&desired(&[shape()]), &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("instance_groups[0]: network 'n' has no free address for az 'z1'"), "{problems}");
}

#[test]
fn every_change_of_a_vm_names_old_and_new() {
    for (changed, reason) in [
        (Shape { vm_type: "vm_type: large", ..shape() }, "the vm_type changes from small to large (cpu: 1 → 4)"),
        (Shape { vm_type: RESOURCES, ..shape() }, "its cloud_properties change (cpu: 1 → 9)"),
        (Shape { stemcell: "latest", ..shape() }, "the stemcell changes from s/1 to s/1.10"),
        (Shape { networks: "dyn", ..shape() }, "it joins network 'dyn'"),
        (Shape { networks: "several", ..shape() }, "it joins network 'dyn'"),
    ] {
        let plan = planned(&desired(&[changed]), &deployed());
        assert!(plan.describe().contains(reason), "{reason} in {}", plan.describe());
        assert_eq!(whats(&plan), ["stop", "detach", "delete", "create", "attach", "start"]);
    }
    let elsewhere = CLOUD.replace("gateway: 10.0.1.1, ", "gateway: 10.0.1.9, ");
    let plan = planned(&wanted_from(&elsewhere, &group(0, &shape())), &deployed());
    assert!(plan.describe().contains("its network 'n' changes (gateway: 10.0.1.1 → 10.0.1.9)"), "{}", plan.describe());
}

#[test]
fn a_disk_that_changes_is_resized_or_migrated_on_a_stopped_instance() {
    let changed = |disk, reason: &str| {
        let plan = planned(&desired(&[Shape { disk, ..shape() }]), &deployed());
        assert!(plan.describe().contains(reason), "{reason} in {}", plan.describe());
        whats(&plan)
    };
    assert_eq!(changed("e", "the disk grows from 64 MiB to 128 MiB"), ["stop", "resize", "start"]);
    assert_eq!(changed("f", "the disk's properties change (type: none → ssd)"), ["stop", "migrate", "start"]);
    assert_eq!(changed("", "the instance has no such disk any more"), ["stop", "detach", "orphan", "start"]);
    let large = Shape { vm_type: "vm_type: large", disk: "e", ..shape() };
    let plan = planned(&desired(&[large]), &deployed());
    assert_eq!(whats(&plan), ["stop", "detach", "delete", "create", "attach", "resize", "start"]);
    let shrunk = planned(&desired(&[shape()]), &deployed_as(Shape { disk: "e", ..shape() }));
    assert_eq!(whats(&shrunk), ["stop", "migrate", "start"]);
    let named = planned(&desired(&[Shape { disk: "named", ..shape() }]), &nothing());
    assert_eq!(whats(&named), ["create", "create disk", "attach", "create disk", "attach", "start"]);
}

#[test]
fn a_swap_makes_the_new_vm_before_the_old_one_stops_with_another_address() {
    let swap = Shape { strategy: "create-swap-delete", ..shape() };
    let current = deployed_as(swap.clone());
    let plan = planned(&desired(&[Shape { vm_type: "vm_type: large", ..swap }]), &current);
    assert_eq!(whats(&plan), ["create spare", "stop", "detach", "swap", "attach", "start"]);
    let spec = plan.instances().next().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.networks["n"].ip.as_deref(), Some("10.0.1.11"));
}

#[test]
fn an_errand_has_no_vm_until_it_is_run() {
    let errand = Shape { lifecycle: "errand", ..shape() };
    let plan = planned(&desired(std::slice::from_ref(&errand)), &nothing());
    assert!(plan.is_empty() && plan.instances().count() == 1);
    let current = carry_out(&plan, &nothing(), "0");
    assert!(current.instances[0].vm.is_none());
    assert_eq!(whats(&planned(&desired(&[shape()]), &current)), ["create", "create disk", "attach", "start"]);
    assert!(planned(&desired(&[errand]), &deployed()).is_empty(), "a VM that is there stays");
}

#[test]
fn other_tags_alone_stop_nothing() {
    let plan = planned(&desired(&[Shape { tags: "{a: b}", ..shape() }]), &deployed());
    assert_eq!(whats(&plan), ["metadata"]);
    assert!(plan.describe().contains("its tags change (a: none → b)"), "{}", plan.describe());
    let mut current = deployed_as(Shape { tags: "{a: b}", ..shape() });
    current.instances[0].record.converged = false;
    let wanted = desired(&[Shape { tags: "{a: b}", ..shape() }]);
    assert_eq!(whats(&planned(&wanted, &current)), ["metadata", "start"], "nobody knows whether the cloud was told");
}

fn azs(plan: &Plan) -> Vec<(i64, &str)> {
    let mut azs: Vec<_> = plan.instances().map(|one| (one.index, one.az.as_deref().unwrap_or_default())).collect();
    azs.sort_unstable();
    azs
}

#[test]
fn instances_are_spread_evenly_and_the_highest_go_first() {
    let many = |instances, azs, disk| desired(&[Shape { instances, azs, disk, ..shape() }]);
    let current = carry_out(&planned(&many(5, "[z1, z2]", ""), &nothing()), &nothing(), "0");
    assert_eq!(
        azs(&planned(&many(5, "[z1, z2]", ""), &current)),
        [(0, "z1"), (1, "z2"), (2, "z1"), (3, "z2"), (4, "z1")]
    );
    let smaller = planned(&many(2, "[z1, z2]", ""), &current);
    assert_eq!(azs(&smaller), [(0, "z1"), (1, "z2")]);
    let mut gone: Vec<_> = smaller.removed.iter().map(|one| one.index).collect();
    gone.sort_unstable();
    assert_eq!(gone, [2, 3, 4]);
    assert!(smaller.instances().find(|one| one.index == 0).unwrap().bootstrap, "who was first stays first");
    let moved = planned(&many(4, "[z3]", ""), &current);
    assert_eq!(azs(&moved), [(5, "z3"), (6, "z3"), (7, "z3"), (8, "z3")], "indices of those that go are not used yet");
    assert_eq!(moved.removed.len(), 5);
    let disks = carry_out(&planned(&many(4, "[z1]", "d"), &nothing()), &nothing(), "0");
    assert_eq!(
        azs(&planned(&many(4, "[z1, z2]", "d"), &disks)),
        [(0, "z1"), (1, "z1"), (2, "z1"), (3, "z1")],
        "disks stay"
    );
    assert_eq!(planned(&many(4, "[z1, z2]", ""), &disks).removed.len(), 2, "without them, nothing holds an instance");
}

#[test]
fn bootstrap_moves_only_when_its_instance_goes() {
    let mut current =
        carry_out(&planned(&desired(&[Shape { instances: 3, disk: "", ..shape() }]), &nothing()), &nothing(), "0");
    for instance in &mut current.instances {
        instance.record.bootstrap = instance.record.index == 2;
    }
    let order = |plan: &Plan| plan.instances().map(|one| (one.index, one.bootstrap)).next();
    assert_eq!(order(&planned(&desired(&[Shape { instances: 3, disk: "", ..shape() }]), &current)), Some((2, true)));
    assert_eq!(order(&planned(&desired(&[Shape { instances: 2, disk: "", ..shape() }]), &current)), Some((0, true)));
}

#[test]
fn a_group_that_takes_over_another_keeps_its_instances_disks_and_addresses() {
    let current = deployed_as(Shape { instances: 2, ..shape() });
    let new =
        group(1, &Shape { instances: 3, ..shape() }).replace("{name: g1", "{name: g1, migrated_from: [{name: g0}]");
    let desired = wanted(&new);
    let plan = planned(&desired, &current);
    assert!(plan.removed.is_empty());
    assert_eq!(whats(&plan)[..4], ["metadata", "start", "metadata", "start"], "VMs and disks stay as they are");
    assert!(plan.describe().contains("it comes from the instance group 'g0'"));
    let indices: Vec<_> = azs(&plan).into_iter().map(|(index, _)| index).collect();
    assert_eq!(indices, [0, 1, 2]);
    for present in &current.instances {
        let kept = plan.instances().find(|one| one.id == present.record.id).unwrap();
        assert_eq!(kept.spec.as_ref().unwrap().networks, present.record.spec.as_ref().unwrap().networks);
    }
    assert!(planned(&desired, &carry_out(&plan, &current, "1")).is_empty());
    let mut nowhere = current.clone();
    nowhere.instances.iter_mut().for_each(|instance| instance.record.az = None);
    let problems = attempt(&desired, &nowhere, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("migrated_from must say in which az 'g0' is"), "{problems}");
    let elsewhere = wanted(&new.replace("{name: g0}", "{name: g0, az: z2}"));
    let problems = attempt(&elsewhere, &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("says that 'g0' is in az 'z2', but g0/id-1 is in az 'z1'"), "{problems}");
}

#[test]
fn a_renamed_network_keeps_its_addresses() {
    let renamed = CLOUD.replace("- name: n\n", "- name: renamed\n");
    let desired = wanted_from(&renamed, &group(0, &shape()).replace("{name: n}", "{name: renamed}"));
    let plan = planned(&desired, &deployed());
    let spec = plan.instances().next().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.networks["renamed"].ip.as_deref(), Some("10.0.1.10"));
}

#[test]
fn a_static_address_of_somebody_else_is_named_with_its_holder() {
    let groups = "- {name: g, instances: 1, azs: [z1], vm_type: small, stemcell: one, networks: [{name: fixed, static_ips: [10.4.1.10]}]}\n";
    let mut current = nothing();
    current.addresses.insert("10.4.1.10".parse().unwrap(), "other/db/uuid".into());
    let problems = attempt(&wanted(groups), &current, &PlanOptions::default()).unwrap_err();
    assert!(problems.contains("the static ip 10.4.1.10 of network 'fixed' is in use by other/db/uuid"), "{problems}");
}

#[test]
fn all_silent_agents_are_named_at_once() {
    let mut current = deployed_as(Shape { instances: 3, ..shape() });
    current.instances.iter_mut().for_each(|instance| instance.unresponsive = true);
    let problems =
        attempt(&desired(&[Shape { instances: 2, ..shape() }]), &current, &PlanOptions::default()).unwrap_err();
    assert_eq!(problems.lines().count(), 3, "{problems}");
}

#[test]
fn groups_are_updated_one_after_the_other_unless_they_say_otherwise() {
    let one = |number: usize, serial: bool| {
        group(number, &shape())
            .replace("vm_strategy", &format!("serial: {serial}, max_in_flight: 50%, canaries: 7, vm_strategy"))
    };
    let desired = wanted(&[one(0, true), one(1, true), one(2, false), one(3, false), one(4, true)].concat());
    let plan = planned(&desired, &nothing());
    let batches: Vec<Vec<&str>> =
        plan.batches().iter().map(|batch| batch.iter().map(|group| group.name.as_str()).collect()).collect();
    assert_eq!(batches, [vec!["g0"], vec!["g1"], vec!["g2", "g3"], vec!["g4"]]);
    assert_eq!((plan.groups[0].canaries, plan.groups[0].max_in_flight), (7, 1), "at least one at a time");
    let options = PlanOptions { max_in_flight: Some(crate::desired::Count::Number(9)), ..PlanOptions::default() };
    assert_eq!(attempt(&desired, &nothing(), &options).unwrap().groups[0].max_in_flight, 9);
}

#[test]
fn zones_are_updated_one_after_the_other_beginning_with_the_first_instances() {
    let plan = planned(&desired(&[Shape { instances: 4, azs: "[z2, z1]", ..shape() }]), &nothing());
    let zones: Vec<Vec<&str>> = plan.groups[0]
        .changed_by_zone()
        .iter()
        .map(|zone| zone.iter().map(|one| one.az.as_deref().unwrap()).collect())
        .collect();
    assert_eq!(zones, [["z1", "z1"], ["z2", "z2"]]);
}

#[test]
fn vips_stay_with_their_owners_and_come_in_the_order_of_the_list() {
    let groups = |vips: &[&str]| {
        format!(
            "- {{name: g, instances: {}, azs: [z1], vm_type: small, stemcell: one, networks: [{{name: n, default: [dns, gateway]}}, {{name: pub, static_ips: [{}]}}]}}\n",
            vips.len(),
            vips.join(", ")
        )
    };
    let vips = |plan: &Plan| -> BTreeMap<i64, String> {
        plan.instances()
            .map(|one| (one.index, one.spec.as_ref().unwrap().networks["pub"].ip.clone().unwrap()))
            .collect()
    };
    let first = planned(&wanted(&groups(&["198.51.100.9", "198.51.100.1"])), &nothing());
    let expected = |vips: &[&str]| (0..).zip(vips.iter().map(ToString::to_string)).collect::<BTreeMap<_, _>>();
    assert_eq!(vips(&first), expected(&["198.51.100.9", "198.51.100.1"]));
    let current = carry_out(&first, &nothing(), "0");
    let more = planned(&wanted(&groups(&["198.51.100.1", "198.51.100.5", "198.51.100.9"])), &current);
    assert_eq!(vips(&more), expected(&["198.51.100.9", "198.51.100.1", "198.51.100.5"]));
    let spec = more.instances().next().unwrap().spec.as_ref().unwrap();
    assert_eq!(spec.networks["pub"].kind, NetworkKind::Vip);
}
