//! The simulated cloud through its CPI, as a real process for each call.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{Rig, read_json, request, unique, vm_arguments};
use serde_json::{Value, json};
use windlass_contract::VmCid;

#[test]
fn it_needs_no_configuration() {
    let home = tempfile::tempdir().unwrap();
    let ask = |method: &str, arguments: Value| -> Value {
        // As the director calls it. Nothing is written: the state of the user who runs this test is theirs.
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim-cpi"));
        command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(request(method, arguments, &unique()).to_string().as_bytes()).unwrap();
        serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap()
    };
    let info = &ask("info", json!([]))["result"];
    assert_eq!(info["api_version"], 2);
    assert_eq!(info["stemcell_formats"], json!(["warden-tar", "general-tar", "warden-light", "docker-light"]));
    assert_eq!(info["windlass"]["replay"], true);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "info touches nothing");
    assert_eq!(ask("has_vm", json!(["vm-1"]))["result"], false);
}

#[test]
fn a_vm_is_given_its_settings_and_nobody_else_can_read_them() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let networks = json!({"default": {"type": "manual", "ip": "10.0.0.5", "netmask": "255.255.255.0", "prefix": "32",
        "gateway": "10.0.0.1", "cloud_properties": {}, "later": [1]}, "other": {"type": "dynamic"}});
    let created = rig.ok("create_vm", vm_arguments(&stemcell, networks));
    let cid = VmCid::new(created[0].as_str().unwrap()).unwrap();
    assert_eq!(created[1]["default"]["later"], json!([1]), "unknown keys are kept");
    let settings = windlass_cloud_sim::settings(Some(&rig.config()), &cid).unwrap();
    assert_eq!(settings["vm"]["name"], json!(cid));
    assert_eq!(settings["networks"], created[1]);
    assert!(settings["networks"]["other"]["ip"].as_str().unwrap().starts_with("127."), "{settings}");
    assert_eq!(settings["disks"], json!({"system": "/dev/sda", "ephemeral": {"path": "/dev/sdb"}, "persistent": {}}));
    assert_eq!(settings["env"]["bosh"]["password"], "x");
    let file = rig.state().join("vms").join(cid.as_str()).join("user-data.json");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let nobody = windlass_cloud_sim::settings(Some(&rig.config()), &VmCid::new("../vms").unwrap()).unwrap_err();
    assert!(nobody.message.contains("no VM"), "{nobody}");
}

#[test]
fn a_vm_lives_from_create_to_delete() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let vm = rig.vm(&stemcell);
    assert_eq!(rig.ok("has_vm", json!([vm])), json!(true));
    rig.ok("reboot_vm", json!([vm]));
    rig.ok("set_vm_metadata", json!([vm, {"job": "db", "index": "0", "tag": null}]));
    rig.ok("set_vm_metadata", json!([vm, {"index": "1"}]));
    let record = &rig.status().vms[0];
    assert_eq!(record.boots, 2);
    assert_eq!(json!(record.metadata), json!({"job": "db", "index": "1", "tag": null}), "other keys stay");
    let in_use = rig.refused("delete_stemcell", json!([stemcell]));
    assert!(in_use.starts_with("CloudError") && in_use.contains(vm.as_str().unwrap()), "{in_use}");
    rig.ok("delete_vm", json!([vm]));
    rig.ok("delete_vm", json!([vm]));
    assert_eq!(rig.ok("has_vm", json!([vm])), json!(false));
    for (method, arguments) in [
        ("reboot_vm", json!([vm])),
        ("set_vm_metadata", json!([vm, {}])),
        ("get_disks", json!([vm])),
        ("attach_disk", json!([vm, rig.disk(1)])),
        ("detach_disk", json!([vm, "disk-1"])),
    ] {
        assert!(rig.refused(method, arguments).starts_with("VMNotFound"), "{method}");
    }
    rig.ok("delete_stemcell", json!([stemcell]));
    rig.ok("delete_stemcell", json!([stemcell]));
    assert!(rig.list("vms").is_empty() && rig.list("stemcells").is_empty() && rig.list("addresses").is_empty());
    rig.no_lock_is_left_over();
}

