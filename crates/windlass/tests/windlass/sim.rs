//! The simulated cloud through the one binary, as a caller and an operator use it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

struct Cloud {
    folder: tempfile::TempDir,
}

impl Cloud {
    fn new() -> Self {
        let cloud = Self { folder: tempfile::tempdir().unwrap() };
        let sim = json!({"state_dir": cloud.folder.path().join("state")});
        let config = json!({"cloud": {"plugin": "sim", "properties": {"sim": sim}}});
        fs::write(cloud.config(), config.to_string()).unwrap();
        cloud
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("cpi.json")
    }

    fn ok(&self, method: &str, arguments: Value) -> Value {
        let request = json!({"method": method, "arguments": arguments, "api_version": 2,
            "context": {"director_uuid": "d", "vm": {"stemcell": {"api_version": 2}}}});
        let output = windlass(&["cpi", "sim", "--config"], &self.config(), request.to_string().as_bytes());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["error"], Value::Null);
        answer["result"].clone()
    }
}

fn windlass(words: &[&str], config: &Path, stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(words).arg(config).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_operator_sees_what_there_is_and_what_a_vm_was_given() {
    let cloud = Cloud::new();
    let image = cloud.folder.path().join("image");
    fs::write(&image, "").unwrap();
    let stemcell = cloud.ok("create_stemcell", json!([image, null]));
    let networks = json!({"a": {"type": "manual", "ip": "10.0.0.5"}});
    let vm = cloud.ok("create_vm", json!(["agent-1", stemcell, {}, networks, [], {"bosh": {"password": "x"}}]));
    let vm = vm[0].as_str().unwrap();
    let disk = cloud.ok("create_disk", json!([64, {}, vm]));
    cloud.ok("attach_disk", json!([vm, disk]));
    let disk = disk.as_str().unwrap();
    cloud.ok("set_vm_metadata", json!([vm, {"name": "redis/ce7d", "index": 1}]));

    let status = windlass(&["sim", "status", "--config"], &cloud.config(), b"");
    assert!(status.status.success());
    let status = String::from_utf8(status.stdout).unwrap();
    let rows: Vec<Vec<&str>> = status.lines().map(|row| row.split('\t').map(str::trim).collect()).collect();
    let stemcell = stemcell.as_str().unwrap();
    assert_eq!(rows[0][..5], ["disk", disk, "64 MiB", vm, "-"]);
    assert_eq!(rows[1][..3], ["stemcell", stemcell, "0 B"]);
    assert_eq!(rows[2][..5], ["vm", vm, "-", "-", "10.0.0.5"]);
    assert!(status.contains("no agent: no loopback address"), "{status}");
    let shown = windlass(&["--json", "sim", "status", "--config"], &cloud.config(), b"");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let row = shown["Tables"][0]["Rows"].as_array().unwrap().iter().find(|row| row["cid"] == vm).unwrap();
    assert_eq!((&row["name"], &row["metadata"]), (&json!("redis/ce7d"), &json!("index: 1\nname: redis/ce7d")));

    let cids = windlass(&["sim", "list", "--config"], &cloud.config(), b"");
    assert_eq!(String::from_utf8(cids.stdout).unwrap(), format!("{disk}\n{stemcell}\n{vm}\n"));
    let size = windlass(&["sim", "disk-size", disk, "--config"], &cloud.config(), b"");
    assert_eq!(size.stdout, b"64\n");

    let settings = windlass(&["sim", "settings", vm, "--config"], &cloud.config(), b"");
    let settings: Value = serde_json::from_slice(&settings.stdout).unwrap();
    assert_eq!((&settings["agent_id"], &settings["vm"]["name"]), (&json!("agent-1"), &json!(vm)));
    let missing = windlass(&["sim", "settings", "vm-1", "--config"], &cloud.config(), b"");
    assert!(!missing.status.success());
    let error = String::from_utf8(missing.stderr).unwrap();
    assert!(error.contains("there is no VM 'vm-1'"), "{error}");
}

#[test]
fn an_operator_hosts_the_agents_by_hand_and_kills_one() {
    let cloud = Cloud::new();
    let image = cloud.folder.path().join("image");
    fs::write(&image, "").unwrap();
    let stemcell = cloud.ok("create_stemcell", json!([image, null]));
    let never = json!({"agent": {"never_up": true}});
    let networks = json!({"a": {"type": "dynamic"}});
    let vm = cloud.ok("create_vm", json!(["agent-1", stemcell, never, networks, [], {}]))[0].clone();
    let vm = vm.as_str().unwrap();
    // Nobody has started a host: an agent that never comes up needs none.
    let mut host = Command::new(env!("CARGO_BIN_EXE_windlass"));
    host.args(["sim", "--state-dir"]).arg(cloud.folder.path().join("state")).stdout(Stdio::piped());
    let mut host = Ended(host.spawn().unwrap());
    let mut said = BufReader::new(host.0.stdout.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    assert!(first.starts_with("Hosting the agents of 1 simulated VMs in "), "{first}");
    assert!(said.next().unwrap().unwrap().contains(&format!("{vm}  no agent: it never comes up")));
    let second = windlass(&["sim", "--config"], &cloud.config(), b"");
    assert!(!second.status.success());
    assert!(String::from_utf8(second.stderr).unwrap().contains("have a host already"));

    let killed = windlass(&["sim", "kill", vm, "--config"], &cloud.config(), b"");
    assert!(killed.status.success(), "{killed:?}");
    let status = windlass(&["sim", "status", "--config"], &cloud.config(), b"");
    assert!(String::from_utf8(status.stdout).unwrap().contains("off"));
}

/// A process that ends with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What certification cannot see, it does not call good.
#[test]
fn certification_sees_disks_grow_and_snapshots_come_and_go() {
    let cloud = Cloud::new();
    let this = env!("CARGO_BIN_EXE_windlass");
    let with_config = |words: &str| format!("{this} {words} --config {}", cloud.config().display());
    let mut command = Command::new(this);
    command.args(["certify", "--cpi", &with_config("cpi sim")]);
    command.args(["--list", &with_config("sim list"), "--disk-size", &with_config("sim disk-size {disk_cid}")]);
    let output = command.args(["--only", "disks.resize-is-real", "--only", "snapshots.are-real"]).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("passed        disks.resize-is-real"), "{report}");
    assert!(report.contains("passed        snapshots.are-real"), "{report}");
    assert_eq!(windlass(&["sim", "list", "--config"], &cloud.config(), b"").stdout, b"");
}
