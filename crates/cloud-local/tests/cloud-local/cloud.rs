//! The cloud through its real process: what a director can rely on.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::rig::{Rig, address, kill_hard, read_json, request, runs, unique, wait_for};
use serde_json::{Value, json};
use windlass_contract::agent::POWERED_OFF;

#[test]
fn info_needs_nothing_and_touches_nothing() {
    let rig = Rig::new();
    let info = rig.ok("info", json!([]));
    assert_eq!(
        info["stemcell_formats"],
        json!(["warden-tar", "general-tar", "warden-light", "docker-light", "windlass-host"])
    );
    assert_eq!((&info["api_version"], &info["windlass"]["replay"]), (&json!(2), &json!(true)));
    assert!(!rig.state().exists());
}

#[test]
fn a_vm_runs_its_agent_with_the_settings_it_was_given() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let ip = address();
    let networks = json!({"default": {"type": "manual", "ip": ip, "netmask": "255.0.0.0", "later": "kept"}});
    let arguments = rig.vm_arguments(&stemcell, networks.clone());
    let created = rig.ok("create_vm", arguments.clone());
    let cid = created[0].as_str().unwrap();
    assert_eq!(created[1]["default"]["later"], "kept");
    assert!(runs(rig.pid(cid, "pid")));
    assert_eq!(rig.ok("has_vm", json!([cid])), json!(true));

    let path = rig.vm_folder(cid).join("settings.json");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let settings = read_json(&path);
    assert_eq!((&settings["agent_id"], &settings["vm"]["name"]), (&arguments[0], &json!(cid)));
    assert_eq!(settings["env"]["bosh"]["mbus"]["urls"][0], format!("https://user:hunter2@{ip}:6868"));
    assert_eq!(settings["env"]["bosh"]["password"], "x");
    assert_eq!(settings["networks"]["default"]["preconfigured"], true);
    assert_eq!(settings["disks"], json!({"system": "", "persistent": {}}));
    let agent = read_json(&rig.vm_folder(cid).join("agent.json"));
    assert_eq!(agent["Infrastructure"]["Settings"]["Sources"][0], json!({"Type": "File", "SettingsPath": path}));
    let console = wait_for(|| {
        fs::read_to_string(rig.vm_folder(cid).join("console.log")).ok().filter(|text| text.contains("agent with"))
    });
    assert!(console.contains("-P directory -C") && !console.contains("hunter2"), "{console}");

    rig.ok("set_vm_metadata", json!([cid, {"name": "a/0", "index": "0"}]));
    rig.ok("set_vm_metadata", json!([cid, {"index": "1"}]));
    let record = read_json(&rig.vm_folder(cid).join("vm.json"));
    assert_eq!(record["metadata"], json!({"name": "a/0", "index": "1"}));
}

#[test]
fn deleting_a_vm_leaves_no_process_and_no_file() {
    let rig = Rig::new();
    let cid = rig.vm(&rig.stemcell());
    let (agent, orphan) = (rig.pid(&cid, "pid"), rig.pid(&cid, "orphan"));
    assert!(runs(agent) && runs(orphan));
    rig.ok("delete_vm", json!([cid]));
    assert!(!runs(agent) && !runs(orphan), "also what left the agent's session is gone");
    assert_eq!(rig.ok("has_vm", json!([cid])), json!(false));
    assert!(rig.list("vms").is_empty() && !rig.list("locks").contains(&cid));
    rig.ok("delete_vm", json!([cid]));
}

#[test]
fn an_agent_that_ends_is_started_again() {
    let rig = Rig::new();
    let cid = rig.vm(&rig.stemcell());
    let first = rig.pid(&cid, "pid");
    kill_hard(first);
    wait_for(|| (rig.pid(&cid, "pid") != first).then_some(()));
}