#[test]
fn version_1_gets_a_clear_refusal_without_a_registry() {
    let rig = Rig::new();
    let mut create = request("create_vm", vm_arguments(&rig.stemcell(), json!({"a": {"type": "dynamic"}})), "cpi-1");
    create["api_version"] = json!(1);
    let error = &rig.send(&create, None).unwrap()["error"];
    assert!(error["message"].as_str().unwrap().contains("registry"), "{error}");
    assert!(rig.list("vms").is_empty());
}

#[test]
fn a_refused_vm_leaves_nothing() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let dynamic = || json!({"a": {"type": "dynamic"}});
    let typed = |name: Value| {
        let mut arguments = vm_arguments(&stemcell, dynamic());
        arguments[2] = json!({"instance_type": name});
        arguments
    };
    let nowhere = json!({"a": {"type": "dynamic", "cloud_properties": {"network": format!("net-{}", unique())}}});
    let of_number = json!({"a": {"type": "dynamic", "cloud_properties": {"network": 7}}});
    for (arguments, words) in [
        (vm_arguments(&json!("sc-1"), dynamic()), "no stemcell 'sc-1'"),
        (vm_arguments(&json!(format!("sc-{}", unique())), dynamic()), "no stemcell"),
        (vm_arguments(&stemcell, json!({})), "at least one network"),
        (vm_arguments(&stemcell, json!({"a": {"type": "manual"}})), "'a' has no ip"),
        (vm_arguments(&stemcell, json!({"a": {"ip": "10.0.0.300"}})), "no address"),
        (vm_arguments(&stemcell, json!({"a": {"ip": "10.0.0.5"}, "b": {"ip": "10.0.0.5"}})), "given twice"),
        (vm_arguments(&stemcell, nowhere), "there is no network"),
        (vm_arguments(&stemcell, of_number), "must be a string"),
        (typed(json!("enormous")), "nano, small, medium, large, huge"),
        (typed(json!(7)), "no VM type 7"),
    ] {
        let error = rig.refused("create_vm", arguments);
        assert!(error.starts_with("CloudError") && error.contains(words) && !error.contains("hunter2"), "{error}");
    }
    assert!(rig.list("vms").is_empty() && rig.list("addresses").is_empty());
    rig.no_lock_is_left_over();
}

#[test]
fn an_address_has_one_vm_until_that_is_deleted() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let at = |ip: &str, network: Value| {
        vm_arguments(&stemcell, json!({"a": {"type": "manual", "ip": ip, "cloud_properties": network}}))
    };
    let vm = rig.ok("create_vm", at("10.0.0.5", json!({})))[0].clone();
    for same in ["10.0.0.5", "::ffff:10.0.0.5"] {
        let error = rig.refused("create_vm", at(same, json!(null)));
        assert!(error.contains("10.0.0.5") && error.contains(vm.as_str().unwrap()), "{error}");
    }
    rig.ok("create_vm", at("10.0.0.5", json!({"network": "another"})));
    rig.ok("create_vm", at("fd00::5", json!({})));
    let vip = |ip: &str| vm_arguments(&stemcell, json!({"a": {"type": "dynamic"}, "v": {"type": "vip", "ip": ip}}));
    rig.ok("create_vm", vip("10.0.0.5"));
    assert!(rig.refused("create_vm", vip("10.0.0.5")).contains("in use"));
    rig.ok("delete_vm", json!([vm]));
    rig.ok("create_vm", at("10.0.0.5", json!({})));
}

#[test]
fn a_dynamic_network_keeps_the_address_it_had_if_it_can() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let carried = || vm_arguments(&stemcell, json!({"a": {"type": "dynamic", "ip": "127.192.1.2"}}));
    assert_eq!(rig.ok("create_vm", carried())[1]["a"]["ip"], "127.192.1.2");
    assert_ne!(rig.ok("create_vm", carried())[1]["a"]["ip"], "127.192.1.2", "another VM has it");
}

