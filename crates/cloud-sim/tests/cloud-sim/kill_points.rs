//! The CPI killed at each of its steps: the repeated request finishes the job, once.

use std::fs;

use crate::rig::{Rig, request, unique, vm_arguments};
use serde_json::{Value, json};

/// Fewer points than this would mean that the sweep looks at nothing.
const FEWEST_POINTS: u64 = 3;

/// Kills the CPI at point 1, 2, … of the request that `make` gives, repeats it, and has `check` look at the answer and
/// the cloud; until the request ends unkilled.
fn sweep(rig: &Rig, make: impl Fn(&Rig) -> Value, check: impl Fn(&Rig, &Value, &Value)) {
    let mut point = 1;
    loop {
        let asked = make(rig);
        let unkilled = rig.send(&asked, Some(point));
        let was_killed = unkilled.is_none();
        let answer = unkilled.unwrap_or_else(|| rig.send(&asked, None).unwrap());
        assert_eq!(answer["error"], Value::Null, "killed at point {point}");
        check(rig, &asked, &answer["result"]);
        rig.no_lock_is_left_over();
        if !was_killed {
            assert!(point > FEWEST_POINTS, "the sweep passed only {point} points");
            return;
        }
        point += 1;
    }
}

#[test]
fn create_vm_killed_anywhere_makes_one_vm_with_its_address() {
    let rig = Rig::with(json!({"capacity": {"vms": 1}}));
    let stemcell = rig.stemcell();
    let networks = json!({"a": {"type": "manual", "ip": "10.0.0.9"}, "b": {"type": "dynamic"}});
    sweep(
        &rig,
        |_| request("create_vm", vm_arguments(&stemcell, networks.clone()), &unique()),
        |rig, _, created| {
            assert_eq!(rig.list("vms"), [created[0].as_str().unwrap()]);
            assert_eq!(rig.status().vms[0].addresses.len(), 2);
            rig.ok("delete_vm", json!([created[0]]));
            assert!(rig.list("vms").is_empty());
        },
    );
    assert!(rig.list("addresses").is_empty());
}

/// The original director's request ids are not unique, but it repeats the agent id.
#[test]
fn create_vm_of_the_original_director_killed_anywhere_makes_one_vm() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |_| request("create_vm", vm_arguments(&stemcell, json!({"a": {"type": "dynamic"}})), "cpi-1"),
        |rig, _, created| {
            assert_eq!(rig.list("vms"), [created[0].as_str().unwrap()]);
            rig.ok("delete_vm", json!([created[0]]));
        },
    );
}

#[test]
fn create_disk_killed_anywhere_makes_one_disk() {
    sweep(
        &Rig::with(json!({"capacity": {"disk_mib": 1024}})),
        |_| request("create_disk", json!([1024, {}, null]), &unique()),
        |rig, _, disk| {
            assert_eq!(rig.list("disks"), [disk.as_str().unwrap()]);
            rig.ok("delete_disk", json!([disk]));
            assert!(rig.list("disks").is_empty());
        },
    );
}

#[test]
fn attach_disk_killed_anywhere_attaches_once() {
    attach_disk_killed_anywhere(&Rig::new());
}

#[test]
fn attach_disk_that_makes_the_vm_again_killed_anywhere_leaves_it_on() {
    attach_disk_killed_anywhere(&Rig::with(json!({"attach_disk": "recreate"})));
}

fn attach_disk_killed_anywhere(rig: &Rig) {
    let vm = rig.vm(&rig.stemcell());
    sweep(
        rig,
        |rig| request("attach_disk", json!([vm, rig.disk(1)]), &unique()),
        |rig, asked, hint| {
            let disk = &asked["arguments"][1];
            let seen_at = rig.state().join("vms").join(vm.as_str().unwrap()).join("disks").join(disk.as_str().unwrap());
            assert_eq!(hint["path"], json!(seen_at));
            assert!(seen_at.is_dir());
            assert_eq!(rig.ok("get_disks", json!([vm])), json!([disk]));
            assert!(!rig.status().vms[0].is_off);
            rig.ok("detach_disk", json!([vm, disk]));
            rig.ok("delete_disk", json!([disk]));
        },
    );
}

#[test]
fn detach_disk_killed_anywhere_lets_go() {
    let rig = Rig::new();
    let vm = rig.vm(&rig.stemcell());
    sweep(
        &rig,
        |rig| {
            let disk = rig.disk(1);
            rig.ok("attach_disk", json!([vm, disk]));
            request("detach_disk", json!([vm, disk]), &unique())
        },
        |rig, asked, _| {
            assert_eq!(rig.ok("get_disks", json!([vm])), json!([]));
            rig.ok("delete_disk", json!([asked["arguments"][1]]));
        },
    );
}

#[test]
fn snapshot_disk_killed_anywhere_takes_one_whole_snapshot() {
    let rig = Rig::new();
    let disk = rig.disk(1);
    fs::write(rig.content("disks", &disk), "precious").unwrap();
    sweep(
        &rig,
        |_| request("snapshot_disk", json!([disk, {}]), &unique()),
        |rig, _, snapshot| {
            assert_eq!(rig.list("snapshots"), [snapshot.as_str().unwrap()]);
            assert_eq!(fs::read(rig.content("snapshots", snapshot)).unwrap(), b"precious");
            rig.ok("delete_snapshot", json!([snapshot]));
        },
    );
}

#[test]
fn update_disk_killed_anywhere_leaves_one_disk_with_its_content() {
    sweep(
        &Rig::with(json!({"update_disk": "replace"})),
        |rig| {
            let disk = rig.disk(1);
            fs::write(rig.content("disks", &disk), "precious").unwrap();
            request("update_disk", json!([disk, 2, {}]), &unique())
        },
        |rig, _, replaced| {
            assert_eq!(rig.list("disks"), [replaced.as_str().unwrap()]);
            assert_eq!(fs::read(rig.content("disks", replaced)).unwrap(), b"precious");
            rig.ok("delete_disk", json!([replaced]));
        },
    );
}

#[test]
fn create_network_killed_anywhere_makes_one_network() {
    sweep(
        &Rig::new(),
        |_| request("create_network", json!([{"netmask_bits": 9}]), &unique()),
        |rig, _, network| {
            assert_eq!(rig.list("networks"), [network[0].as_str().unwrap()]);
            rig.ok("delete_network", json!([network[0]]));
        },
    );
}

#[test]
fn delete_vm_killed_anywhere_frees_its_disk_and_its_address() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |rig| {
            let networks = json!({"a": {"type": "manual", "ip": "10.0.0.9"}});
            let vm = rig.ok("create_vm", vm_arguments(&stemcell, networks))[0].clone();
            let disk = rig.disk(1);
            rig.ok("attach_disk", json!([vm, disk]));
            request("delete_vm", json!([vm, disk]), &unique())
        },
        |rig, asked, _| {
            assert!(rig.list("vms").is_empty());
            rig.ok("delete_disk", json!([asked["arguments"][1]]));
        },
    );
}
