//! From what is to what is wanted.

use windlass_contract::Object;
use windlass_manifest::{Position, Problem, Problems};

use super::addresses::{Taken, assign};
use super::{Action, DiskSpec, GroupPlan, InstancePlan, InstanceSpec, Plan, What};
use crate::desired::{Az, Desired, DesiredGroup};
use crate::ledger::{DiskRecord, StemcellOfVm, VmRecord};
use crate::store::InstanceRecord;

/// What is, as far as the director knows.
#[derive(Debug, Clone, Default)]
pub struct Current {
    /// Instances of the deployment.
    pub instances: Vec<CurrentInstance>,
    /// Addresses in use in all deployments, by holder (`deployment/group/uuid`).
    pub addresses: std::collections::BTreeMap<std::net::IpAddr, String>,
}

/// An instance with what it has.
#[derive(Debug, Clone)]
pub struct CurrentInstance {
    /// The instance.
    pub record: InstanceRecord,
    /// Its VM.
    pub vm: Option<VmRecord>,
    /// Its disks.
    pub disks: Vec<DiskRecord>,
    /// Whether its VM should answer and does not.
    pub unresponsive: bool,
}

/// What the operator asked for beyond the manifest.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// VMs to be made anew.
    pub recreate: Recreate,
    /// VMs whose agents do not answer are replaced, instead of being an obstacle.
    pub fix: bool,
}

/// VMs to be made anew without another reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Recreate {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// Those of a group, or one of them by index or uuid.
    Of {
        /// The group.
        group: String,
        /// Index or uuid.
        instance: Option<String>,
    },
}

impl Recreate {
    fn includes(&self, instance: &InstanceRecord) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of { group, instance: which } => {
                let is_it = |which: &String| *which == instance.id || *which == instance.index.to_string();
                *group == instance.group && which.as_ref().is_none_or(is_it)
            }
        }
    }
}

/// Plans. `new_id` gives the UUIDs of new instances; with the same ids the same inputs give the same plan.
pub fn plan(
    desired: &Desired,
    current: &Current,
    options: &PlanOptions,
    new_id: &mut dyn FnMut() -> String,
) -> Result<Plan, Problems> {
    let mut problems = Problems::new();
    let mut taken = Taken(current.addresses.clone());
    let mut removed = Vec::new();
    let mut groups = Vec::new();
    for group in &desired.groups {
        let present: Vec<_> = current.instances.iter().filter(|instance| instance.record.group == group.name).collect();
        let (kept, surplus) = place(group, &present, new_id);
        let reason = "there are more instances than wanted";
        removed.extend(surplus.into_iter().map(|instance| removal(instance, reason, options.fix)));
        let mut instances = Vec::new();
        for (position, seat) in kept.into_iter().enumerate() {
            match plan_instance(desired, group, position, seat, options, &mut taken) {
                Ok(instance) => instances.push(instance),
                Err(message) => {
                    let (path, line) = group.place.clone();
                    problems.push(Problem { path, position: Position { line, column: 1 }, message });
                    break;
                }
            }
        }
        instances.sort_by_key(|instance| !instance.bootstrap);
        groups.push(GroupPlan {
            name: group.name.clone(),
            canaries: group.update.canaries.of(group.instances),
            max_in_flight: group.update.max_in_flight.of(group.instances).max(1),
            instances,
        });
    }
    let is_wanted = |name: &str| desired.groups.iter().any(|group| group.name == name);
    for instance in current.instances.iter().filter(|instance| !is_wanted(&instance.record.group)) {
        removed.push(removal(instance, "its group is not in the manifest", options.fix));
    }
    problems.into_result(Plan { deployment: desired.deployment.clone(), removed, groups })
}

/// Plans the end of a deployment.
pub fn plan_deletion(deployment: &str, current: &Current) -> Plan {
    let removed =
        current.instances.iter().map(|instance| removal(instance, "the deployment is deleted", false)).collect();
    Plan { deployment: deployment.to_owned(), removed, groups: Vec::new() }
}

/// A place for an instance: one that is there, or a new one.
struct Seat<'a> {
    id: String,
    index: i64,
    az: Option<&'a Az>,
    present: Option<&'a CurrentInstance>,
}