#[test]
fn vm_properties_are_calculated_from_the_catalogue_and_accepted() {
    let rig = Rig::new();
    let desired = |cpu: u64, ram: u64, disk: u64| json!([{"cpu": cpu, "ram": ram, "ephemeral_disk_size": disk}]);
    let properties = rig.ok("calculate_vm_cloud_properties", desired(2, 3000, 8192));
    assert_eq!(properties, json!({"instance_type": "medium", "ephemeral_disk": {"size": 8192}}));
    let mut arguments = vm_arguments(&rig.stemcell(), json!({"a": {"type": "dynamic"}}));
    arguments[2] = properties;
    rig.ok("create_vm", arguments);
    let error = rig.refused("calculate_vm_cloud_properties", desired(10_000, 1, 1));
    assert!(error.starts_with("CloudError") && error.contains("10000 cores"), "{error}");
    rig.refused("calculate_vm_cloud_properties", json!([{"cpu": 1, "ram": 1}]));
    rig.configure(json!({"catalogue": [{"name": "only", "cpu": 1, "ram": 1024, "ephemeral_disk_size": 10}]}));
    assert_eq!(rig.ok("calculate_vm_cloud_properties", desired(1, 1, 10))["instance_type"], "only");
    rig.refused("calculate_vm_cloud_properties", desired(1, 1, 11));
}

#[test]
fn a_disk_keeps_its_content_from_vm_to_vm() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let (one, other) = (rig.vm(&stemcell), rig.vm(&stemcell));
    let (disk, second) = (rig.disk(1024), rig.disk(64));
    assert_eq!(rig.ok("has_disk", json!([disk])), json!(true));
    let hint = rig.ok("attach_disk", json!([one, disk]));
    assert_eq!(rig.ok("attach_disk", json!([one, disk])), hint, "attaching again gives the same hint");
    assert_ne!(rig.ok("attach_disk", json!([one, second])), hint);
    let mut attached: Vec<Value> = rig.ok("get_disks", json!([one])).as_array().unwrap().clone();
    attached.sort_by_key(|cid| *cid != disk);
    assert_eq!(attached, [disk.clone(), second.clone()]);
    fs::write(on(&hint), "precious").unwrap();

    let taken = rig.refused("attach_disk", json!([other, disk]));
    assert!(taken.starts_with("CloudError") && taken.contains(one.as_str().unwrap()), "{taken}");
    for (method, arguments) in
        [("delete_disk", json!([disk])), ("resize_disk", json!([disk, 2048])), ("update_disk", json!([disk, 2048, {}]))]
    {
        assert!(rig.refused(method, arguments).contains(one.as_str().unwrap()), "{method}");
    }
    rig.ok("detach_disk", json!([one, disk]));
    rig.ok("detach_disk", json!([one, disk]));
    assert_eq!(rig.ok("get_disks", json!([one])), json!([second]));

    rig.ok("attach_disk", json!([other, disk]));
    rig.ok("delete_vm", json!([other]));
    assert_eq!(rig.ok("has_disk", json!([disk])), json!(true), "a disk survives its VM");
    let hint = rig.ok("attach_disk", json!([one, disk]));
    assert_eq!(fs::read(on(&hint)).unwrap(), b"precious");

    rig.ok("set_disk_metadata", json!([disk, {"deployment": "d"}]));
    rig.ok("detach_disk", json!([one, disk]));
    rig.ok("delete_disk", json!([disk]));
    rig.ok("delete_disk", json!([disk]));
    assert_eq!(rig.ok("has_disk", json!([disk])), json!(false));
    rig.ok("detach_disk", json!([one, disk]));
    for (method, arguments) in [
        ("attach_disk", json!([one, disk])),
        ("set_disk_metadata", json!([disk, {}])),
        ("resize_disk", json!([disk, 1])),
        ("update_disk", json!([disk, 1, {}])),
        ("snapshot_disk", json!([disk, {}])),
    ] {
        assert!(rig.refused(method, arguments).starts_with("DiskNotFound"), "{method}");
    }
    rig.no_lock_is_left_over();
}

#[test]
fn a_disk_grows_with_its_content_and_never_shrinks() {
    let rig = Rig::new();
    let disk = rig.disk(100);
    fs::write(rig.content("disks", &disk), "precious").unwrap();
    rig.ok("resize_disk", json!([disk, 200]));
    rig.ok("resize_disk", json!([disk, 200]));
    assert_eq!(rig.status().disks[0].size_mib, 200);
    for (method, arguments) in [("resize_disk", json!([disk, 199])), ("update_disk", json!([disk, 199, {}]))] {
        assert!(rig.refused(method, arguments).starts_with("NotSupported"), "{method}");
    }
    for size in [json!(0), json!(-1), json!("300"), json!(u64::MAX)] {
        rig.refused("resize_disk", json!([disk, size]));
    }
    assert_eq!(rig.status().disks[0].size_mib, 200);
    assert_eq!(fs::read(rig.content("disks", &disk)).unwrap(), b"precious");
}