#[test]
fn a_vm_that_its_agent_powers_off_stays_off_until_it_is_rebooted() {
    let rig = Rig::new();
    let agent = format!("#!/bin/sh\n[ -e booted ] && exec sleep 600\ntouch booted; exit {POWERED_OFF}\n");
    let cid = rig.vm(&rig.stemcell_with(&agent));
    let supervisor = rig.vm_folder(&cid).join("supervisor.json");
    wait_for(|| (!supervisor.exists()).then_some(()));
    assert_eq!(rig.ok("has_vm", json!([cid])), json!(true), "a VM that is off exists");
    rig.ok("reboot_vm", json!([cid]));
    assert!(supervisor.exists());
}

#[test]
fn a_killed_supervisor_is_no_obstacle_to_reboot_or_delete() {
    let rig = Rig::new();
    let cid = rig.vm(&rig.stemcell());
    for method in ["reboot_vm", "delete_vm"] {
        let (agent, orphan) = (rig.pid(&cid, "pid"), rig.pid(&cid, "orphan"));
        let supervisor = read_json(&rig.vm_folder(&cid).join("supervisor.json"))["process"]["pid"].as_u64().unwrap();
        kill_hard(u32::try_from(supervisor).unwrap());
        wait_for(|| (!runs(u32::try_from(supervisor).unwrap())).then_some(()));
        assert!(runs(agent) && rig.ok("has_vm", json!([cid])) == json!(true));
        rig.ok(method, json!([cid]));
        assert!(!runs(agent) && !runs(orphan), "{method} leaves nothing of the last run");
        if method == "reboot_vm" {
            wait_for(|| (rig.pid(&cid, "pid") != agent && rig.pid(&cid, "orphan") != orphan).then_some(()));
        }
    }
    assert!(rig.list("vms").is_empty());
    assert!(rig.refused("reboot_vm", json!([cid])).starts_with("Bosh::Clouds::VMNotFound"));
}

#[test]
fn an_address_is_given_to_one_vm_whatever_the_state_folder() {
    let (one, other) = (Rig::new(), Rig::new());
    let networks = json!({"default": {"type": "manual", "ip": address()}});
    let first = one.ok("create_vm", one.vm_arguments(&one.stemcell(), networks.clone()));
    let stemcell = other.stemcell();
    let error = other.refused("create_vm", other.vm_arguments(&stemcell, networks.clone()));
    assert!(error.starts_with("Bosh::Clouds::VMCreationFailed"), "{error}");
    assert!(error.contains(first[0].as_str().unwrap()), "the holder is named: {error}");
    assert!(other.list("vms").is_empty(), "nothing remains of the VM that failed");
    one.ok("delete_vm", json!([first[0]]));
    other.ok("create_vm", other.vm_arguments(&stemcell, networks));
}

#[test]
fn a_vm_that_cannot_be_made_is_refused_and_leaves_nothing() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let dynamic = json!({"default": {"type": "dynamic"}});
    let unknown = json!(format!("sc-{}", unique()));
    for (stemcell, networks, words) in [
        (&stemcell, json!({"a": {"type": "manual", "ip": "10.0.0.5"}}), "127.0.0.0/8"),
        (&stemcell, json!({}), "at least one network"),
        (&unknown, dynamic.clone(), "there is no stemcell"),
        (&json!("../../etc"), dynamic.clone(), "there is no stemcell"),
        (&rig.stemcell_with("not something that can run"), dynamic.clone(), "cannot run"),
    ] {
        let error = rig.refused("create_vm", rig.vm_arguments(stemcell, networks));
        assert!(error.contains(words) && !error.contains("hunter2"), "{error}");
    }
    assert!(rig.list("vms").is_empty(), "{:?}", rig.list("vms"));
    assert!(rig.list("locks").iter().all(|lock| !lock.starts_with("vm-")));
}

