//! What has to be done to one instance, and why.

use serde_json::Value;
use windlass_contract::{Network, Networks, Object};

use super::{Action, ActionKind, CurrentInstance, DiskSpec, InstancePlan, InstanceSpec, PlanOptions};
use crate::desired::Desired;
use crate::records::{DiskRecord, InstanceState, VmRecord};

pub(super) fn action(what: ActionKind, reason: impl Into<String>) -> Action {
    Action { what, reason: reason.into() }
}

pub(super) fn stop(drain: bool, reason: impl Into<String>) -> Action {
    action(ActionKind::Stop { drain }, reason)
}

pub(super) fn new_instance(spec: &InstanceSpec) -> Vec<Action> {
    const REASON: &str = "the instance is new";
    let mut actions = vec![action(ActionKind::CreateVm, REASON)];
    for disk in &spec.disks {
        actions.extend(new_disk(disk, REASON));
    }
    actions.push(action(ActionKind::Start, REASON));
    actions
}

fn new_disk(disk: &DiskSpec, reason: &str) -> [Action; 2] {
    [
        action(ActionKind::CreateDisk { name: disk.name.clone(), size: disk.size }, reason),
        action(ActionKind::AttachDisk { disk: None, name: disk.name.clone() }, reason),
    ]
}

/// What becomes of an instance's VM.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum VmDecision {
    /// There is none.
    Missing,
    Kept,
    /// It does not answer, and is replaced without asking it anything.
    Dead,
    /// It is replaced, for this reason.
    Replaced(String),
}

/// Compares with the VM's own record, not with the instance's spec: a deploy that failed has stored its spec, but the VM is
/// as it was.
pub(super) fn decide_vm(
    desired: &Desired,
    present: &CurrentInstance,
    spec: &InstanceSpec,
    asked_for: bool,
) -> VmDecision {
    match &present.vm {
        None => VmDecision::Missing,
        Some(_) if present.unresponsive => VmDecision::Dead,
        Some(_) if asked_for => VmDecision::Replaced(ASKED_FOR.into()),
        Some(vm) => why_replace(desired, present, vm, spec).map_or(VmDecision::Kept, VmDecision::Replaced),
    }
}

fn why_replace(desired: &Desired, present: &CurrentInstance, vm: &VmRecord, spec: &InstanceSpec) -> Option<String> {
    if (&vm.stemcell.name, &vm.stemcell.version) != (&spec.stemcell.name, &spec.stemcell.version) {
        return Some(format!(
            "the stemcell changes from {}/{} to {}/{}",
            vm.stemcell.name, vm.stemcell.version, spec.stemcell.name, spec.stemcell.version
        ));
    }
    if !desired.is_same_cpi(&vm.cpi, &spec.cpi) {
        return Some(format!("its az moves from {} to {}", vm.cpi, spec.cpi));
    }
    if vm.cloud_properties != spec.cloud_properties {
        let changed = changed_keys(&vm.cloud_properties, &spec.cloud_properties);
        let before = present.record.spec.as_ref().and_then(|spec| spec.vm_type.as_ref());
        return Some(match (before, &spec.vm_type) {
            (Some(before), Some(after)) if before != after => {
                format!("the vm_type changes from {before} to {after} ({changed})")
            }
            _ => format!("its cloud_properties change ({changed})"),
        });
    }
    if vm.wanted_env != spec.env {
        // Only the names: an env holds secrets.
        let keys: Vec<_> = different_keys(&vm.wanted_env, &spec.env).collect();
        return Some(format!("its env changes ({})", keys.join(", ")));
    }
    if vm.env_values != spec.env_values {
        return Some("values of variables in its env or cloud_properties change".to_owned());
    }
    why_replace_for_networks(&vm.networks, &spec.networks)
}

/// Networks are never changed under a running VM.
fn why_replace_for_networks(had: &Networks, wanted: &Networks) -> Option<String> {
    for (name, network) in wanted {
        let Some(had) = had.get(name) else { return Some(format!("it joins network '{name}'")) };
        if let Some(what) = difference(had, network) {
            return Some(format!("its network '{name}' changes ({what})"));
        }
    }
    had.keys().find(|name| !wanted.contains_key(*name)).map(|name| format!("it leaves network '{name}'"))
}

/// What the cloud filled in, because nothing was planned, is no difference.
fn difference(had: &Network, wanted: &Network) -> Option<String> {
    let texts = [
        ("ip", &had.ip, &wanted.ip),
        ("netmask", &had.netmask, &wanted.netmask),
        ("gateway", &had.gateway, &wanted.gateway),
    ];
    if had.kind != wanted.kind {
        return Some(format!("type: {:?} → {:?}", had.kind, wanted.kind).to_lowercase());
    }
    for (what, had, wanted) in texts {
        if wanted.is_some() && had != wanted {
            let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
            return Some(format!("{what}: {} → {}", shown(had), shown(wanted)));
        }
    }
    for (what, is_same) in [
        ("dns", had.dns == wanted.dns),
        ("default", had.default == wanted.default),
        ("cloud_properties", had.cloud_properties == wanted.cloud_properties),
        ("nic_group", had.other.get("nic_group") == wanted.other.get("nic_group")),
    ] {
        if !is_same {
            return Some(what.to_owned());
        }
    }
    None
}

