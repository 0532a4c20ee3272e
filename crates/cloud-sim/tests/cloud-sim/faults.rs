//! Every fault through the CPI as a real process, and that a repeated request repairs what a fault left.

use std::fs;
use std::time::{Duration, Instant};

use crate::rig::{Hanging, Rig, request, unique, vm_arguments, wait_for};
use serde_json::{Value, json};

fn create_disk() -> Value {
    request("create_disk", json!([64, {}, null]), &unique())
}

#[test]
fn the_nth_call_of_a_method_fails_as_told_whichever_process_makes_it() {
    let rig = Rig::with(json!({"faults": [
        {"method": "create_disk", "nth": 3, "fault": "fail",
         "error": {"type": "Bosh::Clouds::NoDiskSpace", "message": "full", "ok_to_retry": true}},
        {"method": "delete_disk", "fault": "fail"},
    ]}));
    let errors: Vec<Value> = (0..4).map(|_| rig.send(&create_disk(), None).unwrap()["error"].clone()).collect();
    let told = json!({"type": "Bosh::Clouds::NoDiskSpace", "message": "full", "ok_to_retry": true});
    assert_eq!(errors, [Value::Null, Value::Null, told, Value::Null]);
    let disks = rig.list("disks");
    assert_eq!(disks.len(), 3, "the one that failed made nothing");
    for _ in 0..2 {
        let error = rig.refused("delete_disk", json!([disks[0]]));
        assert_eq!(error, "CloudError: 'delete_disk' fails because the simulation says so", "every call fails");
    }
    assert_eq!(rig.list("disks").len(), 3);
}

#[test]
fn ten_calls_at_once_are_counted_as_ten() {
    let rig = Rig::with(json!({"faults": [{"method": "create_disk", "nth": 7, "fault": "fail"}]}));
    let failed: usize = std::thread::scope(|scope| {
        let call = |_| scope.spawn(|| usize::from(!rig.send(&create_disk(), None).unwrap()["error"].is_null()));
        let calls: Vec<_> = (0..10).map(call).collect();
        calls.into_iter().map(|call| call.join().unwrap()).sum()
    });
    assert_eq!((failed, rig.list("disks").len()), (1, 9));
}

#[test]
fn a_failure_after_the_effect_is_repaired_by_the_same_request() {
    let rig = Rig::with(json!({"faults": [{"method": "create_disk", "nth": 1, "fault": "fail_after"}]}));
    let create = create_disk();
    let failed = rig.send(&create, None).unwrap();
    assert_eq!(failed["error"]["type"], "Bosh::Clouds::CloudError");
    let made = rig.list("disks");
    assert_eq!(made.len(), 1, "the effect happened");
    assert_eq!(rig.send(&create, None).unwrap()["result"], made[0], "the same disk, not another");
    assert_eq!(rig.list("disks"), made);
}

