//! A real LXD daemon as a cloud: certified, and driven by a director from the first deploy to the last trace of it. What
//! counts is what the daemon's own lists have.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use windlass_rigs::lxd::{BRIDGE, Lxd, POOL, PREFIX};
use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;
use crate::software::release::Sources;

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");

/// A daemon with a project for one director, and the CPI's configuration.
struct Cluster {
    lxd: Lxd,
    project: String,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start(test: &str) -> Option<Self> {
        let lxd = Lxd::start(test)?;
        let project = lxd.make_project("d1");
        let cluster = Self { lxd, project, folder: tempfile::tempdir().unwrap() };
        let incus = json!({"endpoints": [format!("unix:{}", cluster.lxd.socket().display())], "project": cluster.project,
            "pool": POOL, "network": BRIDGE, "state_dir": cluster.path("requests")});
        let config = json!({"cloud": {"plugin": "incus", "properties": {"incus": incus}}});
        fs::write(cluster.path("cpi.json"), config.to_string()).unwrap();
        Some(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn held(&self) -> Vec<String> {
        self.lxd.held(&self.project)
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        let get = format!(
            "get() {{ curl -s --unix-socket {} \"lxd/1.0/$1?project={}\"; }}",
            self.lxd.socket().display(),
            self.project
        );
        fs::write(&path, format!("#!/bin/sh\n{get}\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }
}

#[test]
fn a_real_lxd_daemon_is_certified_whole() {
    const NAME: &str = "incus::a_real_lxd_daemon_is_certified_whole";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(cluster) = Cluster::start(NAME) else { return };
    let agent = cluster.path("agent");
    fs::write(&agent, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let stemcell = cluster.path("stemcell.tgz");
    let built = Command::new(WINDLASS)
        .args(["stemcell", "build", "--agent"])
        .arg(&agent)
        .arg("--output")
        .arg(&stemcell)
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let list = cluster.script(
        "list",
        "get instances | grep -o 'vm-[0-9a-f-]*'\nget images | grep -oE '[0-9a-f]{64}'\n\
         volumes() { get \"storage-pools/fast/volumes/custom$1\" | grep -o 'custom/[^?\"]*' | sed 's,custom/,,'; }\n\
         disks=$(volumes | grep -v /)\n\
         for disk in $disks; do echo fast:$disk; volumes /$disk/snapshots | sed 's,/snapshots/,:,; s,^,fast:,'; done\nexit 0",
    );
    let size = cluster.script(
        "disk-size",
        "get storage-pools/fast/volumes/custom/${1#fast:} | grep -o '\"size\":\"[0-9]*' | grep -o '[0-9]*$'",
    );
    let settings = cluster.lxd.files_of_instance(&cluster.project, "{vm_cid}");
    let settings = format!("cat {}/var/vcap/bosh/warden-cpi-agent-env.json", settings.display());
    let profile = cluster.path("profile.yml");
    fs::write(
        &profile,
        format!(
            "networks:\n  dynamic: {{}}\n  manual: {{range: {PREFIX}.0/24, gateway: {PREFIX}.1, dns: [{PREFIX}.1]}}\n\
             wrong_credentials: {{project: not-ours}}\ndeadline: 120\n"
        ),
    )
    .unwrap();
    let output = Command::new(WINDLASS)
        .arg("certify")
        .arg("--cpi")
        .arg(format!("{WINDLASS} cpi incus --config {}", cluster.path("cpi.json").display()))
        .arg("--stemcell")
        .arg(&stemcell)
        .arg("--profile")
        .arg(&profile)
        .args(["--list", &list, "--show-settings", &settings, "--disk-size", &format!("{size} {{disk_cid}}")])
        .args(["--format", "json"])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let is_wrong = |check: &&Value| check["outcome"] == "failed";
    let wrong: Vec<&Value> = report["checks"].as_array().unwrap().iter().filter(is_wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(report["certified"], true, "{report:#}");
    assert_eq!(report["leftovers"], json!([]));
    for seen in ["vms.settings", "disks.resize"] {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == seen);
        assert!(check.is_none_or(|check| check["outcome"] == "passed"), "{check:#?}");
    }
    assert_eq!(cluster.held(), Vec::<String>::new());
}

/// The one VM of the deployment.
fn vm(site: &Site) -> String {
    let vms = site.rows(&["-d", "example", "vms"]);
    assert_eq!(vms.len(), 1, "{vms:?}");
    vms[0]["vm_cid"].as_str().unwrap().to_owned()
}

/// The one disk of the deployment, as the cloud calls it.
fn disk(cluster: &Cluster) -> String {
    let held = cluster.held();
    let disks: Vec<_> = held.iter().filter(|name| name.starts_with("disk-") && !name.contains('/')).collect();
    assert_eq!(disks.len(), 1, "{held:?}");
    disks[0].clone()
}

fn runs(site: &Site) -> bool {
    let rows = site.rows(&["-d", "example", "instances", "--ps"]);
    rows.iter().any(|row| row["process"] == "greeter" && row["process_state"] == "running")
}

#[test]
fn a_director_keeps_a_job_with_a_disk_on_a_real_lxd_daemon() {
    const NAME: &str = "incus::a_director_keeps_a_job_with_a_disk_on_a_real_lxd_daemon";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(cluster) = Cluster::start(NAME) else { return };
    let cpi = cluster.path("cpi.json");
    let settings = format!(
        "cpi: {{exec: incus, config: {}}}\nenable_cpi_resize_disk: true\nenable_snapshots: true\n",
        cpi.display()
    );
    let site = Site::ready_in_network(PREFIX, &settings);
    let cloud_config = |disk: u64| {
        let text = format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: {disk}}}]\nnetworks:\n\
             - name: default\n  subnets: [{{range: {PREFIX}.0/24, gateway: {PREFIX}.1, azs: [z1]}}]\n\
             compilation: {{workers: 1, network: default, az: z1, vm_type: small, reuse_compilation_vms: true}}\n"
        );
        fs::write(site.file("cloud-config.yml"), text).unwrap();
        site.ok(&["-n", "update-cloud-config", site.file("cloud-config.yml").to_str().unwrap()]);
    };
    cloud_config(64);
    let release = site.file("release.tgz");
    Sources::default().write(&release);
    site.ok(&["upload-release", release.to_str().unwrap()]);
    let manifest = "name: example\nreleases: [{name: greeter, version: latest}]\n\
        stemcells: [{alias: default, os: windlass-minimal, version: latest}]\n\
        update: {canaries: 1, max_in_flight: 1, canary_watch_time: 1000-60000, update_watch_time: 1000-60000}\n\
        instance_groups:\n- name: front\n  instances: 1\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
        persistent_disk_type: disk\n  networks: [{name: default}]\n  \
        jobs: [{name: greeter, release: greeter, properties: {name: you}}]\n";
    fs::write(site.manifest(), manifest).unwrap();

    site.deploy();
    assert!(runs(&site), "{:?}", site.rows(&["-d", "example", "instances", "--ps"]));
    let (first, kept) = (vm(&site), disk(&cluster));
    let store = cluster.lxd.files_of_volume(&cluster.project, &kept);
    fs::write(store.join("data"), "precious").unwrap();
    let tags = cluster.lxd.volume(&cluster.project, &kept)["config"].clone();
    assert_eq!((&tags["user.bosh.deployment"], &tags["user.windlass.attached_to"]), (&json!("example"), &json!(first)));

    site.ok(&["-n", "-d", "example", "recreate", "front/0"]);
    assert_ne!(vm(&site), first);
    assert!(runs(&site) && disk(&cluster) == kept);
    assert_eq!(fs::read_to_string(store.join("data")).unwrap(), "precious");

    site.ok(&["-n", "-d", "example", "take-snapshot", "front/0"]);
    assert!(cluster.held().iter().any(|name| name.contains("/snap-")), "{:?}", cluster.held());
    site.ok(&["-n", "-d", "example", "delete-snapshots"]);

    cloud_config(128);
    site.deploy();
    assert_eq!(disk(&cluster), kept, "it grew in place");
    assert_eq!(cluster.lxd.volume(&cluster.project, &kept)["config"]["size"], "128MiB");
    assert_eq!(fs::read_to_string(store.join("data")).unwrap(), "precious");
    assert!(runs(&site));

    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(!cluster.held().iter().any(|name| name.starts_with("vm-")), "{:?}", cluster.held());
    for orphan in site.rows(&["disks", "--orphaned"]) {
        site.ok(&["-n", "delete-disk", orphan["disk_cid"].as_str().unwrap()]);
    }
    let stemcell = &site.rows(&["stemcells"])[0];
    let version = stemcell["version"].as_str().unwrap().trim_end_matches('*').to_owned();
    site.ok(&["-n", "delete-stemcell", &format!("{}/{version}", stemcell["name"].as_str().unwrap())]);
    assert_eq!(cluster.held(), Vec::<String>::new(), "nothing is left");
}