fn different_keys<'a>(before: &'a Object, after: &'a Object) -> impl Iterator<Item = &'a str> {
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(*value));
    let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
    changed.chain(gone).map(|(key, _)| key.as_str())
}

/// Such as `cpu: 1 → 4, zone`; values that are not simple are only named.
fn changed_keys(before: &Object, after: &Object) -> String {
    let simple = |object: &Object, key: &str| match object.get(key) {
        None | Some(Value::Null) => Some("none".to_owned()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
        Some(_) => None,
    };
    let shown = |key: &str| match (simple(before, key), simple(after, key)) {
        (Some(before), Some(after)) => format!("{key}: {before} → {after}"),
        _ => key.to_owned(),
    };
    different_keys(before, after).map(shown).collect::<Vec<_>>().join(", ")
}

const UNRESPONSIVE: &str = "its agent does not answer";
const ASKED_FOR: &str = "it was asked for";
const UNFINISHED: &str = "its last update did not finish";

/// An agent that is in the way of a plan.
pub(super) fn obstacle(present: &CurrentInstance, fix: bool) -> Option<String> {
    let vm = present.vm.as_ref().filter(|_| present.unresponsive && !fix)?;
    Some(format!(
        "the agent of {} (VM {}) does not answer; use --fix to replace the VM, its disks are kept",
        present.record.name(),
        vm.cid
    ))
}

fn delete_spare(spare: &VmRecord) -> Action {
    action(
        ActionKind::DeleteVm { vm: spare.cid.clone() },
        "it was made to take another VM's place, which it does not fit any more",
    )
}

/// Where an instance is brought to.
#[derive(Debug)]
pub(super) struct Goal<'a> {
    pub(super) desired: &'a Desired,
    pub(super) group: &'a str,
    pub(super) spec: &'a InstanceSpec,
    pub(super) state: InstanceState,
    pub(super) decision: VmDecision,
    /// Whether the new VM is made beside the old one.
    pub(super) swap: bool,
    /// Whether jobs are drained before they are stopped.
    pub(super) drain: bool,
    /// Whether it is stopped and started without another reason.
    pub(super) restart: bool,
    pub(super) options: &'a PlanOptions,
    /// Why its jobs are stopped and started again.
    pub(super) software: Option<String>,
}

impl Goal<'_> {
    /// An update that did not finish may have left the jobs of any version running.
    fn why_jobs_restart(&self, present: &CurrentInstance) -> Option<String> {
        let has_jobs = |spec: &InstanceSpec| spec.software.is_some();
        let had_jobs = present.record.spec.as_ref().is_some_and(has_jobs);
        let is_unfinished = !present.record.converged && (had_jobs || has_jobs(self.spec));
        self.software.clone().or_else(|| is_unfinished.then(|| UNFINISHED.to_owned()))
    }
}

/// Whether nothing runs on it since it was stopped.
pub(super) fn is_at_rest(present: &CurrentInstance) -> bool {
    present.record.state != InstanceState::Started && present.record.converged
}

/// Whether an instance that is to have this state is left as it was made, apart from being stopped.
pub(super) fn rests(present: &CurrentInstance, state: InstanceState) -> bool {
    let has_usable_vm = present.vm.as_ref().is_some_and(|vm| vm.ready) && !present.unresponsive;
    let rests = match state {
        InstanceState::Started => false,
        InstanceState::Stopped => has_usable_vm,
        InstanceState::Detached => true,
    };
    rests && present.record.spec.is_some()
}

/// What brings an instance to rest.
pub(super) fn resting(present: &CurrentInstance, state: InstanceState, drain: bool) -> Vec<Action> {
    let mut actions: Vec<Action> = present.spare.iter().map(delete_spare).collect();
    let Some(vm) = &present.vm else { return actions };
    if state == InstanceState::Detached {
        const REASON: &str = "it should have no VM";
        if !present.unresponsive {
            actions.extend(parting(present, vm, drain, REASON));
        }
        actions.push(action(ActionKind::DeleteVm { vm: vm.cid.clone() }, REASON));
    } else if !is_at_rest(present) {
        actions.push(stop(drain, "it should be stopped"));
    }
    actions
}

