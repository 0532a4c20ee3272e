//! Laws of planning: a deployment that is where it should be gives an empty plan; the same inputs give the same plan; no
//! two instances ever share an address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use windlass_contract::{AgentId, ApiVersion, Secret};
use windlass_manifest::Document;

use super::*;
use crate::desired::{CloudConfig, DeploymentManifest, Desired, resolve};
use crate::ledger::VmRecord;
use crate::store::{InstanceRecord, InstanceState, StemcellRecord};

const CLOUD: &str = "
azs: [{name: z1, cloud_properties: {zone: a}}, {name: z2}]
vm_types: [{name: small, cloud_properties: {cpu: 1}}, {name: large, cloud_properties: {cpu: 4}}]
disk_types: [{name: d, disk_size: 64}]
networks:
- name: n
  subnets:
  - {range: 10.0.1.0/24, gateway: 10.0.1.1, reserved: [10.0.1.2 - 10.0.1.9], azs: [z1], dns: [10.0.1.1]}
  - {range: 10.0.2.0/24, gateway: 10.0.2.1, static: [10.0.2.2 - 10.0.2.20], azs: [z2]}
- {name: dyn, type: dynamic}
";

/// What may differ from one manifest to the next.
#[derive(Debug, Clone)]
struct Shape {
    instances: usize,
    azs: &'static str,
    vm_type: &'static str,
    disk: bool,
    network: &'static str,
    stemcell: &'static str,
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        0_usize..5,
        prop::sample::select(vec!["[z1]", "[z2]", "[z1, z2]"]),
        prop::sample::select(vec!["small", "large"]),
        any::<bool>(),
        prop::sample::select(vec!["n", "dyn"]),
        prop::sample::select(vec!["1", "latest"]),
    )
        .prop_map(|(instances, azs, vm_type, disk, network, stemcell)| Shape {
            instances,
            azs,
            vm_type,
            disk,
            network,
            stemcell,
        })
}

fn desired(groups: &[Shape]) -> Desired {
    let mut manifest =
        "name: law\nstemcells: [{alias: one, os: os, version: '1'}, {alias: latest, os: os, version: latest}]\ninstance_groups:\n"
            .to_owned();
    for (number, shape) in groups.iter().enumerate() {
        let Shape { instances, azs, vm_type, disk, network, stemcell } = shape;
        let stemcell = if *stemcell == "1" { "one" } else { "latest" };
        let disk = if *disk { ", persistent_disk_type: d" } else { "" };
        manifest.push_str(&format!(
            "- {{name: g{number}, instances: {instances}, azs: {azs}, vm_type: {vm_type}, stemcell: {stemcell}, networks: [{{name: {network}}}]{disk}}}\n"
        ));
    }
    let mut cloud = CloudConfig::default();
    cloud.read(&Document::parse(CLOUD).unwrap()).unwrap();
    let manifest = DeploymentManifest::read(&Document::parse(&manifest).unwrap()).unwrap();
    let stemcell = |version: &str, id| StemcellRecord {
        id,
        name: "s".into(),
        version: version.into(),
        operating_system: "os".into(),
        cpi: String::new(),
        cid: StemcellCid::new(format!("sc-{version}")).unwrap(),
        api_version: Some(ApiVersion::V2),
        deployments: Vec::new(),
    };
    resolve(&manifest, &cloud, &[stemcell("1", 1), stemcell("1.10", 2), stemcell("1.9", 3)]).unwrap()
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
    let mut after = Current::default();
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
            state: InstanceState::Started,
            spec: Some(spec.clone()),
            converged: true,
        };
        let mut vm = present.and_then(|present| present.vm.clone());
        let mut disks = present.map(|present| present.disks.clone()).unwrap_or_default();
        for action in &instance.actions {
            match &action.what {
                What::DeleteVm { vm: cid } => {
                    assert_eq!(vm.as_ref().map(|vm| &vm.cid), Some(cid));
                    vm = None;
                }
                What::CreateVm => vm = Some(new_vm(instance, &spec, prefix)),
                What::AttachDisk { disk } => {
                    let cid =
                        disk.clone().unwrap_or_else(|| DiskCid::new(format!("disk-{prefix}-{}", instance.id)).unwrap());
                    disks.retain(|known: &DiskRecord| known.cid != cid);
                    disks.push(DiskRecord {
                        cid,
                        instance: instance.id.clone(),
                        cpi: String::new(),
                        size: spec.disk.as_ref().unwrap().size,
                        cloud_properties: spec.disk.as_ref().unwrap().cloud_properties.clone(),
                        active: true,
                        vm: vm.as_ref().map(|vm| vm.cid.clone()),
                        mounted: true,
                        hint: None,
                    });
                }
                What::OrphanDisk { disk } => disks.retain(|known| &known.cid != disk),
                What::DetachDisk { disk } => {
                    for known in disks.iter_mut().filter(|known| &known.cid == disk) {
                        (known.vm, known.mounted) = (None, false);
                    }
                }
                What::Stop | What::Start | What::CreateDisk { .. } => {}
                What::RemoveInstance => panic!("a wanted instance is not removed"),
            }
        }
        for (_, address) in spec.reserved_addresses() {
            after.addresses.insert(address, format!("{}/{}/{}", plan.deployment, instance.group, instance.id));
        }
        after.instances.push(CurrentInstance { record, vm, disks, unresponsive: false });
    }
    after
}

