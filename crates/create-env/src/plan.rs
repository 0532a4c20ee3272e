//! What a run will do, in the director's actions, each with its reason. Pure.

use windlass_contract::DiskCid;
use windlass_planning::names::DiskName;
use windlass_planning::plan::{Action, ActionKind, DiskSpec};
use windlass_planning::records::{DiskRecord, VmRecord};

/// What is there when a run begins.
#[derive(Debug)]
pub struct Found<'a> {
    pub vm: Option<&'a VmRecord>,
    /// Whether the cloud still has that VM.
    pub exists: bool,
    /// Whether its agent answers.
    pub answers: bool,
    /// The disk with the data.
    pub disk: Option<&'a DiskRecord>,
    /// Disks that the agent has mounted.
    pub mounted: &'a [DiskRecord],
}

/// What is to be done otherwise than the manifest alone says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// A new VM in any case.
    pub recreate: bool,
    /// A new disk with the old one's data in any case.
    pub recreate_persistent_disks: bool,
    /// Without draining jobs.
    pub skip_drain: bool,
}

/// Why the VM is recreated; none if it can stay.
pub fn reason(found: &Found<'_>, wishes: Wishes, change: Option<&'static str>) -> Option<String> {
    if found.vm.is_none() {
        return Some("there is none".to_owned());
    }
    if !found.exists {
        return Some("the cloud has lost it".to_owned());
    }
    if let Some(change) = change {
        return Some(change.to_owned());
    }
    if wishes.recreate {
        return Some("--recreate".to_owned());
    }
    if wishes.recreate_persistent_disks {
        return Some("--recreate-persistent-disks".to_owned());
    }
    (!found.answers).then(|| "its agent does not answer".to_owned())
}

/// The actions that bring what is there to what is wanted, with a new VM for this reason.
pub fn plan(found: &Found<'_>, wanted: Option<&DiskSpec>, wishes: Wishes, reason: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut add = |what: ActionKind, reason: &str| actions.push(Action { what, reason: reason.to_owned() });
    if let Some(vm) = found.vm {
        if found.exists && found.answers {
            add(ActionKind::Stop { drain: !wishes.skip_drain }, reason);
            for disk in found.mounted {
                add(ActionKind::DetachDisk { disk: disk.cid.clone() }, "it is attached to the new VM");
            }
        }
        // Also when the cloud has lost it: the CPI may have something of it left.
        add(ActionKind::DeleteVm { vm: vm.cid.clone() }, reason);
    }
    add(ActionKind::CreateVm, reason);
    match (wanted, found.disk) {
        (None, _) => {}
        (Some(spec), None) => {
            add(ActionKind::CreateDisk { name: DiskName::Managed, size: spec.size }, "there is none");
            add(ActionKind::AttachDisk { disk: None, name: DiskName::Managed }, "the manifest asks for a disk");
        }
        (Some(spec), Some(disk)) => {
            add(ActionKind::AttachDisk { disk: Some(disk.cid.clone()), name: DiskName::Managed }, "it has the data");
            if let Some((what, reason)) = change_of_disk(disk, spec, wishes) {
                add(what, &reason);
            }
        }
    }
    add(ActionKind::Start, "the VM is new");
    actions
}

