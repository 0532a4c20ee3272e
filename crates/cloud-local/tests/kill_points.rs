//! The CPI killed at each of its steps: the repeated request finishes the job, once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]

mod rig;

use rig::{Rig, request, runs, unique};
use serde_json::{Value, json};

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
        if !was_killed {
            assert!(point > 4, "the sweep passed only {point} points");
            return;
        }
        point += 1;
    }
}

#[test]
fn create_disk_killed_anywhere_makes_one_disk() {
    sweep(
        &Rig::new(),
        |_| request("create_disk", json!([1024, {}, null]), &unique()),
        |rig, _, disk| {
            assert_eq!(rig.list("disks"), [disk.as_str().unwrap()]);
            rig.ok("delete_disk", json!([disk]));
            assert!(rig.list("disks").is_empty());
        },
    );
}

#[test]
fn create_vm_killed_anywhere_makes_one_vm_that_runs() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |rig| request("create_vm", rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}})), &unique()),
        |rig, _, created| {
            let cid = created[0].as_str().unwrap();
            assert_eq!(rig.list("vms"), [cid]);
            let agent = rig.pid(cid, "pid");
            assert!(runs(agent));
            rig.ok("delete_vm", json!([cid]));
            assert!(rig.list("vms").is_empty() && !runs(agent));
        },
    );
}

/// The original director's request ids are not unique, but it repeats the agent id.
#[test]
fn create_vm_of_the_original_director_killed_anywhere_makes_one_vm() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |rig| request("create_vm", rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}})), "cpi-1"),
        |rig, _, created| {
            assert_eq!(rig.list("vms"), [created[0].as_str().unwrap()]);
            rig.ok("delete_vm", json!([created[0]]));
        },
    );
}

#[test]
fn attach_disk_killed_anywhere_attaches_once() {
    let rig = Rig::new();
    let vm = rig.vm(&rig.stemcell());
    sweep(
        &rig,
        |rig| request("attach_disk", json!([vm, rig.ok("create_disk", json!([1, {}, null]))]), &unique()),
        |rig, asked, hint| {
            let disk = &asked["arguments"][1];
            assert!(hint["path"].as_str().unwrap().contains(disk.as_str().unwrap()));
            assert_eq!(rig.ok("get_disks", json!([vm])), json!([disk]));
            rig.ok("detach_disk", json!([vm, disk]));
            assert_eq!(rig.ok("get_disks", json!([vm])), json!([]));
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
            let disk = rig.ok("create_disk", json!([1, {}, null]));
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
fn delete_vm_killed_anywhere_ends_the_vm_and_frees_its_disk() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |rig| {
            let vm = rig.vm(&stemcell);
            let disk = rig.ok("create_disk", json!([1, {}, vm]));
            rig.ok("attach_disk", json!([vm, disk]));
            request("delete_vm", json!([vm, disk, rig.pid(&vm, "pid")]), &unique())
        },
        |rig, asked, _| {
            assert!(rig.list("vms").is_empty());
            let agent = asked["arguments"][2].as_u64().unwrap();
            assert!(!runs(u32::try_from(agent).unwrap()));
            rig.ok("delete_disk", json!([asked["arguments"][1]]));
        },
    );
}