#[test]
fn a_disk_keeps_its_data_from_vm_to_vm() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let (one, other) = (rig.vm(&stemcell), rig.vm(&stemcell));
    let disk = rig.ok("create_disk", json!([1024, {}, one]));
    assert_eq!(rig.ok("has_disk", json!([disk])), json!(true));
    let hint = rig.ok("attach_disk", json!([one, disk]));
    assert_eq!(rig.ok("attach_disk", json!([one, disk])), hint, "attaching again gives the same hint");
    assert_eq!(rig.ok("get_disks", json!([one])), json!([disk]));
    fs::write(format!("{}/data", hint["path"].as_str().unwrap()), "precious").unwrap();

    let taken = rig.refused("attach_disk", json!([other, disk]));
    assert!(taken.contains(&one), "the VM that has it is named: {taken}");
    assert!(rig.refused("delete_disk", json!([disk])).contains(&one));
    rig.ok("detach_disk", json!([one, disk]));
    rig.ok("detach_disk", json!([one, disk]));
    assert_eq!(rig.ok("get_disks", json!([one])), json!([]));

    rig.ok("attach_disk", json!([other, disk]));
    rig.ok("delete_vm", json!([other]));
    assert_eq!(rig.ok("has_disk", json!([disk])), json!(true), "a disk survives its VM");
    let hint = rig.ok("attach_disk", json!([one, disk]));
    assert_eq!(fs::read(format!("{}/data", hint["path"].as_str().unwrap())).unwrap(), b"precious");

    rig.ok("set_disk_metadata", json!([disk, {"deployment": "d"}]));
    rig.ok("detach_disk", json!([one, disk]));
    rig.ok("delete_disk", json!([disk]));
    rig.ok("delete_disk", json!([disk]));
    assert_eq!(rig.ok("has_disk", json!([disk])), json!(false));
    rig.ok("detach_disk", json!([one, disk]));
    assert!(rig.refused("attach_disk", json!([one, disk])).starts_with("Bosh::Clouds::DiskNotFound"));
    let nobody = format!("vm-{}", unique());
    assert!(rig.refused("attach_disk", json!([nobody, disk])).starts_with("Bosh::Clouds::VMNotFound"));
}

#[test]
fn impossible_disks_are_refused() {
    let rig = Rig::new();
    for size in [json!(0), json!(-1), json!(1.5), json!("1024"), json!(u64::MAX)] {
        rig.refused("create_disk", json!([size, {}, null]));
    }
    assert!(rig.list("disks").is_empty());
}

#[test]
fn a_damaged_stemcell_leaves_nothing_and_a_used_one_stays() {
    let rig = Rig::new();
    let image = rig.image(crate::rig::AGENT);
    let whole = fs::read(&image).unwrap();
    fs::write(&image, &whole[..whole.len() / 2]).unwrap();
    assert!(rig.refused("create_stemcell", json!([image, null])).starts_with("Bosh::Clouds::CloudError"));
    rig.refused("create_stemcell", json!([rig.path("missing"), null]));
    assert!(rig.list("stemcells").is_empty());

    let stemcell = rig.stemcell();
    fs::remove_file(&image).unwrap();
    let vm = rig.vm(&stemcell);
    assert!(rig.refused("delete_stemcell", json!([stemcell])).contains(&vm));
    rig.ok("delete_vm", json!([vm]));
    rig.ok("delete_stemcell", json!([stemcell]));
    rig.ok("delete_stemcell", json!([stemcell]));
    assert!(rig.list("stemcells").is_empty());
}

#[test]
fn an_odd_cid_names_nothing() {
    let rig = Rig::new();
    let outside = rig.path("precious");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("vm.json"), "{}").unwrap();
    // Nothing outside of the rig is named: a cloud that fell for it would do what the cid says.
    for cid in [
        "../precious",
        "../../precious",
        outside.to_str().unwrap(),
        ".",
        "vm-../../precious",
        "a\nb\"'`$(x)",
        &"x".repeat(4096),
    ] {
        assert_eq!(rig.ok("has_vm", json!([cid])), json!(false));
        assert_eq!(rig.ok("has_disk", json!([cid])), json!(false));
        for method in ["delete_vm", "delete_disk", "delete_stemcell"] {
            rig.ok(method, json!([cid]));
        }
        assert!(rig.refused("attach_disk", json!([cid, cid])).starts_with("Bosh::Clouds::VMNotFound"));
    }
    assert!(outside.join("vm.json").exists() && rig.list("locks").is_empty());
}