fn new_vm(instance: &InstancePlan, spec: &InstanceSpec, prefix: &str) -> VmRecord {
    VmRecord {
        cid: VmCid::new(format!("vm-{prefix}-{}", instance.id)).unwrap(),
        agent_id: AgentId::random(),
        instance: instance.id.clone(),
        cpi: String::new(),
        stemcell: spec.stemcell.clone(),
        networks: spec.networks.clone(),
        cloud_properties: spec.cloud_properties.clone(),
        wanted_env: spec.env.clone(),
        mbus_user: String::new(),
        mbus_password: Secret::new(""),
        created_at: 0,
        ready: true,
    }
}

fn planned(desired: &Desired, current: &Current) -> Plan {
    plan(desired, current, &PlanOptions::default(), &mut ids(current)).unwrap()
}

proptest! {
    #[test]
    fn a_deployment_that_is_where_it_should_be_gives_an_empty_plan(
        first in prop::collection::vec(shapes(), 0..3),
        second in prop::collection::vec(shapes(), 0..3),
    ) {
        let mut current = Current::default();
        for (round, shapes) in [&first, &second].into_iter().enumerate() {
            let wanted = desired(shapes);
            let plan = planned(&wanted, &current);
            prop_assert_eq!(&plan, &planned(&wanted, &current), "the same inputs give the same plan");
            let addresses: Vec<IpAddr> = plan
                .instances()
                .flat_map(|instance| instance.spec.as_ref().unwrap().reserved_addresses().map(|(_, address)| address))
                .collect();
            prop_assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), addresses.len(), "no address twice");
            current = carry_out(&plan, &current, &round.to_string());
            let again = planned(&wanted, &current);
            prop_assert!(again.is_empty(), "{}", again.describe());
        }
    }
}

fn shape() -> Shape {
    Shape { instances: 1, azs: "[z1]", vm_type: "small", disk: true, network: "n", stemcell: "1" }
}

fn deployed() -> Current {
    let wanted = desired(&[shape()]);
    carry_out(&planned(&wanted, &Current::default()), &Current::default(), "0")
}

fn whats(plan: &Plan) -> Vec<&'static str> {
    plan.instances()
        .flat_map(|instance| &instance.actions)
        .map(|action| match action.what {
            What::Stop => "stop",
            What::DetachDisk { .. } => "detach",
            What::DeleteVm { .. } => "delete",
            What::CreateVm => "create",
            What::CreateDisk { .. } => "create disk",
            What::AttachDisk { .. } => "attach",
            What::OrphanDisk { .. } => "orphan",
            What::Start => "start",
            What::RemoveInstance => "remove",
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
    let options = PlanOptions { recreate: Recreate::All, fix: false };
    let plan = plan(&desired(&[shape()]), &deployed(), &options, &mut ids(&deployed())).unwrap();
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
    let wanted = desired(&[Shape { vm_type: "large", network: "dyn", stemcell: "latest", ..shape() }]);
    let first = planned(&wanted, &current);
    // The deploy stored what it was about to do, and then failed before it touched the VM.
    current.instances[0].record.spec = first.instances().next().unwrap().spec.clone();
    current.instances[0].record.converged = false;
    assert_eq!(whats(&planned(&wanted, &current)), whats(&first));
    let mut current = deployed();
    current.instances[0].vm.as_mut().unwrap().wanted_env.insert("old".into(), true.into());
    assert!(planned(&desired(&[shape()]), &current).describe().contains("its env changes"));
}

#[test]
fn a_silent_agent_is_an_obstacle_that_names_its_remedy_and_fix_replaces_the_vm() {
    let mut current = deployed();
    current.instances[0].unresponsive = true;
    let wanted = desired(&[shape()]);
    let problems = plan(&wanted, &current, &PlanOptions::default(), &mut ids(&current)).unwrap_err().to_string();
    assert!(problems.contains("does not answer; use --fix"), "{problems}");
    let options = PlanOptions { fix: true, ..PlanOptions::default() };
    let plan = plan(&wanted, &current, &options, &mut ids(&current)).unwrap();
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
    let problems = plan(&desired(&[shape()]), &current, &PlanOptions::default(), &mut ids(&current)).unwrap_err();
    assert!(problems.to_string().contains("network 'n' has no free address for az 'z1'"), "{problems}");
}