/// Instances stay where they are while their zone is wanted; new ones go where the fewest are.
fn place<'a>(
    group: &'a DesiredGroup,
    present: &[&'a CurrentInstance],
    new_id: &mut dyn FnMut() -> String,
) -> (Vec<Seat<'a>>, Vec<&'a CurrentInstance>) {
    let mut seats: Vec<Seat<'a>> = Vec::new();
    let mut surplus = Vec::new();
    for instance in present {
        let az = match &instance.record.az {
            Some(name) => group.azs.iter().find(|az| &az.name == name).map(Some),
            None => group.azs.is_empty().then_some(None),
        };
        match az {
            Some(az) if seats.len() < group.instances => seats.push(Seat {
                id: instance.record.id.clone(),
                index: instance.record.index,
                az,
                present: Some(instance),
            }),
            _ => surplus.push(*instance),
        }
    }
    while seats.len() < group.instances {
        let fewest = |az: &&Az| seats.iter().filter(|seat| seat.az.is_some_and(|taken| taken.name == az.name)).count();
        let az = group.azs.iter().min_by_key(fewest);
        let is_used = |index: i64| {
            seats.iter().any(|seat| seat.index == index) || surplus.iter().any(|gone| gone.record.index == index)
        };
        let index = (0..).find(|index| !is_used(*index)).unwrap_or_default();
        seats.push(Seat { id: new_id(), index, az, present: None });
    }
    seats.sort_by_key(|seat| seat.index);
    (seats, surplus)
}

fn plan_instance(
    desired: &Desired,
    group: &DesiredGroup,
    position: usize,
    seat: Seat<'_>,
    options: &PlanOptions,
    taken: &mut Taken,
) -> Result<InstancePlan, String> {
    let cpi = seat.az.and_then(|az| az.cpi.clone()).unwrap_or_default();
    let stemcell = group.stemcells.iter().find(|choice| choice.cpi == cpi).ok_or_else(|| {
        format!("its stemcell was not uploaded to the CPI '{cpi}' of az '{}'", seat.az.map_or("", |az| &az.name))
    })?;
    let before = seat.present.and_then(|instance| instance.record.spec.as_ref());
    let holder = format!("{}/{}/{}", desired.deployment, group.name, seat.id);
    let az = seat.az.map(|az| az.name.as_str());
    let networks = assign(&group.networks, az, position, &holder, before.map(|spec| &spec.networks), taken)?;
    let mut cloud_properties: Object = seat.az.map(|az| az.cloud_properties.clone()).unwrap_or_default();
    cloud_properties.extend(group.cloud_properties.clone());
    let spec = InstanceSpec {
        cpi,
        stemcell_cid: stemcell.cid.clone(),
        stemcell: StemcellOfVm {
            name: stemcell.name.clone(),
            version: stemcell.version.clone(),
            api_version: stemcell.api_version,
        },
        vm_type: group.vm_type.clone(),
        cloud_properties,
        networks,
        disk: group
            .disk
            .as_ref()
            .map(|(size, cloud_properties)| DiskSpec { size: *size, cloud_properties: cloud_properties.clone() }),
        env: group.env.clone(),
        tags: desired.tags.clone(),
    };
    let actions = match seat.present {
        None => new_instance(&spec),
        Some(present) => changes(present, &spec, options)?,
    };
    Ok(InstancePlan {
        id: seat.id,
        group: group.name.clone(),
        index: seat.index,
        az: seat.az.map(|az| az.name.clone()),
        bootstrap: position == 0,
        spec: Some(spec),
        actions,
    })
}

fn action(what: What, reason: impl Into<String>) -> Action {
    Action { what, reason: reason.into() }
}

fn new_instance(spec: &InstanceSpec) -> Vec<Action> {
    let mut actions = vec![action(What::CreateVm, "the instance is new")];
    if let Some(disk) = &spec.disk {
        actions.push(action(What::CreateDisk { size: disk.size }, "the instance is new"));
        actions.push(action(What::AttachDisk { disk: None }, "the instance is new"));
    }
    actions.push(action(What::Start, "the instance is new"));
    actions
}

fn changes(present: &CurrentInstance, spec: &InstanceSpec, options: &PlanOptions) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let mut keeps_vm = false;
    match &present.vm {
        None => actions.push(action(What::CreateVm, "it has no VM")),
        Some(vm) if present.unresponsive && !options.fix => {
            return Err(format!(
                "the agent of {} (VM {}) does not answer; use --fix to replace the VM, its disks are kept",
                present.record.name(),
                vm.cid
            ));
        }
        Some(_) if present.unresponsive => {
            actions.extend(unresponsive_vm(present));
            actions.push(action(What::CreateVm, UNRESPONSIVE));
        }
        Some(vm) => match why_replace(vm, spec, options.recreate.includes(&present.record)) {
            Some(reason) => {
                actions.extend(removal_of_vm(present, vm, &reason));
                actions.push(action(What::CreateVm, reason));
            }
            None => {
                keeps_vm = true;
                if !vm.ready {
                    actions.push(action(What::CreateVm, format!("the agent of VM {} never got ready", vm.cid)));
                }
            }
        },
    }
    actions.extend(disk_changes(present, spec, keeps_vm)?);
    if actions.is_empty() && !present.record.converged {
        actions.push(action(What::Start, "its last update did not finish"));
    } else if !actions.is_empty() {
        actions.push(action(What::Start, "it was changed"));
    }
    Ok(actions)
}

