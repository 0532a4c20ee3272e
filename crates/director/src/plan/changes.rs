//! What has to be done to one instance, and why.

use serde_json::Value;
use windlass_contract::{Network, Networks, Object};

use super::{Action, CurrentInstance, DiskSpec, InstancePlan, InstanceSpec, What};
use crate::desired::Desired;
use crate::ledger::{DiskRecord, VmRecord};

fn action(what: What, reason: impl Into<String>) -> Action {
    Action { what, reason: reason.into() }
}

pub(super) fn new_instance(spec: &InstanceSpec) -> Vec<Action> {
    const REASON: &str = "the instance is new";
    let mut actions = vec![action(What::CreateVm, REASON)];
    for disk in &spec.disks {
        actions.extend(new_disk(disk, REASON));
    }
    actions.push(action(What::Start, REASON));
    actions
}

fn new_disk(disk: &DiskSpec, reason: &str) -> [Action; 2] {
    [
        action(What::CreateDisk { name: disk.name.clone(), size: disk.size }, reason),
        action(What::AttachDisk { disk: None, name: disk.name.clone() }, reason),
    ]
}

/// What becomes of an instance's VM.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fate {
    /// There is none.
    Missing,
    /// It stays.
    Kept,
    /// It does not answer, and is replaced without asking it anything.
    Dead,
    /// It is replaced, for this reason.
    Replaced(String),
}

/// Compares with the VM's own record, not with the instance's spec: a deploy that failed has stored its spec, but the VM is
/// as it was.
pub(super) fn fate(desired: &Desired, present: &CurrentInstance, spec: &InstanceSpec, asked_for: bool) -> Fate {
    match &present.vm {
        None => Fate::Missing,
        Some(_) if present.unresponsive => Fate::Dead,
        Some(_) if asked_for => Fate::Replaced("it was asked for".into()),
        Some(vm) => why_replace(desired, present, vm, spec).map_or(Fate::Kept, Fate::Replaced),
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
        return Some(format!("its az moves from the CPI '{}' to '{}'", vm.cpi, spec.cpi));
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

/// An agent that is in the way of a plan.
pub(super) fn obstacle(present: &CurrentInstance, fix: bool) -> Option<String> {
    let vm = present.vm.as_ref().filter(|_| present.unresponsive && !fix)?;
    Some(format!(
        "the agent of {} (VM {}) does not answer; use --fix to replace the VM, its disks are kept",
        present.record.name(),
        vm.cid
    ))
}

/// What brings an instance to its spec. `swap` makes the new VM beside the old one.
pub(super) fn changes(
    desired: &Desired,
    present: &CurrentInstance,
    group: &str,
    spec: &InstanceSpec,
    fate: &Fate,
    swap: bool,
) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    match (fate, &present.vm) {
        (Fate::Dead, Some(vm)) => {
            actions.push(action(What::DeleteVm { vm: vm.cid.clone() }, UNRESPONSIVE));
            actions.push(action(What::CreateVm, UNRESPONSIVE));
        }
        (Fate::Replaced(reason), Some(vm)) if swap => {
            actions.push(action(What::CreateSpareVm, reason));
            actions.extend(parting(present, vm, reason));
            actions.push(action(What::SwapVm { from: vm.cid.clone() }, reason));
        }
        (Fate::Replaced(reason), Some(vm)) => {
            actions.extend(parting(present, vm, reason));
            actions.push(action(What::DeleteVm { vm: vm.cid.clone() }, reason));
            actions.push(action(What::CreateVm, reason));
        }
        (Fate::Kept, Some(vm)) if !vm.ready => {
            actions.push(action(What::CreateVm, format!("the agent of VM {} never got ready", vm.cid)));
        }
        (Fate::Kept, Some(_)) => {}
        (_, None) => actions.push(action(What::CreateVm, "it has no VM")),
        (Fate::Missing, Some(_)) => {}
    }
    let keeps_vm = *fate == Fate::Kept;
    actions.extend(disk_changes(desired, present, spec, keeps_vm)?);
    if keeps_vm {
        if let Some(reason) = why_rename(present, group, spec) {
            actions.push(action(What::SetMetadata, reason));
        }
        let touches_data = |action: &&Action| action.what.touches_data(present);
        if let Some(reason) = actions.iter().find(touches_data).map(|action| action.reason.clone())
            && present.vm.as_ref().is_some_and(|vm| vm.ready)
        {
            actions.insert(0, action(What::Stop, reason));
        }
    }
    // Other tags alone are nothing that the agent has to hear.
    if actions.iter().any(|action| action.what != What::SetMetadata) || present.record.group != group {
        actions.push(action(What::Start, "it was changed"));
    } else if !present.record.converged {
        actions.push(action(What::Start, "its last update did not finish"));
    }
    Ok(actions)
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
        _ => "its last update did not finish".to_owned(),
    })
}

