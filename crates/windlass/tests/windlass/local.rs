//! The embedded cloud through the one binary, as an operator looks at it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A cloud in process isolation where a director would have it.
struct Cloud {
    folder: tempfile::TempDir,
}

impl Cloud {
    fn new() -> Self {
        let cloud = Self { folder: tempfile::tempdir().unwrap() };
        let local = json!({"state_dir": cloud.path("cloud"), "isolation": "process"});
        let config = json!({"cloud": {"plugin": "local", "properties": {"local": local}}});
        fs::create_dir(cloud.path("cpi")).unwrap();
        fs::write(cloud.path("cpi/local.json"), config.to_string()).unwrap();
        cloud
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ok(&self, method: &str, arguments: Value) -> Value {
        let request = json!({"method": method, "arguments": arguments, "api_version": 2,
            "context": {"director_uuid": "d", "vm": {"stemcell": {"api_version": 2}}}});
        let mut child = Command::new(WINDLASS)
            .args(["cpi", "local", "--config"])
            .arg(self.path("cpi/local.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(answer["error"], Value::Null, "{method}");
        answer["result"].clone()
    }

    fn local(&self, words: &[&str]) -> Output {
        Command::new(WINDLASS)
            .arg("local")
            .args(words)
            .arg("--state-dir")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What a verb prints.
    fn says(&self, words: &[&str]) -> String {
        let output = self.local(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn rows(&self) -> (Value, Value) {
        let document: Value = serde_json::from_str(&self.says(&["status", "--json"])).unwrap();
        (document["Tables"][0]["Rows"].clone(), document["Tables"][1]["Rows"].clone())
    }

    fn vm(&self) -> String {
        let agent = self.path("agent");
        fs::write(&agent, "#!/bin/sh\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let root = self.path("root/var/vcap/bosh/bin");
        fs::create_dir_all(&root).unwrap();
        fs::copy(&agent, root.join("bosh-agent")).unwrap();
        let image = self.path("image");
        let packed = Command::new("tar").arg("-czf").arg(&image).arg("-C").arg(self.path("root")).arg(".").status();
        assert!(packed.unwrap().success());
        let stemcell = self.ok("create_stemcell", json!([image, null]));
        let env = json!({"bosh": {"mbus": {"urls": ["https://mbus:hunter2@0.0.0.0:6868"]}, "password": "hunter3"}});
        let networks = json!({"default": {"type": "dynamic"}});
        let vm = self.ok("create_vm", json!(["agent-1", stemcell, {}, networks, [], env]));
        vm[0].as_str().unwrap().to_owned()
    }
}

/// Nothing that a test started may outlive it, also when it fails.
impl Drop for Cloud {
    fn drop(&mut self) {
        for vm in fs::read_dir(self.path("cloud/vms")).into_iter().flatten().flatten() {
            let cid = vm.file_name().into_string().unwrap();
            if cid.starts_with("vm-") {
                self.ok("delete_vm", json!([cid]));
            }
        }
    }
}

#[test]
fn an_operator_sees_what_there_is_kills_a_vm_and_reads_its_settings_without_secrets() {
    let cloud = Cloud::new();
    let vm = cloud.vm();
    let disk = cloud.ok("create_disk", json!([64, {}, vm]));
    let disk = disk.as_str().unwrap();
    cloud.ok("attach_disk", json!([vm, disk]));
    let snapshot = cloud.ok("snapshot_disk", json!([disk, {}]));
    cloud.ok("set_vm_metadata", json!([vm, {"name": "redis/ce7d", "index": 1}]));
    cloud.ok("set_disk_metadata", json!([disk, {"deployment": "redis"}]));

    let (resources, problems) = cloud.rows();
    assert_eq!(problems, Value::Null);
    let row = |kind: &str| resources.as_array().unwrap().iter().find(|row| row["kind"] == kind).unwrap().clone();
    assert_eq!((row("disk")["cid"].as_str(), row("disk")["vm"].as_str()), (Some(disk), Some(vm.as_str())));
    assert!(row("vm")["details"].as_str().unwrap().starts_with("process, running, 127."), "{resources:#}");
    assert_eq!(
        (&row("vm")["name"], &row("vm")["metadata"]),
        (&json!("redis/ce7d"), &json!("index: 1\nname: redis/ce7d"))
    );
    assert_eq!(row("disk")["metadata"], "deployment: redis");
    assert_eq!(row("snapshot")["details"], format!("directory, of {disk}"));
    let listed = cloud.says(&["list"]);
    assert!(listed.contains(&vm) && listed.contains(disk) && listed.contains(snapshot.as_str().unwrap()));
    assert_eq!(cloud.says(&["disk-size", disk]).trim(), "64");

    let shown = cloud.says(&["settings", &vm]);
    assert!(shown.contains("agent-1") && !shown.contains("hunter"), "{shown}");
    assert!(cloud.says(&["settings", &vm, "--secrets"]).contains("hunter3"));

    cloud.says(&["kill", &vm]);
    let (resources, problems) = cloud.rows();
    assert!(resources.to_string().contains("process, stopped"), "{resources:#}");
    assert!(problems.to_string().contains("its supervisor was killed"), "{problems:#}");
    cloud.ok("reboot_vm", json!([vm]));
    assert_eq!(cloud.rows().1, Value::Null);
    let unknown = cloud.local(&["kill", "vm-unknown"]);
    assert!(!unknown.status.success() && String::from_utf8_lossy(&unknown.stderr).contains("there is no VM"));
}

#[test]
fn what_nobody_owns_is_shown_and_removed_and_nothing_else() {
    let cloud = Cloud::new();
    let disk = cloud.ok("create_disk", json!([64, {}, null]));
    let disks = cloud.path("cloud/disks");
    let half = disks.join(".new-disk-d9b2d63d-a233-4123-847a-7090a0dd0f3d-4000000000-0");
    let living = disks.join(format!(".new-disk-d9b2d63d-a233-4123-847a-7090a0dd0f3e-{}-0", std::process::id()));
    for folder in [&half, &living] {
        fs::create_dir(folder).unwrap();
    }
    let lock = cloud.path("cloud/locks/disk-d9b2d63d-a233-4123-847a-7090a0dd0f3f");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "").unwrap();

    let problems = cloud.rows().1.to_string();
    assert!(problems.contains(half.to_str().unwrap()) && problems.contains(lock.to_str().unwrap()), "{problems}");
    let said = cloud.says(&["gc", "-n"]);
    assert!(said.contains(half.to_str().unwrap()), "it is shown before it goes: {said}");
    assert!(!half.exists() && !lock.exists() && living.exists(), "what is being made stays");
    assert_eq!(cloud.ok("has_disk", json!([disk])), json!(true));
    assert_eq!(cloud.rows().1, Value::Null);
    assert!(cloud.says(&["gc", "-n", "--tty"]).contains("Nothing is left over"));
}

#[test]
fn a_plan_names_the_groups_whose_new_vms_nest() {
    if !is_own_machine("local::a_plan_names_the_groups_whose_new_vms_nest") {
        return;
    }
    let site = Site::ready_with_containers("");
    let cloud_config = fs::read_to_string(site.file("cloud-config.yml")).unwrap();
    let nesting = cloud_config.replace("{name: small}", "{name: small, cloud_properties: {nesting: true}}");
    assert_ne!(nesting, cloud_config);
    fs::write(site.file("cloud-config.yml"), nesting).unwrap();
    let warning =
        "warning: new VMs of 'db' are made with 'nesting': their programs may make containers and write control groups";
    assert!(!site.ok(&["plan", &site.manifest()]).contains("nesting"));
    site.ok(&["-n", "update-cloud-config", site.file("cloud-config.yml").to_str().unwrap()]);
    let plan = site.ok(&["plan", &site.manifest()]);
    assert!(plan.contains(warning), "{plan}");
    site.deploy();
    let plan = site.ok(&["plan", &site.manifest()]);
    assert!(!plan.contains("nesting") && plan.contains("nothing to do"), "{plan}");
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}
