//! The CPI and the supervisor of containers killed at each of their steps: the repeated request finishes the job, once, and
//! nothing remains on the machine that the cloud does not explain.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::rig::own_machine::{answers, is_own_machine};
use crate::rig::{Rig, request, runs, unique};
use serde_json::{Value, json};
use windlass_durable::sweep::Points;

/// Fewer points than this would mean that the sweep looks at nothing.
const FEWEST_POINTS: u64 = 2;

/// Kills the CPI at each point of the request that `make` gives, repeats it, and has `check` look at the answer and the cloud;
/// until the request ends unkilled.
fn sweep(rig: &Rig, what: &str, make: impl Fn() -> Value, check: impl Fn(&Value, &Value)) {
    for (kills, point) in Points::sampled(3).enumerate() {
        let asked = make();
        let unkilled = rig.send(&asked, Some(point));
        let was_killed = unkilled.is_none();
        let answer = unkilled.unwrap_or_else(|| rig.send(&asked, None).unwrap());
        assert_eq!(answer["error"], Value::Null, "killed at point {point}");
        check(&asked, &answer["result"]);
        if !was_killed {
            assert!(point > FEWEST_POINTS, "the sweep passed only {point} points");
            eprintln!("{what}: killed {kills} times at points 1 to {point}");
            return;
        }
    }
}

const IP: &str = "10.77.0.5";

fn networks() -> Value {
    json!({"a": {"type": "manual", "ip": IP, "netmask": "255.255.255.0", "gateway": "10.77.0.1"},
        "b": {"type": "vip", "ip": "192.0.2.9"}})
}

fn delete(rig: &Rig, cid: &Value) {
    rig.remember(cid.as_str().unwrap());
    rig.ok("delete_vm", json!([cid]));
    assert!(rig.list("vms").is_empty() && rig.traces().is_empty(), "{:?} {:?}", rig.list("vms"), rig.traces());
}

#[test]
fn create_vm_killed_anywhere_makes_one_container_that_runs() {
    if !is_own_machine("container_kills::create_vm_killed_anywhere_makes_one_container_that_runs") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    sweep(
        &rig,
        "create_vm",
        || request("create_vm", rig.container_arguments(&stemcell, networks()), &unique()),
        |_, created| {
            assert_eq!(rig.list("vms"), [created[0].as_str().unwrap()]);
            assert!(answers(IP) && answers("192.0.2.9"));
            delete(&rig, &created[0]);
        },
    );
}

#[test]
fn delete_vm_killed_anywhere_leaves_nothing_of_a_container() {
    if !is_own_machine("container_kills::delete_vm_killed_anywhere_leaves_nothing_of_a_container") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    // What a killed supervisor leaves is more work.
    for is_supervised in [true, false] {
        sweep(
            &rig,
            if is_supervised { "delete_vm" } else { "delete_vm after the supervisor was killed" },
            || {
                let cid = rig.container(&stemcell, networks());
                let init = rig.init(&cid);
                if !is_supervised {
                    crate::rig::kill_hard(rig.supervisor(&cid));
                }
                request("delete_vm", json!([cid, init]), &unique())
            },
            |asked, _| {
                assert!(!runs(u32::try_from(asked["arguments"][1].as_u64().unwrap()).unwrap()));
                assert!(
                    rig.list("vms").is_empty() && rig.traces().is_empty(),
                    "{:?} {:?}",
                    rig.list("vms"),
                    rig.traces()
                );
            },
        );
    }
}

#[test]
fn reboot_vm_killed_anywhere_ends_with_a_container_that_runs() {
    if !is_own_machine("container_kills::reboot_vm_killed_anywhere_ends_with_a_container_that_runs") {
        return;
    }
    let rig = Rig::of_containers();
    let cid = rig.container(&rig.system_stemcell(), networks());
    for is_supervised in [true, false] {
        sweep(
            &rig,
            if is_supervised { "reboot_vm" } else { "reboot_vm after the supervisor was killed" },
            || {
                if !is_supervised {
                    crate::rig::kill_hard(rig.supervisor(&cid));
                }
                request("reboot_vm", json!([cid]), &unique())
            },
            |_, _| assert!(answers(IP)),
        );
    }
    delete(&rig, &json!(cid));
}

/// The supervisor killed at each step of its start, in place of the CPI.
#[test]
fn a_supervisor_killed_anywhere_leaves_nothing_of_its_container() {
    if !is_own_machine("container_kills::a_supervisor_killed_anywhere_leaves_nothing_of_its_container") {
        return;
    }
    let rig = Rig::of_containers();
    let stemcell = rig.system_stemcell();
    let script = rig.path("windlass");
    for (kills, point) in Points::sampled(3).enumerate() {
        let text = format!("#!/bin/sh\nWINDLASS_KILL_AT={point} exec {} \"$@\"\n", env!("CARGO_BIN_EXE_local-cpi"));
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        rig.configure(json!({"state_dir": rig.state(), "isolation": "container", "windlass": script}));
        let answer = rig.ask("create_vm", rig.container_arguments(&stemcell, networks()));
        if answer["error"].is_null() {
            assert!(point > FEWEST_POINTS);
            eprintln!("supervisor: killed {kills} times at points 1 to {point}");
            delete(&rig, &answer["result"][0]);
            return;
        }
        assert_eq!(answer["error"]["type"], "Bosh::Clouds::VMCreationFailed");
        assert!(answer["error"]["message"].as_str().unwrap().contains("killed at point"), "{answer}");
        assert!(rig.list("vms").is_empty(), "killed at point {point}");
        assert_eq!(rig.traces(), Vec::<String>::new(), "killed at point {point}");
    }
}