/// Before a VM is replaced. An agent that never got ready is not asked to stop or unmount anything.
fn parting(present: &CurrentInstance, vm: &VmRecord, reason: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    if vm.ready {
        actions.push(action(What::Stop, reason));
        for disk in present.disks.iter().filter(|disk| disk.vm.as_ref() == Some(&vm.cid)) {
            actions.push(action(What::DetachDisk { disk: disk.cid.clone() }, "its VM is replaced"));
        }
    }
    actions
}

fn disk_changes(
    desired: &Desired,
    present: &CurrentInstance,
    spec: &InstanceSpec,
    keeps_vm: bool,
) -> Result<Vec<Action>, String> {
    let mut actions = Vec::new();
    let mut kept = Vec::new();
    for wanted in &spec.disks {
        let Some(disk) = present.disk(wanted) else {
            actions.extend(new_disk(wanted, "it has no such disk"));
            continue;
        };
        if !desired.is_same_cpi(&disk.cpi, &spec.cpi) {
            return Err(format!(
                "disk {} of {} is with the CPI '{}', which does not serve its az any more: \
                 name it in migrated_from of '{}' if that is the same cloud, or remove the disk from the group first",
                disk.cid,
                present.record.name(),
                disk.cpi,
                spec.cpi
            ));
        }
        kept.push(&disk.cid);
        let attach = What::AttachDisk { disk: Some(disk.cid.clone()), name: wanted.name.clone() };
        match (&present.vm, &disk.vm) {
            _ if !keeps_vm => actions.push(action(attach, "it moves to the new VM")),
            (Some(vm), Some(on)) if on == &vm.cid && disk.mounted => {}
            (Some(vm), Some(on)) if on == &vm.cid => actions.push(action(attach, "it was not mounted yet")),
            _ => actions.push(action(attach, "it is not attached")),
        }
        actions.extend(disk_change(disk, wanted));
    }
    for disk in present.disks.iter().filter(|disk| !kept.contains(&&disk.cid)) {
        let reason = if disk.active { "the instance has no such disk any more" } else { "it was never put to use" };
        if keeps_vm && disk.vm.is_some() {
            actions.push(action(What::DetachDisk { disk: disk.cid.clone() }, reason));
        }
        actions.push(action(What::OrphanDisk { disk: disk.cid.clone() }, reason));
    }
    Ok(actions)
}

/// A disk that only grows may be resized in place; anything else takes a new one and a copy.
fn disk_change(disk: &DiskRecord, wanted: &DiskSpec) -> Option<Action> {
    let (from, to) = (disk.size, wanted.size);
    let cid = disk.cid.clone();
    if disk.cloud_properties != wanted.cloud_properties {
        let changed = changed_keys(&disk.cloud_properties, &wanted.cloud_properties);
        let reason = format!("the disk's properties change ({changed})");
        return Some(action(What::MigrateDisk { disk: cid, name: wanted.name.clone(), from, to }, reason));
    }
    match from.cmp(&to) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => {
            let reason = format!("the disk grows from {from} MiB to {to} MiB");
            Some(action(What::ResizeDisk { disk: cid, name: wanted.name.clone(), from, to }, reason))
        }
        std::cmp::Ordering::Greater => {
            let reason = format!("the disk shrinks from {from} MiB to {to} MiB");
            Some(action(What::MigrateDisk { disk: cid, name: wanted.name.clone(), from, to }, reason))
        }
    }
}

/// The end of an instance.
pub(super) fn removal(present: &CurrentInstance, reason: &str, fix: bool) -> InstancePlan {
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