#[test]
fn a_hanging_call_does_nothing_and_never_ends() {
    let rig = Rig::with(json!({"faults": [{"method": "create_disk", "nth": 1, "fault": "hang"}]}));
    let create = create_disk();
    let mut child = Hanging(rig.spawn(create.to_string().as_bytes(), None));
    let counted = rig.state().join("calls").join("create_disk");
    wait_for(|| counted.exists().then_some(()));
    // Long enough for several calls that do not hang.
    let started = Instant::now();
    for _ in 0..5 {
        rig.ok("has_disk", json!(["disk-1"]));
    }
    while started.elapsed() < Duration::from_millis(200) {
        assert_eq!(child.0.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(child);
    assert!(rig.list("disks").is_empty());
    assert_eq!(rig.send(&create, None).unwrap()["error"], Value::Null, "its locks are gone with it");
}

#[test]
fn a_call_that_dies_half_way_is_finished_by_the_same_request() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let vm = rig.vm(&stemcell);
    let disk = rig.disk(64);
    let another = rig.disk(64);
    rig.ok("attach_disk", json!([vm, another]));
    let networks = json!({"a": {"type": "manual", "ip": "10.0.0.9"}});
    for (method, arguments) in [
        ("create_stemcell", json!([rig.path("image"), null])),
        ("create_vm", vm_arguments(&stemcell, networks)),
        ("create_disk", json!([1, {}, null])),
        ("attach_disk", json!([vm, disk])),
        ("snapshot_disk", json!([disk, {}])),
        ("detach_disk", json!([vm, disk])),
        ("resize_disk", json!([disk, 100])),
        ("update_disk", json!([disk, 200, {"a": 1}])),
        ("set_disk_metadata", json!([disk, {"a": 1}])),
        ("set_vm_metadata", json!([vm, {"a": 1}])),
        ("reboot_vm", json!([vm])),
        ("create_network", json!([{"netmask_bits": 24}])),
        ("has_vm", json!([vm])),
        ("delete_disk", json!([disk])),
        ("delete_vm", json!([vm])),
    ] {
        rig.configure(json!({"faults": [{"method": method, "nth": 1, "fault": "die"}]}));
        let before = rig.status();
        let asked = request(method, arguments, &unique());
        assert_eq!(rig.send(&asked, None), None, "{method} should have died");
        let after = rig.status();
        assert_eq!(
            (&after.stemcells, after.vms.len(), after.disks.len(), &after.snapshots, &after.networks),
            (&before.stemcells, before.vms.len(), before.disks.len(), &before.snapshots, &before.networks),
            "{method} did what it should have died before"
        );
        assert_eq!(rig.send(&asked, None).unwrap()["error"], Value::Null, "{method}");
    }
    let status = rig.status();
    assert_eq!((status.stemcells.len(), status.vms.len(), status.disks.len()), (2, 1, 2));
    assert_eq!((status.snapshots.len(), status.networks.len()), (1, 1));
    assert!(status.disks.iter().all(|disk| disk.attached_to.is_none()));
    assert!(
        ["stemcells", "vms", "disks", "snapshots", "networks"]
            .iter()
            .all(|kind| rig.list(kind).iter().all(|name| !name.starts_with('.')))
    );
    rig.no_lock_is_left_over();
}

#[test]
fn garbage_is_no_answer_although_the_effect_happened() {
    let rig = Rig::with(json!({"faults": [{"method": "create_disk", "nth": 1, "fault": "garbage"}]}));
    let create = create_disk();
    let output = rig.output(&create);
    assert!(output.status.success() && !output.stdout.is_empty());
    serde_json::from_slice::<Value>(&output.stdout).unwrap_err();
    let made = rig.list("disks");
    assert_eq!(made.len(), 1);
    assert_eq!(rig.send(&create, None).unwrap()["result"], made[0], "asking again finds it");
}

#[test]
fn a_lost_vm_was_created_and_is_gone() {
    let rig = Rig::with(json!({"faults": [{"method": "create_vm", "nth": 1, "fault": "lose_vm"}]}));
    let stemcell = rig.stemcell();
    let at = || vm_arguments(&stemcell, json!({"a": {"type": "manual", "ip": "10.0.0.9"}}));
    let lost = rig.ok("create_vm", at());
    assert_eq!(rig.ok("has_vm", json!([lost[0]])), json!(false));
    assert!(rig.list("vms").is_empty());
    let found = rig.ok("create_vm", at());
    assert_ne!(found[0], lost[0]);
    assert_eq!(rig.ok("has_vm", json!([found[0]])), json!(true));
}

#[test]
fn a_method_takes_as_long_as_it_is_told_and_others_do_not_wait_for_it() {
    let rig = Rig::with(json!({"latency": {"create_vm": 1500}}));
    let stemcell = rig.stemcell();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| rig.vm(&stemcell));
        }
    });
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    assert!(took < Duration::from_millis(4 * 1500), "they wait at the same time: {took:?}");
}

#[test]
fn a_call_that_a_cpi_config_makes_faulty_is_faulty() {
    let rig = Rig::new();
    let mut create = create_disk();
    create["context"]["faults"] = json!([{"method": "create_disk", "fault": "fail"}]);
    assert_ne!(rig.send(&create, None).unwrap()["error"], Value::Null);
    assert_eq!(rig.send(&create_disk(), None).unwrap()["error"], Value::Null);
    assert!(fs::read_to_string(rig.state().join("calls/create_disk")).unwrap().starts_with('1'));
}