#[test]
fn update_disk_changes_in_place_or_replaces_with_the_content() {
    let rig = Rig::new();
    let disk = rig.disk(100);
    fs::write(rig.content("disks", &disk), "precious").unwrap();
    rig.ok("set_disk_metadata", json!([disk, {"deployment": "d"}]));
    assert_eq!(rig.ok("update_disk", json!([disk, 200, {"type": "ssd"}])), Value::Null);
    let record = &rig.status().disks[0];
    assert_eq!((record.size_mib, json!(record.cloud_properties)), (200, json!({"type": "ssd"})));

    rig.configure(json!({"update_disk": "replace"}));
    assert_eq!(rig.ok("update_disk", json!([disk, 200, {"type": "ssd"}])), Value::Null, "nothing is to be changed");
    let replaced = rig.ok("update_disk", json!([disk, 200, {"type": "fast"}]));
    assert_ne!(replaced, disk);
    assert_eq!(rig.list("disks"), [replaced.as_str().unwrap()], "the old one is gone");
    assert_eq!(fs::read(rig.content("disks", &replaced)).unwrap(), b"precious");
    let record = &rig.status().disks[0];
    assert_eq!(json!(record.cloud_properties), json!({"type": "fast"}));
    assert_eq!(json!(record.metadata), json!({"deployment": "d"}));
    assert!(rig.refused("update_disk", json!([disk, 300, {}])).starts_with("DiskNotFound"));
    rig.no_lock_is_left_over();
}

#[test]
fn a_snapshot_has_what_was_on_the_disk_and_outlives_it() {
    let rig = Rig::new();
    let vm = rig.vm(&rig.stemcell());
    let disk = rig.disk(64);
    let hint = rig.ok("attach_disk", json!([vm, disk]));
    fs::write(on(&hint), "before").unwrap();
    let snapshot = rig.ok("snapshot_disk", json!([disk, {"index": 0, "tags": {"a": "b"}}]));
    let another = rig.ok("snapshot_disk", json!([disk, {}]));
    assert_ne!(snapshot, another);
    fs::write(on(&hint), "after").unwrap();
    assert_eq!(rig.ok("get_disks", json!([vm])), json!([disk]), "the disk is not disturbed");
    rig.ok("delete_vm", json!([vm]));
    rig.ok("delete_disk", json!([disk]));
    assert_eq!(fs::read(rig.content("snapshots", &snapshot)).unwrap(), b"before");
    for _ in 0..2 {
        rig.ok("delete_snapshot", json!([snapshot]));
        rig.ok("delete_snapshot", json!([another]));
    }
    assert!(rig.list("snapshots").is_empty());
    rig.no_lock_is_left_over();
}

