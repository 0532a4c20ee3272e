//! The machine under a VM without isolation belongs to somebody else.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::machine::{Machine, base64_of};

/// Everything below a folder: when each entry changed last, in any way.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            found.insert(entry.path(), (metadata.ctime(), metadata.ctime_nsec()));
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// The list of users; a machine may have none in a file.
fn users() -> Option<String> {
    std::fs::read_to_string("/etc/passwd").ok()
}

/// One message for each action that this agent knows, with arguments that make it do all that it can.
fn messages(machine: &Machine, hint: Value) -> Vec<Value> {
    let spec = json!({"configuration_hash": "h", "networks": {"default": {"type": "manual", "ip": machine.address}}});
    let upload =
        json!({"blob_id": "b", "checksum": "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d", "payload": base64_of("hello")});
    let update = json!({"trusted_certs": machine.ca.pem, "disk_associations": [{"name": "data", "cid": "disk-1"}]});
    let logs = json!({"owning_user": "root", "log_type": "job,agent,system", "filters": []});
    [
        ("ping", json!([])),
        ("info", json!([])),
        ("get_task", json!(["x"])),
        ("cancel_task", json!(["x"])),
        ("prepare", json!([spec])),
        ("apply", json!([spec])),
        ("start", json!([])),
        ("get_state", json!(["full"])),
        ("add_persistent_disk", json!(["disk-1", hint])),
        ("update_persistent_disk", json!(["disk-1", hint])),
        ("mount_disk", json!(["disk-1"])),
        ("list_disk", json!([])),
        ("migrate_disk", json!([])),
        ("update_settings", json!([update])),
        ("unmount_disk", json!(["disk-1"])),
        ("remove_persistent_disk", json!(["disk-1"])),
        ("add_dynamic_disk", json!(["disk-2", hint])),
        ("remove_dynamic_disk", json!(["disk-2"])),
        ("upload_blob", json!([upload])),
        ("fetch_logs", json!(["job,agent,system", []])),
        ("bundle_logs", json!([logs])),
        // A stand-in for the machine's files: should this ever fail, the test must not be what harms the machine.
        ("remove_file", json!([machine.folder.path().join("precious")])),
        ("remove_file", json!([machine.base().join("../precious")])),
        ("remove_file", json!([machine.base().join("data/outside/precious")])),
        ("ssh", json!(["setup", {"user": "bosh_test", "public_key": "ssh-rsa A"}])),
        ("ssh", json!(["cleanup", {"user_regex": ".*"}])),
        ("sync_dns", json!(["dns", "664ccda857793d8afd51ccdd2aaa73264c694112", 1])),
        ("sync_dns_with_signed_url", json!([{"signed_url": "", "multi_digest": "aa", "version": 9}])),
        ("fetch_logs_with_signed_url", json!([{"signed_url": "", "log_type": "job,agent,system"}])),
        ("delete_arp_entries", json!([{"ips": ["127.0.0.1"]}])),
        ("run_script", json!(["pre-start", {}])),
        ("drain", json!(["shutdown"])),
        ("stop", json!([])),
    ]
    .into_iter()
    .map(|(method, arguments)| json!({"method": method, "arguments": arguments}))
    .collect()
}

#[tokio::test]
async fn nothing_of_the_machine_changes_also_if_the_agent_is_root() {
    for kind in [["-P", "directory", "-M", "monit"], ["-P", "dummy", "-M", "dummy"]] {
        let (etc, users_before) = (snapshot(Path::new("/etc")), users());
        let mut machine = Machine::new();
        machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
        machine.settings["env"]["bosh"]["password"] = json!("$6$salt$hash");
        machine.settings["env"]["bosh"]["authorized_keys"] = json!(["ssh-rsa A"]);
        machine.kind = kind;
        machine.start().await;
        std::fs::write(machine.folder.path().join("precious"), "").unwrap();
        std::os::unix::fs::symlink(machine.folder.path(), machine.base().join("data/outside")).unwrap();
        let records = br#"{"version":1,"records":[["10.0.0.1","a.b"]]}"#;
        machine.request("PUT", "/blobs/ab/dns", records).await;
        let hint = json!(machine.disk("disk-1").1);
        for message in messages(&machine, hint) {
            let reply = machine.message(message.clone()).await;
            let unknown = reply["exception"]["message"].as_str().is_some_and(|text| text.contains("unknown message"));
            assert!(!unknown, "{message}: {reply}");
            if reply["value"]["state"] == "running" {
                machine.task_end(reply["value"]["agent_task_id"].clone()).await;
            }
        }
        assert!(machine.base().join("bosh/etc_hosts").exists());
        assert_eq!(machine.message(json!({"method": "shutdown"})).await["value"], "");
        assert_eq!(machine.ended().await.code(), Some(i32::from(windlass_contract::agent::POWERED_OFF)));
        assert_eq!(users(), users_before);
        assert_eq!(snapshot(Path::new("/etc")), etc);
        let outside: Vec<_> =
            std::fs::read_dir(machine.folder.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert!(machine.folder.path().join("precious").exists());
        assert_eq!(outside.len(), 6, "only what the test made: {outside:?}");
    }
}

#[tokio::test]
async fn the_dummy_shows_in_its_files_what_it_was_asked_for() {
    let mut machine = Machine::new();
    machine.settings["env"]["bosh"]["mbus"]["require_client_cert"] = json!(false);
    machine.settings["env"]["bosh"]["password"] = json!("$6$salt$hash");
    machine.settings["disks"]["persistent"] = json!({"disk-s": {"path": "/dev/sdc"}});
    machine.kind = ["-P", "dummy", "-M", "dummy"];
    machine.start().await;
    assert_eq!(
        (machine.state("root/password"), machine.state("vcap/password")),
        ("$6$salt$hash".into(), "$6$salt$hash".into())
    );
    let job_state = async || machine.message(json!({"method": "get_state"})).await["value"]["job_state"].clone();
    assert_eq!(job_state().await, "unknown");
    machine.message(json!({"method": "start"})).await;
    assert_eq!(job_state().await, "running");

    assert_eq!(machine.message(json!({"method": "list_disk"})).await["value"], json!(["disk-s"]));
    for (method, arguments) in [
        ("mount_disk", json!(["disk-s"])),
        ("add_persistent_disk", json!(["d1", {"path": "/dev/sdd"}])),
        ("mount_disk", json!(["d1"])),
        ("migrate_disk", json!([])),
    ] {
        assert_eq!(
            machine.task(json!({"method": method, "arguments": arguments})).await["value"],
            json!({}),
            "{method}"
        );
    }
    let migrations: Value = serde_json::from_str(&machine.state("disk_migrations.json")).unwrap();
    assert_eq!(migrations, json!([{"FromDiskCid": "disk-s", "ToDiskCid": "d1"}]));
    for _ in 0..2 {
        let unmounted = machine.task(json!({"method": "unmount_disk", "arguments": ["disk-s"]})).await;
        let message = unmounted["value"]["message"].as_str().unwrap();
        assert!(message.starts_with("Unmounted partition of {ID:disk-s DeviceID:"), "{message}");
    }
    let setup = json!(["setup", {"user": "bosh_1", "public_key": "ssh-rsa A"}]);
    let done = machine.message(json!({"method": "ssh", "arguments": setup})).await["value"].clone();
    assert_eq!((&done["host_public_key"], &done["ip"]), (&json!("dummy-public-key"), &json!(machine.address)));
}