fn change_of_disk(disk: &DiskRecord, spec: &DiskSpec, wishes: Wishes) -> Option<(ActionKind, String)> {
    let (cid, name, from, to) = (disk.cid.clone(), DiskName::Managed, disk.size, spec.size);
    let migrate = |disk: DiskCid| ActionKind::MigrateDisk { disk, name: name.clone(), from, to };
    if wishes.recreate_persistent_disks {
        Some((migrate(cid), "--recreate-persistent-disks".to_owned()))
    } else if disk.cloud_properties != spec.cloud_properties {
        Some((migrate(cid), "its cloud properties changed".to_owned()))
    } else if to > from {
        let why = format!("its size changed from {from}");
        Some((ActionKind::ResizeDisk { disk: cid, name: name.clone(), from, to }, why))
    } else if to < from {
        Some((migrate(cid), format!("its size changed from {from}")))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_contract::MiB;

    use super::*;

    fn disk(size: u64) -> DiskRecord {
        serde_json::from_value(
            json!({"cid": "disk-1", "instance": "0", "cpi": "", "size": size, "cloud_properties": {},
            "active": true, "vm": "vm-1", "mounted": true, "hint": null}),
        )
        .unwrap()
    }

    fn vm() -> VmRecord {
        serde_json::from_value(json!({"cid": "vm-1", "agent_id": "a", "instance": "0", "cpi": "",
            "stemcell": {"name": "s", "version": "1", "api_version": 2}, "networks": {}, "cloud_properties": {},
            "wanted_env": {}, "mbus_user": "u", "mbus_password": "p", "created_at": 0, "ready": true}))
        .unwrap()
    }

    fn spec(size: u64) -> DiskSpec {
        DiskSpec { name: DiskName::Managed, size: MiB(size), cloud_properties: Default::default() }
    }

    fn described(actions: &[Action]) -> Vec<String> {
        actions.iter().map(|action| format!("{}: {}", action.what.describe(), action.reason)).collect()
    }

    #[test]
    fn a_first_run_makes_everything() {
        let found = Found { vm: None, exists: false, answers: false, disk: None, mounted: &[] };
        assert_eq!(reason(&found, Wishes::default(), None).unwrap(), "there is none");
        assert_eq!(
            described(&plan(&found, Some(&spec(64)), Wishes::default(), "there is none")),
            [
                "create VM: there is none",
                "create disk of 64 MiB: there is none",
                "attach the new disk: the manifest asks for a disk",
                "start: the VM is new"
            ]
        );
    }

    #[test]
    fn a_disk_is_carried_over_and_changed_where_it_differs() {
        let (vm, disk) = (vm(), disk(64));
        let mounted = std::slice::from_ref(&disk);
        let found = Found { vm: Some(&vm), exists: true, answers: true, disk: Some(&disk), mounted };
        assert_eq!(reason(&found, Wishes::default(), None), None, "it lives and nothing changed");
        let grown = described(&plan(&found, Some(&spec(128)), Wishes::default(), "the manifest changed"));
        assert_eq!(
            grown,
            [
                "stop: the manifest changed",
                "detach disk disk-1: it is attached to the new VM",
                "delete VM vm-1: the manifest changed",
                "create VM: the manifest changed",
                "attach disk disk-1: it has the data",
                "resize disk disk-1 to 128 MiB: its size changed from 64 MiB",
                "start: the VM is new"
            ]
        );
        let smaller = described(&plan(&found, Some(&spec(32)), Wishes::default(), "x"));
        assert!(
            smaller.contains(&"migrate disk disk-1 to a new one of 32 MiB: its size changed from 64 MiB".to_owned())
        );
        let none = described(&plan(&found, None, Wishes::default(), "x"));
        assert!(
            !none.iter().any(|line| line.contains("attach disk")),
            "without a disk in the manifest it is left alone"
        );
    }

    #[test]
    fn a_dead_vm_is_replaced_without_asking_its_agent() {
        let (vm, disk) = (vm(), disk(64));
        let found = Found { vm: Some(&vm), exists: true, answers: false, disk: Some(&disk), mounted: &[] };
        assert_eq!(reason(&found, Wishes::default(), None).unwrap(), "its agent does not answer");
        let actions = described(&plan(&found, Some(&spec(64)), Wishes::default(), "its agent does not answer"));
        assert_eq!(actions[0], "delete VM vm-1: its agent does not answer");
        let lost = Found { exists: false, ..found };
        assert_eq!(reason(&lost, Wishes::default(), None).unwrap(), "the cloud has lost it");
    }
}