/// What brings an instance to its spec.
pub(super) fn changes(present: &CurrentInstance, goal: &Goal<'_>) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let is_useful = |spare: &VmRecord| goal.swap && why_replace(goal.desired, present, spare, goal.spec).is_none();
    if let Some(spare) = present.spare.as_ref().filter(|spare| !is_useful(spare)) {
        actions.push(delete_spare(spare));
    }
    match (&goal.decision, &present.vm) {
        (VmDecision::Dead, Some(vm)) => {
            actions.push(action(ActionKind::DeleteVm { vm: vm.cid.clone() }, UNRESPONSIVE));
            actions.push(action(ActionKind::CreateVm, UNRESPONSIVE));
        }
        (VmDecision::Replaced(reason), Some(vm)) if goal.swap => {
            actions.push(action(ActionKind::CreateSpareVm, reason));
            actions.extend(parting(present, vm, goal.drain, reason));
            actions.push(action(ActionKind::SwapVm { from: vm.cid.clone() }, reason));
        }
        (VmDecision::Replaced(reason), Some(vm)) => {
            actions.extend(parting(present, vm, goal.drain, reason));
            actions.push(action(ActionKind::DeleteVm { vm: vm.cid.clone() }, reason));
            actions.push(action(ActionKind::CreateVm, reason));
        }
        (VmDecision::Kept, Some(vm)) if !vm.ready => {
            actions.push(action(ActionKind::CreateVm, format!("the agent of VM {} never got ready", vm.cid)));
        }
        (VmDecision::Kept, Some(_)) => {}
        (_, None) => actions.push(action(ActionKind::CreateVm, "it has no VM")),
        (VmDecision::Missing, Some(_)) => {}
    }
    let keeps_vm = goal.decision == VmDecision::Kept;
    actions.extend(disk_changes(present, goal, keeps_vm)?);
    if keeps_vm {
        if let Some(reason) = why_rename(present, goal.group, goal.spec) {
            actions.push(action(ActionKind::SetMetadata, reason));
        }
        let touches_data = actions.iter().find(|action| action.what.touches_data(present));
        let asked_for = goal.restart.then(|| ASKED_FOR.to_owned());
        let reason = touches_data.map(|action| action.reason.clone());
        if let Some(reason) = reason.or_else(|| goal.why_jobs_restart(present)).or(asked_for)
            && present.vm.as_ref().is_some_and(|vm| vm.ready)
            && !is_at_rest(present)
        {
            actions.insert(0, stop(goal.drain, reason.clone()));
            if goal.spec.software.is_some() {
                actions.insert(0, action(ActionKind::Prepare, reason));
            }
        }
    }
    if goal.state == InstanceState::Started {
        actions.extend(why_start(present, goal, &actions).map(|reason| action(ActionKind::Start, reason)));
    }
    Ok(actions)
}