#[test]
fn networks_are_made_with_what_the_caller_left_out() {
    let rig = Rig::new();
    let stemcell = rig.stemcell();
    let asked =
        json!([{"type": "manual", "range": "10.9.0.0/29", "gateway": "10.9.0.1", "cloud_properties": {"a": 1}}]);
    let given = rig.ok("create_network", asked);
    assert_eq!(given[1], json!({"range": "10.9.0.0/29", "gateway": "10.9.0.1", "reserved": []}));
    assert_eq!(given[2], json!({"a": 1, "network": given[0]}));
    let chosen = rig.ok("create_network", json!([{"type": "manual", "netmask_bits": 28, "cloud_properties": {}}]));
    assert_eq!(chosen[1]["range"], "10.128.0.0/28");
    assert_eq!(chosen[1]["gateway"], "10.128.0.1");
    let next = rig.ok("create_network", json!([{"type": "manual", "netmask_bits": 28}]));
    assert_eq!(next[1]["range"], "10.128.0.16/28");
    assert_eq!(rig.ok("create_network", json!([{"range": "fd00:1::/64"}]))[1]["gateway"], "fd00:1::1");

    let inside = |network: Value| vm_arguments(&stemcell, json!({"a": network}));
    let properties = &given[2];
    for ip in ["10.9.0.1", "10.9.1.2"] {
        let error = rig.refused("create_vm", inside(json!({"ip": ip, "cloud_properties": properties})));
        assert!(error.contains("10.9.0.0/29"), "{error}");
    }
    let dynamic = || inside(json!({"type": "dynamic", "cloud_properties": properties}));
    let vms: Vec<Value> = (0..5).map(|_| rig.ok("create_vm", dynamic())).collect();
    let addresses: BTreeSet<&str> = vms.iter().map(|vm| vm[1]["a"]["ip"].as_str().unwrap()).collect();
    assert_eq!(addresses.into_iter().collect::<Vec<_>>(), ["10.9.0.2", "10.9.0.3", "10.9.0.4", "10.9.0.5", "10.9.0.6"]);
    assert!(rig.refused("create_vm", dynamic()).contains("no free address in 10.9.0.0/29"));
    assert!(rig.refused("delete_network", json!([given[0]])).contains("delete it first"));
    for vm in vms {
        rig.ok("delete_vm", json!([vm[0]]));
    }
    rig.ok("delete_network", json!([given[0]]));
    rig.ok("delete_network", json!([given[0]]));
    assert!(rig.refused("create_vm", dynamic()).contains("there is no network"));
    for wrong in [
        json!({"range": "10.9.0.0"}),
        json!({"range": "10.9.0.0/32"}),
        json!({"range": "10.9.0.0/24", "gateway": "10.8.0.1"}),
        json!({"netmask_bits": 31}),
        json!({"netmask_bits": 4}),
        json!({"type": "vip"}),
    ] {
        assert!(rig.refused("create_network", json!([wrong])).starts_with("CloudError"));
    }
    assert_eq!(rig.list("networks").len(), 3);
    rig.no_lock_is_left_over();
}

#[test]
fn what_does_not_fit_is_refused() {
    let rig = Rig::with(json!({"capacity": {"vms": 1, "disk_mib": 300}}));
    let stemcell = rig.stemcell();
    let vm = rig.vm(&stemcell);
    let full = rig.ask("create_vm", vm_arguments(&stemcell, json!({"a": {"type": "dynamic"}})));
    assert_eq!(full["error"]["type"], "Bosh::Clouds::VMCreationFailed");
    assert_eq!(full["error"]["ok_to_retry"], false);
    rig.ok("delete_vm", json!([vm]));
    rig.vm(&stemcell);

    let disk = rig.disk(100);
    for (method, arguments) in [
        ("create_disk", json!([201, {}, null])),
        ("resize_disk", json!([disk, 301])),
        ("update_disk", json!([disk, 301, {}])),
    ] {
        let error = rig.refused(method, arguments);
        assert!(error.starts_with("NoDiskSpace") && error.contains("100 MiB of 300 MiB"), "{method}: {error}");
    }
    rig.ok("resize_disk", json!([disk, 150]));
    let snapshot = rig.ok("snapshot_disk", json!([disk, {}]));
    assert!(rig.refused("snapshot_disk", json!([disk, {}])).starts_with("NoDiskSpace"));
    assert!(rig.refused("create_disk", json!([1, {}, null])).starts_with("NoDiskSpace"));
    rig.ok("delete_snapshot", json!([snapshot]));
    rig.disk(150);
    assert_eq!((rig.list("disks").len(), rig.list("snapshots").len()), (2, 0));
}

#[test]
fn impossible_disks_and_stemcells_are_refused() {
    let rig = Rig::new();
    for size in [json!(0), json!(-1), json!(1.5), json!("1024"), json!(u64::MAX)] {
        rig.refused("create_disk", json!([size, {}, null]));
    }
    rig.refused("create_stemcell", json!([rig.path("missing"), null]));
    rig.refused("create_stemcell", json!([rig.path(""), null]));
    assert!(rig.list("disks").is_empty() && rig.list("stemcells").is_empty());
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
        for method in ["delete_vm", "delete_disk", "delete_stemcell", "delete_snapshot", "delete_network"] {
            rig.ok(method, json!([cid]));
        }
        assert!(rig.refused("attach_disk", json!([cid, cid])).starts_with("VMNotFound"));
    }
    assert!(outside.join("vm.json").exists() && rig.list("locks").is_empty());
}

