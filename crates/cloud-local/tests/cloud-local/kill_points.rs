//! The CPI killed at each of its steps: the repeated request finishes the job, once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::rig::{Rig, request, runs, unique, wait_for};
use serde_json::{Value, json};
use windlass_rigs::recording_registry::RecordingRegistry;

/// Fewer points than this would mean that the sweep looks at nothing.
pub(crate) const FEWEST_POINTS: u64 = 3;

/// Kills the CPI at point 1, 2, … of the request that `make` gives, repeats it, and has `check` look at the answer and
/// the cloud; until the request ends unkilled.
pub(crate) fn sweep(rig: &Rig, make: impl Fn(&Rig) -> Value, check: impl Fn(&Rig, &Value, &Value)) {
    let mut point = 1;
    loop {
        let asked = make(rig);
        let unkilled = rig.send(&asked, Some(point));
        let was_killed = unkilled.is_none();
        let answer = unkilled.unwrap_or_else(|| rig.send(&asked, None).unwrap());
        assert_eq!(answer["error"], Value::Null, "killed at point {point}");
        check(rig, &asked, &answer["result"]);
        if !was_killed {
            assert!(point > FEWEST_POINTS, "the sweep passed only {point} points");
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
fn create_stemcell_killed_anywhere_makes_one_stemcell() {
    let rig = Rig::new();
    let image = rig.image(crate::rig::AGENT);
    sweep(
        &rig,
        |_| request("create_stemcell", json!([image, null]), &unique()),
        |rig, _, stemcell| {
            assert_eq!(rig.list("stemcells"), [stemcell.as_str().unwrap()]);
            rig.ok("delete_stemcell", json!([stemcell]));
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
            assert!(rig.list("locks").iter().all(|lock| lock.starts_with("sc-")), "{:?}", rig.list("locks"));
        },
    );
}

#[test]
fn delete_disk_killed_anywhere_leaves_nothing() {
    sweep(
        &Rig::new(),
        |rig| request("delete_disk", json!([rig.ok("create_disk", json!([1, {}, null]))]), &unique()),
        |rig, _, _| assert!(rig.list("disks").is_empty() && rig.list("locks").is_empty()),
    );
}

#[test]
fn reboot_vm_killed_anywhere_ends_with_a_vm_that_runs() {
    let rig = Rig::new();
    let vm = rig.vm(&rig.stemcell());
    sweep(
        &rig,
        |_| request("reboot_vm", json!([vm]), &unique()),
        |rig, _, _| assert!(wait_for(|| Some(rig.pid(&vm, "pid")).filter(|pid| runs(*pid))) > 0),
    );
}

/// The supervisor killed at each step of its start, in place of the CPI.
#[test]
fn a_supervisor_killed_anywhere_is_an_error_that_leaves_nothing() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let script = rig.path("windlass");
    for point in 1.. {
        let text = format!("#!/bin/sh\nWINDLASS_KILL_AT={point} exec {} \"$@\"\n", env!("CARGO_BIN_EXE_local-cpi"));
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        rig.configure(json!({"state_dir": rig.state(), "isolation": "process", "windlass": script}));
        let arguments = rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
        let answer = rig.ask("create_vm", arguments);
        if answer["error"].is_null() {
            assert!(point > FEWEST_POINTS);
            let cid = &answer["result"][0];
            let agent = rig.pid(cid.as_str().unwrap(), "pid");
            rig.ok("delete_vm", json!([cid]));
            assert!(!runs(agent));
            return;
        }
        assert_eq!(answer["error"]["type"], "Bosh::Clouds::VMCreationFailed");
        assert!(answer["error"]["message"].as_str().unwrap().contains("killed at point"), "{answer}");
        assert!(rig.list("vms").is_empty(), "killed at point {point}");
    }
}

/// A request of version 1, with a registry.
fn with_registry(registry: &RecordingRegistry, mut request: Value) -> Value {
    request["api_version"] = json!(1);
    let endpoint = format!("http://{}", registry.address());
    request["context"]["registry"] = json!({"endpoint": endpoint, "user": "admin", "password": "hunter3"});
    request
}

fn vm_in_registry(rig: &Rig, registry: &RecordingRegistry, stemcell: &Value) -> Value {
    let arguments = rig.vm_arguments(stemcell, json!({"default": {"type": "dynamic"}}));
    let made = rig.send(&with_registry(registry, request("create_vm", arguments, &unique())), None).unwrap();
    assert_eq!(made["error"], Value::Null);
    made["result"].clone()
}

fn delete_from_registry(rig: &Rig, registry: &RecordingRegistry, vm: &Value) {
    let deleted = rig.send(&with_registry(registry, request("delete_vm", json!([vm]), "cpi-1")), None).unwrap();
    assert_eq!(deleted["error"], Value::Null);
    assert_eq!(registry.settings(vm.as_str().unwrap()), None);
}

/// What the SDK remembers of VMs; nothing may remain of those that are gone.
fn remembered(rig: &Rig) -> usize {
    rig.list("requests/vms").len()
}

#[test]
fn create_vm_killed_anywhere_stores_the_settings_of_the_one_vm_in_the_registry() {
    let (rig, registry) = (Rig::new(), RecordingRegistry::start());
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |rig| {
            let arguments = rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}}));
            with_registry(&registry, request("create_vm", arguments, &unique()))
        },
        |rig, asked, created| {
            let cid = created.as_str().unwrap();
            assert_eq!(rig.list("vms"), [cid]);
            let settings = registry.settings(cid).unwrap();
            assert_eq!(settings["agent_id"], asked["arguments"][0]);
            let ip = settings["networks"]["default"]["ip"].as_str().unwrap();
            let url = settings["env"]["bosh"]["mbus"]["urls"][0].as_str().unwrap();
            assert_eq!(url, format!("https://user:hunter2@{ip}:6868"), "it listens on its own address");
            let given = fs::read_to_string(rig.vm_folder(cid).join("settings.json")).unwrap();
            assert!(given.contains(&format!("http://{cid}:")) && !given.contains("hunter"), "{given}");
            delete_from_registry(rig, &registry, created);
            assert_eq!(remembered(rig), 0);
        },
    );
}