#[test]
fn what_this_cloud_cannot_do_it_does_not_pretend_to_do() {
    let rig = Rig::new();
    for (method, arguments) in [("current_vm_id", json!([])), ("ping", json!([]))] {
        let error = rig.refused(method, arguments);
        assert!(error.starts_with("Bosh::Clouds::NotImplemented"), "{method}: {error}");
    }
    let error = rig.refused("configure_networks", json!(["vm-1", {}]));
    assert!(error.starts_with("Bosh::Clouds::NotSupported"), "{error}");
}

#[test]
fn garbage_gets_an_answer_and_a_long_request_is_read_to_its_end() {
    let rig = Rig::new();
    let deep = format!(
        r#"{{"method":"create_disk","arguments":[1,{}{},null]}}"#,
        r#"{"a":"#.repeat(200),
        "1".to_owned() + &"}".repeat(200)
    );
    let long = json!({"method": "info", "arguments": [], "context": {"padding": "x".repeat(10 << 20)}}).to_string();
    for bytes in [&b""[..], b"null", b"[]", b"3", b"{\"method\":", b"\xff\xfe", deep.as_bytes()] {
        let answer = rig.send_bytes(bytes, None).unwrap();
        assert_eq!((&answer["result"], &answer["error"]["type"]), (&Value::Null, &json!("Bosh::Clouds::CpiError")));
        assert_eq!(answer["log"], "");
    }
    assert_eq!(rig.send_bytes(long.as_bytes(), None).unwrap()["error"], Value::Null);
}

#[test]
fn a_wrong_configuration_is_an_answer_too() {
    let rig = Rig::new();
    for (local, words) in [
        (json!({}), "state_dir"),
        (json!({"state_dir": "relative"}), "absolute path"),
        (json!({"state_dir": rig.state(), "isolation": "none"}), "`auto`, `container`, `process`"),
    ] {
        rig.configure(local);
        let error = rig.refused("has_vm", json!(["vm-1"]));
        assert!(error.starts_with("Bosh::Clouds::CpiError") && error.contains(words), "{error}");
    }
    rig.configure(json!({"state_dir": rig.state(), "isolation": "process", "windlass": "/nowhere/windlass"}));
    let stemcell = rig.stemcell();
    let error = rig.refused("create_vm", rig.vm_arguments(&stemcell, json!({"default": {"type": "dynamic"}})));
    assert!(error.contains("/nowhere/windlass") && rig.list("vms").is_empty(), "{error}");
}

#[test]
fn eight_vms_at_once_have_eight_addresses() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let cids: Vec<String> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| rig.vm(&stemcell))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let addresses: std::collections::BTreeSet<String> = cids
        .iter()
        .map(|cid| read_json(&rig.vm_folder(cid).join("vm.json"))["addresses"][0].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(addresses.len(), 8);
}

#[test]
fn fifty_disks_at_once_are_fifty_disks() {
    let rig = Rig::new();
    let cids: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| rig.send(&request("create_disk", json!([1, {}, null]), &unique()), None)))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap().unwrap()["result"].clone()).collect()
    });
    let distinct: std::collections::BTreeSet<&str> = cids.iter().map(|cid| cid.as_str().unwrap()).collect();
    assert_eq!(distinct.len(), 50);
    assert_eq!(rig.list("disks").len(), 50);
}

#[test]
fn the_same_request_twice_at_once_makes_one_vm() {
    let rig = Rig::new();
    let arguments = rig.vm_arguments(&rig.stemcell(), json!({"default": {"type": "dynamic"}}));
    let create = request("create_vm", arguments, &unique());
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| rig.send(&create, None).unwrap())).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer == &answers[0] && answer["error"].is_null()), "{answers:?}");
    assert_eq!(rig.list("vms").len(), 1);
}
