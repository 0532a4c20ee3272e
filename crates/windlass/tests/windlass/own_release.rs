//! `releases/windlass`, deployed by `create-env` on the embedded cloud: a director in a VM, which outlives its VM.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::docs::pages::root;
use crate::env_releases::said;
use crate::site::Network;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
/// The stemcell's agent is this program as well: the release need not bring a second copy of a few hundred MiB. The first director takes
/// its time until it listens, as one with a large database does, and longer than jobs are watched.
const PROGRAM: &str = "#!/bin/bash
case \"$*\" in *' director '*) ! mkdir /var/vcap/store/slow-start 2> /dev/null || sleep 12 ;; esac
exec -a windlass /var/vcap/bosh/bin/bosh-agent \"$@\"
";

struct Env {
    folder: tempfile::TempDir,
    network: Network,
}

impl Env {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(WINDLASS);
        command.args(arguments).current_dir(self.folder.path()).env("HOME", self.path("home")).stdin(Stdio::null());
        command.output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}\n{}", said(&output), self.director_log());
        said(&output)
    }

    /// With a certificate of somebody else's CA, if one is given.
    fn write(&self, name: &str, tls: Option<&Value>) {
        let tls = tls.map(|tls| format!("tls: {tls}")).unwrap_or_default();
        let subnet = &self.network.prefix;
        let manifest = format!(
            "name: director
releases: [{{name: windlass, url: \"file://windlass.tgz\"}}]
resource_pools: [{{name: vms, network: net, stemcell: {{url: \"file://stemcell.tgz\"}}}}]
disk_pools: [{{name: d, disk_size: 64}}]
networks: [{{name: net, type: manual, subnets: [{{range: {subnet}.0/24, gateway: {subnet}.1}}]}}]
instance_groups:
- name: director
  instances: 1
  resource_pool: vms
  persistent_disk_pool: d
  networks: [{{name: net, static_ips: [{subnet}.9]}}]
  jobs:
  - {{name: windlass-cpi, release: windlass, properties: {{cloud: sim, sim: {{state_dir: /var/vcap/store/sim}}}}}}
  - name: windlass-director
    release: windlass
    properties:
      name: {name}
      run_as: root
      listen: {subnet}.9:25555
      cpi_job: windlass-cpi
      {tls}
      users: [{{name: eve, password: eves-password, role: admin}}]
  - {{name: windlass-registry, release: windlass, properties: {{run_as: root, listen: \"{subnet}.9:25777\", users: [{{name: r, password: rs-password}}]}}}}
update: {{update_watch_time: 100-60000}}
cloud_provider:
  cpi: local
  properties: {{local: {{isolation: process}}}}
"
        );
        fs::write(self.path("env.yml"), manifest).unwrap();
    }

    /// Where the VM has `/var/vcap`.
    fn vcap(&self) -> Option<PathBuf> {
        let state: Value = serde_json::from_slice(&fs::read(self.path("env-state.json")).ok()?).ok()?;
        let vm = self.path("env-state.windlass.cloud/vms").join(state["current_vm_cid"].as_str()?);
        let supervisor: Value = serde_json::from_slice(&fs::read(vm.join("supervisor.json")).ok()?).ok()?;
        Some(Path::new("/proc").join(supervisor["init"]["pid"].to_string()).join("root/var/vcap"))
    }

    fn director_log(&self) -> String {
        let log = self.vcap().map(|vcap| vcap.join("data/sys/log/windlass-director/director.log"));
        log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default()
    }

    /// Name and uuid of the director, as a client on this machine is told them. The deploy waited until it listens.
    fn director(&self) -> (String, String) {
        fs::copy(self.vcap().unwrap().join("store/windlass-director/ca.pem"), self.path("ca.pem")).unwrap();
        self.director_trusting("ca.pem")
    }

    fn director_trusting(&self, ca: &str) -> (String, String) {
        let url = format!("https://{}.9:25555", self.network.prefix);
        let flags = ["-e", &url, "--ca-cert", ca, "--client", "eve", "--client-secret", "eves-password"];
        let told = self.ok(&[&flags[..], &["env", "--json"]].concat());
        let told: Value = serde_json::from_str(&told).unwrap();
        let row = &told["Tables"][0]["Rows"][0];
        (row["name"].as_str().unwrap().to_owned(), row["uuid"].as_str().unwrap().to_owned())
    }
}

/// Nothing that a test started may outlive it, also when it fails.
impl Drop for Env {
    fn drop(&mut self) {
        if self.path("env-state.json").exists() {
            let _ = self.run(&["delete-env", "env.yml", "--skip-drain"]);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

#[test]
fn a_director_is_deployed_by_create_env_and_outlives_its_vm() {
    let env = Env { folder: tempfile::tempdir().unwrap(), network: Network::claim() };
    for part in ["config", "jobs", "packages"] {
        copy(&root().join("releases/windlass").join(part), &env.path("release").join(part));
    }
    fs::create_dir_all(env.path("release/src/windlass")).unwrap();
    fs::write(env.path("release/src/windlass/windlass"), PROGRAM).unwrap();
    let tarball = env.path("windlass.tgz");
    let tarball = tarball.to_str().unwrap();
    env.ok(&["create-release", "--dir", "release", "--force", "--version", "1", "--tarball", tarball]);
    // The director in the VM is the agent's program under another name.
    env.ok(&["stemcell", "build", "--agent", WINDLASS, "--userland", "host", "--output", "stemcell.tgz"]);
    env.write("first", None);
    env.ok(&["create-env", "env.yml"]);
    let (name, uuid) = env.director();
    assert_eq!(name, "first");
    let registry = format!("{}.9:25777", env.network.prefix);
    std::net::TcpStream::connect(&registry).unwrap();

    let theirs = windlass_pki::Authority::new().unwrap();
    let address = format!("{}.9", env.network.prefix);
    fs::create_dir(env.path("theirs")).unwrap();
    let shown = theirs.director_server(&env.path("theirs"), &[address]).unwrap();
    let tls = json!({"certificate": shown.certificate, "private_key": shown.private_key.reveal(), "ca": theirs.certificate()});
    fs::write(env.path("their-ca.pem"), theirs.certificate()).unwrap();
    env.write("second", Some(&tls));
    let changed = env.ok(&["create-env", "env.yml"]);
    assert!(changed.contains("create VM: the manifest changed"), "{changed}");
    assert_eq!(env.director(), ("second".to_owned(), uuid), "another VM, the same director");
    assert_eq!(env.director_trusting("their-ca.pem").0, "second", "with the certificate that it was given");
    env.ok(&["delete-env", "env.yml"]);
}