/// Compares with the VM's own record, not with the instance's spec: a deploy that failed has stored its spec, but the VM is
/// as it was.
fn why_replace(vm: &VmRecord, spec: &InstanceSpec, asked_for: bool) -> Option<String> {
    if asked_for {
        return Some("it was asked for".into());
    }
    if (&vm.stemcell.name, &vm.stemcell.version) != (&spec.stemcell.name, &spec.stemcell.version) {
        return Some(format!(
            "the stemcell changes from {}/{} to {}/{}",
            vm.stemcell.name, vm.stemcell.version, spec.stemcell.name, spec.stemcell.version
        ));
    }
    if vm.cloud_properties != spec.cloud_properties {
        return Some("its cloud_properties change".into());
    }
    if vm.wanted_env != spec.env {
        return Some("its env changes".into());
    }
    let changed = spec.networks.iter().find(|(name, network)| {
        vm.networks.get(*name).is_none_or(|had| {
            had.kind != network.kind
                || (network.ip.is_some() && had.ip != network.ip)
                || had.cloud_properties != network.cloud_properties
        })
    });
    if let Some((name, _)) = changed {
        return Some(format!("its network '{name}' changes"));
    }
    vm.networks.keys().find(|name| !spec.networks.contains_key(*name)).map(|name| format!("it leaves network '{name}'"))
}

/// An agent that never got ready is not asked to stop or unmount anything.
fn removal_of_vm(present: &CurrentInstance, vm: &VmRecord, reason: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    if vm.ready {
        actions.push(action(What::Stop, reason));
        for disk in present.disks.iter().filter(|disk| disk.vm.as_ref() == Some(&vm.cid)) {
            actions.push(action(What::DetachDisk { disk: disk.cid.clone() }, "its VM is replaced"));
        }
    }
    actions.push(action(What::DeleteVm { vm: vm.cid.clone() }, reason));
    actions
}

fn disk_changes(present: &CurrentInstance, spec: &InstanceSpec, keeps_vm: bool) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let kept = match &spec.disk {
        None => None,
        Some(wanted) => match present.disk(wanted) {
            None => {
                actions.push(action(What::CreateDisk { size: wanted.size }, "it has no disk"));
                actions.push(action(What::AttachDisk { disk: None }, "it has no disk"));
                None
            }
            Some(disk) if disk.size != wanted.size || disk.cloud_properties != wanted.cloud_properties => {
                return Err(format!(
                    "disk {} of {} has {} MiB and shall have {} MiB or other properties: \
                     this director cannot change disks yet",
                    disk.cid,
                    present.record.name(),
                    disk.size,
                    wanted.size
                ));
            }
            Some(disk) => {
                let attach = What::AttachDisk { disk: Some(disk.cid.clone()) };
                match (&present.vm, &disk.vm) {
                    _ if !keeps_vm => actions.push(action(attach, "it moves to the new VM")),
                    (Some(vm), Some(on)) if on == &vm.cid && disk.mounted => {}
                    (Some(vm), Some(on)) if on == &vm.cid => actions.push(action(attach, "it was not mounted yet")),
                    _ => actions.push(action(attach, "it is not attached")),
                }
                Some(&disk.cid)
            }
        },
    };
    for disk in present.disks.iter().filter(|disk| Some(&disk.cid) != kept) {
        let reason = if disk.active { "the instance has no such disk any more" } else { "it was never put to use" };
        if keeps_vm && disk.vm.is_some() {
            actions.push(action(What::DetachDisk { disk: disk.cid.clone() }, reason));
        }
        actions.push(action(What::OrphanDisk { disk: disk.cid.clone() }, reason));
    }
    Ok(actions)
}

const UNRESPONSIVE: &str = "its agent does not answer";

fn unresponsive_vm(present: &CurrentInstance) -> Option<Action> {
    present.vm.as_ref().map(|vm| action(What::DeleteVm { vm: vm.cid.clone() }, UNRESPONSIVE))
}

fn removal(present: &CurrentInstance, reason: &str, fix: bool) -> InstancePlan {
    let mut actions = Vec::new();
    if let Some(vm) = &present.vm {
        if vm.ready && !(fix && present.unresponsive) {
            actions.push(action(What::Stop, reason));
        }
        actions.push(action(What::DeleteVm { vm: vm.cid.clone() }, reason));
    }
    for disk in &present.disks {
        actions.push(action(What::OrphanDisk { disk: disk.cid.clone() }, reason));
    }
    actions.push(action(What::RemoveInstance, reason));
    let record = &present.record;
    InstancePlan {
        id: record.id.clone(),
        group: record.group.clone(),
        index: record.index,
        az: record.az.clone(),
        bootstrap: record.bootstrap,
        spec: None,
        actions,
    }
}