#[test]
fn what_no_cloud_does_any_more_is_not_pretended() {
    let rig = Rig::new();
    for (method, kind) in
        [("configure_networks", "NotSupported"), ("current_vm_id", "NotImplemented"), ("ping", "NotImplemented")]
    {
        assert!(rig.refused(method, json!(["vm-1", {}])).starts_with(kind), "{method}");
    }
}

#[test]
fn a_wrong_configuration_is_an_answer_and_names_what_is_wrong() {
    let rig = Rig::new();
    for (properties, words) in [
        (json!({"state_dir": "relative"}), "absolute path"),
        (json!({"latency": {"create_wm": 1}}), "'create_wm', which is no CPI method"),
        (json!({"faults": [{"method": "info", "fault": "fail"}]}), "'info', which is answered without the cloud"),
        (json!({"faults": [{"method": "create_disk", "fault": "lose_vm"}]}), "only 'create_vm' can lose a VM"),
        (json!({"faults": [{"method": "create_disk", "fault": "explode"}]}), "`fail`"),
        (json!({"capacity": {"wms": 1}}), "wms"),
        (json!({"update_disk": "maybe"}), "`in_place` or `replace`"),
    ] {
        rig.configure_exactly(&properties);
        let error = rig.refused("has_vm", json!(["vm-1"]));
        assert!(error.starts_with("CpiError") && error.contains(words), "{error}");
    }
}

#[test]
fn a_hundred_disks_at_once_are_a_hundred_whole_disks() {
    for properties in [json!({}), json!({"capacity": {"disk_mib": 100_000}})] {
        let rig = Rig::with(properties);
        let cids: Vec<Value> = std::thread::scope(|scope| {
            let rig = &rig;
            let call = |number: u64| {
                let create = request("create_disk", json!([number, {"number": number}, null]), &unique());
                scope.spawn(move || rig.send(&create, None).unwrap()["result"].clone())
            };
            let calls: Vec<_> = (1..=100).map(call).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let named: BTreeSet<&str> = cids.iter().map(|cid| cid.as_str().unwrap()).collect();
        assert_eq!(named.len(), 100);
        assert_eq!(rig.list("disks"), named.into_iter().collect::<Vec<_>>(), "all of them, and nothing half done");
        for (number, cid) in (1..).zip(&cids) {
            let record = read_json(&rig.state().join("disks").join(cid.as_str().unwrap()).join("disk.json"));
            assert_eq!((&record["cid"], &record["size_mib"]), (cid, &json!(number)));
            assert_eq!(record["cloud_properties"], json!({"number": number}));
        }
    }
}

#[test]
fn the_last_room_is_given_once_and_every_vm_has_its_own_address() {
    let rig = Rig::with(json!({"capacity": {"vms": 6, "disk_mib": 6}}));
    let stemcell = rig.stemcell();
    let network = rig.ok("create_network", json!([{"range": "10.9.0.0/28"}]));
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let networks = json!({"a": {"type": "dynamic", "cloud_properties": network[2]}});
                rig.ask("create_vm", vm_arguments(&stemcell, networks))
            });
            scope.spawn(|| rig.ask("create_disk", json!([1, {}, null])));
        }
    });
    let status = rig.status();
    assert_eq!((status.vms.len(), status.disks.len()), (6, 6));
    let addresses: BTreeSet<_> = status.vms.iter().map(|vm| vm.addresses[0].ip).collect();
    assert_eq!(addresses.len(), 6);
    rig.no_lock_is_left_over();
}

#[test]
fn the_same_request_twice_at_once_makes_one_vm() {
    let rig = Rig::new();
    let arguments = vm_arguments(&rig.stemcell(), json!({"default": {"type": "dynamic"}}));
    let create = request("create_vm", arguments, &unique());
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| rig.send(&create, None).unwrap())).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer == &answers[0] && answer["error"].is_null()), "{answers:?}");
    assert_eq!(rig.list("vms").len(), 1);
}

/// A file on the disk with this hint.
fn on(hint: &Value) -> PathBuf {
    Path::new(hint["path"].as_str().unwrap()).join("data")
}
