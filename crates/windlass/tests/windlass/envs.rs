//! `create-env` and its sisters as an operator runs them: on the embedded cloud, in both isolations, through everything that
//! happens to an environment, and killed at each of its steps.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::{self, is_own_machine};
use windlass_rigs::vm_root;

use crate::site::agent;
use crate::visits::visit_env;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A folder with a manifest, its stemcells and its state.
struct Site {
    folder: tempfile::TempDir,
    isolation: &'static str,
    /// The first three numbers of the addresses.
    subnet: String,
}

impl Site {
    fn new(isolation: &'static str) -> Self {
        let [a, b, ..] = *uuid::Uuid::new_v4().as_bytes();
        let subnet = match isolation {
            "process" => format!("127.{}.{b}", 100 + a % 100),
            _ => "10.93.7".to_owned(),
        };
        let site = Self { folder: tempfile::tempdir().unwrap(), isolation, subnet };
        for version in [1, 2] {
            site.build_stemcell(version, &format!("stemcell-{version}"));
        }
        site.write_manifest(2, "");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn build_stemcell(&self, version: u64, name: &str) {
        let built = Command::new(WINDLASS)
            .args(["stemcell", "build", "--agent", &agent(), "--name", name, "--api-version", &version.to_string()])
            .arg("--output")
            .arg(self.path(&format!("{name}.tgz")))
            .output()
            .unwrap();
        assert!(built.status.success(), "{built:?}");
    }

    /// The manifest for a stemcell of a version; `provider` stands in `cloud_provider`.
    fn write_manifest(&self, version: u64, provider: &str) {
        let (subnet, isolation) = (&self.subnet, self.isolation);
        let manifest = format!(
            "name: tiny
resource_pools:
- {{name: vms, network: net, stemcell: {{url: \"file://stemcell-{version}.tgz\"}}, env: ((env))}}
disk_pools: [{{name: d, disk_size: ((size))}}]
networks:
- {{name: net, type: manual, subnets: [{{range: {subnet}.0/24, gateway: {subnet}.1}}]}}
instance_groups:
- name: app
  instances: 1
  resource_pool: vms
  persistent_disk_pool: d
  networks: [{{name: net, static_ips: [{subnet}.9]}}]
cloud_provider:
  cpi: local
  registry: {registry}
  properties: {{local: {{isolation: {isolation}}}}}
{provider}
",
            registry = self.registry(),
        );
        fs::write(self.path("env.yml"), manifest).unwrap();
    }

    /// Where old VMs find their settings; the port is one that nobody else uses at this time.
    fn registry(&self) -> String {
        let host =
            std::net::Ipv4Addr::from(if self.isolation == "process" { [127, 0, 0, 1] } else { own_machine::ADDRESS });
        let port = std::net::TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port();
        format!("{{host: {host}, port: {port}}}")
    }

    fn command(&self, verb: &str, size: u64) -> Command {
        let mut command = Command::new(WINDLASS);
        command.arg(verb).arg(self.path("env.yml")).args(["-v", &format!("size={size}")]);
        if !self.path("vars.yml").exists() {
            fs::write(self.path("vars.yml"), "env: {}\n").unwrap();
        }
        command.arg("-l").arg(self.path("vars.yml")).stdin(Stdio::null());
        command
    }

    fn run(&self, verb: &str, size: u64) -> Output {
        self.command(verb, size).output().unwrap()
    }

    /// What a run says that ends well.
    fn ok(&self, verb: &str, size: u64) -> String {
        let output = self.run(verb, size);
        let said = said(&output);
        assert!(output.status.success(), "{verb}: {said}");
        said
    }

    fn refused(&self, verb: &str, size: u64) -> String {
        let output = self.run(verb, size);
        let said = said(&output);
        assert!(!output.status.success(), "{verb}: {said}");
        said
    }

    fn state(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("env-state.json")).unwrap()).unwrap()
    }

    fn cloud(&self) -> PathBuf {
        self.path("env-state.windlass.cloud")
    }

    fn list(&self, shelf: &str) -> Vec<String> {
        let entries = fs::read_dir(self.cloud().join(shelf)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Where software on the VM finds its data.
    fn store(&self) -> PathBuf {
        let vm = self.cloud().join("vms").join(self.state()["current_vm_cid"].as_str().unwrap());
        if self.isolation == "process" {
            return vm.join("base/store");
        }
        let supervisor: Value = serde_json::from_slice(&fs::read(vm.join("supervisor.json")).unwrap()).unwrap();
        Path::new("/proc").join(supervisor["init"]["pid"].to_string()).join("root/var/vcap/store")
    }

    fn write(&self) {
        vm_root::write(&self.store().join("precious"), "data");
    }

    fn assert_data(&self) {
        assert_eq!(fs::read_to_string(self.store().join("precious")).unwrap(), "data");
    }

    /// The VM's agent and all else that it runs come to an end, as with a power cut.
    fn lose_the_vm(&self) {
        let config = self.path("cpi.json");
        let local = serde_json::json!({"state_dir": self.cloud(), "isolation": self.isolation});
        let content = serde_json::json!({"cloud": {"plugin": "local", "properties": {"local": local}}});
        fs::write(&config, content.to_string()).unwrap();
        let vm = self.state()["current_vm_cid"].as_str().unwrap().to_owned();
        let killed = Command::new(WINDLASS).args(["local", "kill", &vm, "--config"]).arg(&config).output().unwrap();
        assert!(killed.status.success(), "{killed:?}");
    }
}

/// Nothing that a test started may outlive it, also when it fails.
impl Drop for Site {
    fn drop(&mut self) {
        if self.path("env-state.json").exists() {
            let _ = fs::write(self.path("vars.yml"), "env: {}\n");
            let _ = self.run("delete-env", 64);
        }
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// All that happens to an environment in its life.
fn life(isolation: &'static str) {
    let site = Site::new(isolation);
    let first = site.ok("create-env", 64);
    for line in [
        "Started validating\n",
        "Uploading stemcell 'stemcell-2/1'... Finished (",
        "    create VM: there is none\n",
        "  Creating VM for instance 'app/0'... Finished (",
        "Finished deploying (",
    ] {
        assert!(first.contains(line), "{line}: {first}");
    }
    site.write();
    assert!(site.ok("create-env", 64).contains("No deployment, stemcell or release changes. Skipping deploy."));

    let grown = site.ok("create-env", 128);
    assert!(grown.contains("to 128 MiB: its size changed from 64 MiB"), "{grown}");
    assert_eq!(site.state()["disks"][0]["size"], 128);
    site.assert_data();

    site.lose_the_vm();
    let revived = site.ok("create-env", 128);
    assert!(revived.contains("create VM: its agent does not answer"), "a VM that died is noticed: {revived}");
    site.assert_data();

    let stopped = site.ok("stop-env", 128);
    assert!(stopped.contains("  Draining jobs on instance 'app/0'... Finished ("), "{stopped}");
    assert!(site.ok("start-env", 128).contains("Finished starting deployment ("));

    // To an old stemcell, which needs a registry, and back.
    for version in [1, 2] {
        site.write_manifest(version, "");
        let changed = site.ok("create-env", 128);
        assert!(changed.contains("create VM: the stemcell changed"), "{changed}");
        assert_eq!(changed.contains("A registry runs"), version == 1 || changed.contains("stemcell-2/1"), "{changed}");
        site.assert_data();
        assert_eq!(site.list("stemcells").len(), 1, "the other stemcell is gone");
    }

    let mut anew = site.command("create-env", 128);
    let anew = said(&anew.arg("--recreate-persistent-disks").output().unwrap());
    assert!(anew.contains("Migrating disk content from"), "{anew}");
    assert_eq!((site.list("disks").len(), site.state()["disks"].as_array().unwrap().len()), (1, 1), "{anew}");
    site.assert_data();

    // The state file alone suffices.
    fs::remove_file(site.path("env-state.windlass.json")).unwrap();
    site.write_manifest(2, "# another one");
    fs::write(site.path("vars.yml"), "env: {something: new}\n").unwrap();
    site.ok("create-env", 128);
    site.assert_data();

    site.ok("delete-env", 128);
    let left: Vec<_> = fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("state")), "{left:?}");
    let nothing = site.refused("delete-env", 128);
    assert!(nothing.contains("nothing is known that could be deleted"), "{nothing}");
}

#[test]
fn releases_of_the_manifest_are_on_record_as_bosh_keeps_them() {
    let site = Site::new("process");
    site.write_manifest(
        2,
        "releases: [{name: bosh, url: 'https://releases.example/bosh.tgz', sha1: a, version: 280.1.14}]",
    );
    site.ok("create-env", 64);
    let state = site.state();
    let release = &state["releases"][0];
    assert_eq!((&release["name"], &release["version"]), (&"bosh".into(), &"280.1.14".into()));
    assert_eq!((&state["current_release_ids"][0], state["releases"].as_array().unwrap().len()), (&release["id"], 1));
    assert!(release["id"].as_str().unwrap().parse::<uuid::Uuid>().is_ok(), "{release}");
    assert!(site.ok("create-env", 64).contains("No deployment, stemcell or release changes. Skipping deploy."));
    assert_eq!(site.state(), state);
}

#[test]
fn an_environment_lives_through_everything_in_process_isolation() {
    life("process");
}

#[test]
fn an_environment_lives_through_everything_in_a_container() {
    if is_own_machine("envs::an_environment_lives_through_everything_in_a_container") {
        life("container");
    }
}

#[test]
fn what_cannot_be_used_is_refused_and_changes_nothing() {
    let site = Site::new("process");
    site.write_manifest(2, "  ssh_tunnel: {host: x}");
    let wrong = site.refused("create-env", 64);
    assert!(wrong.contains("ssh_tunnel") && wrong.contains("user"), "{wrong}");
    site.write_manifest(7, "");
    let missing = site.refused("create-env", 64);
    assert!(missing.contains("stemcell-7.tgz"), "{missing}");
    site.write_manifest(2, "");
    let absurd = site.refused("create-env", 0);
    assert!(absurd.contains("disk_pools[0].disk_size"), "{absurd}");
    assert!(!site.path("env-state.json").exists() && site.list("vms").is_empty());

    site.ok("create-env", 64);
    site.write();
    let state = fs::read(site.path("env-state.json")).unwrap();
    fs::write(site.path("env-state.json"), &state[..state.len() / 2]).unwrap();
    for verb in ["create-env", "delete-env", "stop-env"] {
        assert!(site.refused(verb, 64).contains("is damaged"), "{verb}");
    }
    assert_eq!((site.list("vms").len(), site.list("disks").len()), (1, 1), "a damaged state never leads to a delete");
    fs::write(site.path("env-state.json"), state).unwrap();
    site.ok("create-env", 64);
    site.assert_data();
}

/// A cloud may put a VM where the disks are that it will get, so it is told them.
#[test]
fn a_vm_is_created_with_the_cids_of_the_disks_that_it_gets() {
    let site = Site::new("process");
    let (script, requests, cloud) = (site.path("cpi"), site.path("requests"), site.cloud());
    let text = format!("#!/bin/sh\ntee -a {} | {WINDLASS} cpi local --config \"$1\"\n", requests.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = fs::read_to_string(site.path("env.yml")).unwrap();
    let local = json!({"isolation": "process", "state_dir": cloud});
    let config = json!({"cloud": {"plugin": "local", "properties": {"local": local}}});
    let cpi = format!("cpi: {{exec: '{} {{config}}', config: {config}}}", script.display());
    let manifest = manifest.replace("cpi: local", &cpi);
    fs::write(site.path("env.yml"), manifest).unwrap();
    site.ok("create-env", 64);
    let disk = site.state()["disks"][0]["cid"].clone();
    site.lose_the_vm();
    site.ok("create-env", 64);
    let requests = fs::read_to_string(requests).unwrap();
    let requests = serde_json::Deserializer::from_str(&requests).into_iter::<Value>().map(Result::unwrap);
    let told: Vec<Value> =
        requests.filter(|request| request["method"] == "create_vm").map(|it| it["arguments"][4].clone()).collect();
    assert_eq!(told, [json!([]), json!([disk])]);
    site.ok("delete-env", 64);
}

/// A site with certificates and passwords of the operator's own, as the original's manifests have them.
struct OwnCertificates {
    site: Site,
}

impl OwnCertificates {
    fn new() -> Self {
        let site = Site::new("process");
        fs::write(site.path("vars.yml"), "env: {bosh: {mbus: {cert: ((tls))}}}\n").unwrap();
        Self { site }
    }

    fn mbus(&self, password: &str) -> String {
        format!("  mbus: \"https://mbus:{password}@{}.9:6868\"\n  cert: ((tls))", self.site.subnet)
    }

    fn write(&self, provider: &str) {
        let site = &self.site;
        let variables = format!(
            "variables:
- {{name: ca, type: certificate, options: {{is_ca: true, common_name: ca}}}}
- {{name: tls, type: certificate, options: {{ca: ca, common_name: {0}.9, alternative_names: [{0}.9]}}}}
- {{name: other_ca, type: certificate, options: {{is_ca: true, common_name: other}}}}
- {{name: other, type: certificate, options: {{ca: other_ca, common_name: {0}.9, alternative_names: [{0}.9]}}}}
",
            site.subnet
        );
        site.write_manifest(2, provider);
        let manifest = fs::read_to_string(site.path("env.yml")).unwrap();
        let with_env = manifest.replace("((env))", "{bosh: {mbus: {cert: ((tls))}}}");
        fs::write(site.path("env.yml"), format!("{with_env}{variables}")).unwrap();
    }

    fn run(&self, verb: &str) -> Output {
        let mut command = self.site.command(verb, 64);
        command.arg("--vars-store").arg(self.site.path("store.yml")).output().unwrap()
    }

    fn ok(&self, verb: &str) {
        let output = self.run(verb);
        assert!(output.status.success(), "{verb}: {}", said(&output));
    }
}

/// What a state file tells of a disk is all that is known when only BOSH's command line wrote it.
#[test]
fn start_env_starts_nothing_beside_the_disk_of_a_state_that_bosh_wrote() {
    let own = OwnCertificates::new();
    own.write(&own.mbus("right"));
    own.ok("create-env");
    fs::remove_file(own.site.path("env-state.windlass.json")).unwrap();
    own.ok("stop-env");
    own.ok("start-env");

    let mut state = own.site.state();
    let cid = state["disks"][0]["cid"].take();
    state["disks"][0]["cid"] = json!("one-that-is-not-mounted");
    fs::write(own.site.path("env-state.json"), state.to_string()).unwrap();
    own.ok("stop-env");
    let refused = own.run("start-env");
    assert!(!refused.status.success(), "{}", said(&refused));
    assert!(said(&refused).contains("should have a persistent disk, and none is in use"), "{}", said(&refused));

    state["disks"][0]["cid"] = cid;
    fs::write(own.site.path("env-state.json"), state.to_string()).unwrap();
    own.ok("start-env");
    own.ok("delete-env");
}

#[test]
fn a_wrong_password_and_a_certificate_of_another_ca_are_named() {
    let own = OwnCertificates::new();
    let site = &own.site;
    let (mbus, run) = (|password: &str| own.mbus(password), |verb: &str| own.run(verb));
    let write = |provider: &str| own.write(provider);
    write(&mbus("right"));
    let made = run("create-env");
    assert!(made.status.success(), "{}", said(&made));
    site.write();
    let ca = Command::new(WINDLASS).arg("int").arg(site.path("store.yml")).args(["--path", "/ca/certificate"]).output();
    let ca = String::from_utf8(ca.unwrap().stdout).unwrap();
    visit_env(&site.path(""), &format!("https://mbus:right@{}.9:6868", site.subnet), &ca);

    write(&mbus("wrong"));
    let wrong = said(&run("stop-env"));
    assert!(wrong.contains("wrong user or password") || wrong.contains("password"), "{wrong}");
    assert!(!wrong.contains("right"), "no password is shown: {wrong}");

    write(&mbus("right").replace("((tls))", "((other))"));
    let other = said(&run("stop-env"));
    assert!(other.contains("certificate"), "{other}");

    write(&mbus("right"));
    let again = run("create-env");
    assert!(again.status.success(), "{}", said(&again));
    site.assert_data();
    let deleted = run("delete-env");
    assert!(deleted.status.success(), "{}", said(&deleted));
}

/// Kills a run at its points, and lets the same command finish it.
fn sweep(site: &Site, verb: &str, mut next: impl FnMut() -> u64) -> u64 {
    for (kills, point) in (0..).zip(Points::sampled(60)) {
        let size = next();
        let output = site.command(verb, size).env("WINDLASS_KILL_AT", point.to_string()).output().unwrap();
        let was_killed = output.status.signal() == Some(9);
        if was_killed {
            // A run that had removed its state at last has nothing more to do.
            if verb != "delete-env" || site.path("env-state.json").exists() {
                site.ok(verb, size);
            }
        } else {
            assert!(output.status.success(), "{verb} at point {point}: {}", said(&output));
        }
        let (vms, disks) = (site.list("vms").len(), site.list("disks").len());
        if verb == "delete-env" {
            assert_eq!((vms, disks), (0, 0), "{verb} killed at point {point} leaves something");
        } else {
            assert_eq!((vms, disks), (1, 1), "{verb} killed at point {point} leaks or loses something");
            site.assert_data();
        }
        if !was_killed {
            return kills;
        }
    }
    unreachable!("there is an end of points")
}

#[test]
fn a_run_killed_anywhere_is_finished_by_the_next_and_loses_nothing() {
    let site = Site::new("process");
    site.ok("create-env", 64);
    site.write();
    // Each run has something to do: the disk grows.
    let mut size = 64;
    let grown = sweep(&site, "create-env", || {
        size += 1;
        size
    });
    eprintln!("create-env with a disk that grows: killed {grown} times");
    let deleted = sweep(&site, "delete-env", || {
        site.ok("create-env", 64);
        64
    });
    eprintln!("delete-env: killed {deleted} times");
    assert!(grown > 1 && deleted > 1, "the sweeps looked at nothing");
}