fn why_start(present: &CurrentInstance, goal: &Goal<'_>, actions: &[Action]) -> Option<&'static str> {
    let record = &present.record;
    // Other tags alone are nothing that the agent has to hear.
    let is_changed = actions.iter().any(|action| action.what != ActionKind::SetMetadata) || record.group != goal.group;
    if record.state != InstanceState::Started {
        Some("it should run")
    } else if is_changed {
        Some("it was changed")
    } else if goal.restart {
        Some(ASKED_FOR)
    } else if !record.converged {
        Some(UNFINISHED)
    } else {
        None
    }
}

/// Why the cloud has to hear other names for a VM that stays.
fn why_rename(present: &CurrentInstance, group: &str, spec: &InstanceSpec) -> Option<String> {
    let record = &present.record;
    if record.group != group {
        return Some(format!("it comes from the instance group '{}'", record.group));
    }
    let before = record.spec.as_ref().map(|spec| &spec.tags);
    // A deploy that failed has stored its tags, and perhaps told nobody.
    let is_told = record.converged && before == Some(&spec.tags);
    let has_tags = !spec.tags.is_empty() || before.is_some_and(|tags| !tags.is_empty());
    (!is_told && has_tags).then(|| match before {
        Some(before) if before != &spec.tags => format!("its tags change ({})", changed_keys(before, &spec.tags)),
        _ => UNFINISHED.to_owned(),
    })
}

/// Before a VM is replaced. An agent that never got ready is not asked to stop or unmount anything.
pub(super) fn parting(present: &CurrentInstance, vm: &VmRecord, drain: bool, reason: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    if vm.ready {
        if !is_at_rest(present) {
            actions.push(stop(drain, reason));
        }
        for disk in present.disks.iter().filter(|disk| disk.vm.as_ref() == Some(&vm.cid)) {
            actions.push(action(ActionKind::DetachDisk { disk: disk.cid.clone() }, "its VM is replaced"));
        }
    }
    actions
}

/// What brings a disk to the instance's VM, unless it is in use there.
fn attachment(present: &CurrentInstance, disk: &DiskRecord, keeps_vm: bool) -> Option<Action> {
    let reason = match (&present.vm, &disk.vm) {
        _ if !keeps_vm => "it moves to the new VM",
        (Some(vm), Some(on)) if on == &vm.cid && disk.active && disk.mounted => return None,
        (Some(vm), Some(on)) if on == &vm.cid => "it is attached, but not mounted",
        _ => "it is not attached",
    };
    Some(action(ActionKind::AttachDisk { disk: Some(disk.cid.clone()), name: disk.name.clone() }, reason))
}

/// What brings all disks that an instance should have to its VM. One that a deploy made and never mounted is one of them.
pub(super) fn attachments(present: &CurrentInstance, keeps_vm: bool) -> Vec<Action> {
    let mut actions = Vec::new();
    for wanted in present.record.applied_spec().into_iter().flat_map(|spec| &spec.disks) {
        match present.disk(wanted) {
            Some(disk) => actions.extend(attachment(present, disk, keeps_vm)),
            None => actions.extend(new_disk(wanted, "it has no such disk")),
        }
    }
    actions
}

fn disk_changes(present: &CurrentInstance, goal: &Goal<'_>, keeps_vm: bool) -> Result<Vec<Action>, String> {
    let (desired, spec) = (goal.desired, goal.spec);
    let mut actions = Vec::new();
    let mut kept = Vec::new();
    for wanted in &spec.disks {
        let Some(disk) = present.disk(wanted) else {
            actions.extend(new_disk(wanted, "it has no such disk"));
            continue;
        };
        if !desired.is_same_cpi(&disk.cpi, &spec.cpi) {
            return Err(format!(
                "disk {} of {} is with {}, which does not serve its az any more: \
                 name it in migrated_from of {} if that is the same cloud, or remove the disk from the group first",
                disk.cid,
                present.record.name(),
                disk.cpi,
                spec.cpi
            ));
        }
        kept.push(&disk.cid);
        actions.extend(attachment(present, disk, keeps_vm));
        actions.extend(disk_change(disk, wanted, goal.options.renews(disk)));
    }
    // Before anything is mounted: an agent has room for the disk in use and the one that takes its place.
    let mut parted = Vec::new();
    for disk in present.disks.iter().filter(|disk| !kept.contains(&&disk.cid)) {
        let reason = if disk.active { "the instance has no such disk any more" } else { "it is not in use" };
        if keeps_vm && disk.vm.is_some() {
            parted.push(action(ActionKind::DetachDisk { disk: disk.cid.clone() }, reason));
        }
        parted.push(action(ActionKind::OrphanDisk { disk: disk.cid.clone() }, reason));
    }
    parted.extend(actions);
    Ok(parted)
}

/// A disk that only grows may be resized in place; anything else takes a new one and a copy.
fn disk_change(disk: &DiskRecord, wanted: &DiskSpec, renew: bool) -> Option<Action> {
    let (from, to) = (disk.size, wanted.size);
    let cid = disk.cid.clone();
    if disk.cloud_properties != wanted.cloud_properties {
        let changed = changed_keys(&disk.cloud_properties, &wanted.cloud_properties);
        let reason = format!("the disk's properties change ({changed})");
        return Some(action(ActionKind::MigrateDisk { disk: cid, name: wanted.name.clone(), from, to }, reason));
    }
    if renew {
        return Some(action(ActionKind::MigrateDisk { disk: cid, name: wanted.name.clone(), from, to }, ASKED_FOR));
    }
    match from.cmp(&to) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => {
            let reason = format!("the disk grows from {from} to {to}");
            Some(action(ActionKind::ResizeDisk { disk: cid, name: wanted.name.clone(), from, to }, reason))
        }
        std::cmp::Ordering::Greater => {
            let reason = format!("the disk shrinks from {from} to {to}");
            Some(action(ActionKind::MigrateDisk { disk: cid, name: wanted.name.clone(), from, to }, reason))
        }
    }
}

/// The end of an instance.
pub(super) fn removal(present: &CurrentInstance, reason: &str, options: &PlanOptions) -> InstancePlan {
    let record = &present.record;
    let mut actions: Vec<Action> = present.spare.iter().map(delete_spare).collect();
    if let Some(vm) = &present.vm {
        if vm.ready && !(options.fix && present.unresponsive) && !is_at_rest(present) {
            actions.push(stop(options.skip_drain.drains(&record.group), reason));
        }
        actions.push(action(ActionKind::DeleteVm { vm: vm.cid.clone() }, reason));
    }
    for disk in &present.disks {
        actions.push(action(ActionKind::OrphanDisk { disk: disk.cid.clone() }, reason));
    }
    actions.push(action(ActionKind::RemoveInstance, reason));
    InstancePlan { spec: None, ..InstancePlan::of(record, actions) }
}