#[test]
fn attach_disk_and_detach_disk_killed_anywhere_leave_the_registry_right() {
    let (rig, registry) = (Rig::new(), RecordingRegistry::start());
    let stemcell = rig.stemcell();
    let vm = vm_in_registry(&rig, &registry, &stemcell);
    let disk = rig.ok("create_disk", json!([1024, {}, null]));
    let disks = || registry.settings(vm.as_str().unwrap()).unwrap()["disks"]["persistent"].clone();
    let ask = |method: &str| with_registry(&registry, request(method, json!([vm, disk]), &unique()));
    sweep(
        &rig,
        |_| ask("attach_disk"),
        |rig, _, answer| {
            assert_eq!(*answer, Value::Null, "version 1 has no hint");
            assert!(disks()[disk.as_str().unwrap()]["path"].is_string());
            rig.send(&ask("detach_disk"), None).unwrap();
        },
    );
    sweep(
        &rig,
        |rig| {
            rig.send(&ask("attach_disk"), None).unwrap();
            ask("detach_disk")
        },
        |_, _, _| assert_eq!(disks(), json!({})),
    );
    delete_from_registry(&rig, &registry, &vm);
}

#[test]
fn delete_vm_killed_anywhere_leaves_nothing_in_the_registry() {
    let (rig, registry) = (Rig::new(), RecordingRegistry::start());
    let stemcell = rig.stemcell();
    sweep(
        &rig,
        |rig| {
            let vm = vm_in_registry(rig, &registry, &stemcell);
            with_registry(&registry, request("delete_vm", json!([vm]), &unique()))
        },
        |rig, asked, _| {
            assert_eq!(registry.settings(asked["arguments"][0].as_str().unwrap()), None);
            assert!(rig.list("vms").is_empty() && remembered(rig) == 0);
        },
    );
}

/// Settings in a registry are read, changed and written back; without a lock, calls at the same time would lose disks.
#[test]
fn disks_that_are_attached_at_once_all_reach_the_registry() {
    let (rig, registry) = (Rig::new(), RecordingRegistry::start());
    let stemcell = rig.stemcell();
    let vm = vm_in_registry(&rig, &registry, &stemcell);
    let disks: Vec<Value> = (0..6).map(|_| rig.ok("create_disk", json!([1024, {}, null]))).collect();
    std::thread::scope(|scope| {
        for disk in &disks {
            let attach = with_registry(&registry, request("attach_disk", json!([vm, disk]), &unique()));
            let rig = &rig;
            scope.spawn(move || assert_eq!(rig.send(&attach, None).unwrap()["error"], Value::Null));
        }
    });
    let settings = registry.settings(vm.as_str().unwrap()).unwrap();
    assert_eq!(settings["disks"]["persistent"].as_object().unwrap().len(), disks.len());
    delete_from_registry(&rig, &registry, &vm);
}
