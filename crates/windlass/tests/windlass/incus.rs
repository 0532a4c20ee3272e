//! A real LXD daemon as a cloud: certified, and driven by a director from the first deploy to the last trace of it. What
//! counts is what the daemon's own lists have.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use windlass_rigs::lxd::{BRIDGE, Lxd, POOL, PREFIX};
use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;
use crate::software::release::Sources;
use crate::whole_run::is_whole_run;

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

    /// An instance as the daemon has it.
    fn instance(&self, vm: &str) -> Value {
        self.lxd.ok("GET", &format!("/1.0/instances/{vm}?project={}", self.project), &Value::Null)
    }

    /// What the director has of it, in `director.yml`.
    fn settings(&self) -> String {
        format!("cpi: {{exec: incus, config: {}}}\n", self.path("cpi.json").display())
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
        "get instances | grep -o 'vm-[0-9a-f-]*'\nget networks | grep -o 'wl-[0-9a-f]*'\nget images | grep -oE '[0-9a-f]{64}'\n\
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
             managed_network: {{range: 10.78.0.0/24, gateway: 10.78.0.1, netmask_bits: 24}}\nwrong_credentials: {{project: not-ours}}\ndeadline: 120\n"
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
    for seen in ["networks.usable", "networks.by-size"] {
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["id"] == seen).unwrap();
        assert_eq!(check["outcome"], "passed", "{check:#}");
    }
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

fn upload_release(site: &Site) {
    let release = site.file("release.tgz");
    Sources::default().write(&release);
    site.ok(&["upload-release", release.to_str().unwrap()]);
}

/// One instance with the release's job and a disk.
fn write_manifest(site: &Site, vm_type: &str, name: &str) {
    let text = format!(
        "name: example\nreleases: [{{name: greeter, version: latest}}]\n\
         stemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
         update: {{canaries: 1, max_in_flight: 1, canary_watch_time: 1-60000, update_watch_time: 1-60000}}\n\
         instance_groups:\n- name: front\n  instances: 1\n  azs: [z1]\n  vm_type: {vm_type}\n  stemcell: default\n  \
         persistent_disk_type: disk\n  networks: [{{name: default}}]\n  \
         jobs: [{{name: greeter, release: greeter, properties: {{name: {name}}}}}]\n"
    );
    fs::write(site.manifest(), text).unwrap();
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
    let settings = format!("{}enable_cpi_resize_disk: true\nenable_snapshots: true\n", cluster.settings());
    let site = Site::ready_in_network(PREFIX, &settings);
    let cloud_config = |disk: u64| {
        let text = format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}, {{name: rooted, cloud_properties: {{privileged: true}}}}]\n\
             disk_types: [{{name: disk, disk_size: {disk}}}]\nnetworks:\n\
             - name: default\n  subnets: [{{range: {PREFIX}.0/24, gateway: {PREFIX}.1, azs: [z1]}}]\n\
             compilation: {{workers: 1, network: default, az: z1, vm_type: small, reuse_compilation_vms: true}}\n"
        );
        fs::write(site.file("cloud-config.yml"), text).unwrap();
        site.ok(&["-n", "update-cloud-config", site.file("cloud-config.yml").to_str().unwrap()]);
    };
    cloud_config(64);
    upload_release(&site);
    let manifest = |vm_type: &str| write_manifest(&site, vm_type, "you");
    manifest("small");

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

    // Root of a privileged VM is another user of the machine than root of others; the disk's files are root's in both.
    let said_at_stops = || fs::read_to_string(store.join("stops")).unwrap().lines().count();
    for (vm_type, privileged) in [("rooted", json!("true")), ("small", Value::Null)] {
        let before = said_at_stops();
        manifest(vm_type);
        site.deploy();
        assert_eq!(cluster.instance(&vm(&site))["config"]["security.privileged"], privileged);
        assert!(runs(&site) && disk(&cluster) == kept);
        assert_eq!(fs::read_to_string(store.join("data")).unwrap(), "precious");
        assert!(said_at_stops() > before, "the one before wrote to the disk");
    }

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

/// With `WINDLASS_ORIGINAL_AGENT`, the original's agent, and `WINDLASS_SYSTEM`, a root file system for it that has its monit and what
/// starts that.
#[test]
fn data_survives_with_the_originals_agents_in_unprivileged_and_privileged_containers() {
    let [Ok(agent), Ok(system)] = ["WINDLASS_ORIGINAL_AGENT", "WINDLASS_SYSTEM"].map(std::env::var) else {
        eprintln!("this needs the original's agent and a system with monit for it, and did not run");
        return;
    };
    const NAME: &str = "incus::data_survives_with_the_originals_agents_in_unprivileged_and_privileged_containers";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(cluster) = Cluster::start(NAME) else { return };
    let site = Site::ready_in_network_of(PREFIX, &system, &agent, &cluster.settings());
    upload_release(&site);
    let mut kept = None;
    for privileged in [false, false, true, true, false] {
        let cloud_config = format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small, cloud_properties: {{privileged: {privileged}}}}}]\n\
             disk_types: [{{name: disk, disk_size: 64}}]\nnetworks:\n- name: default\n  \
             subnets: [{{range: {PREFIX}.0/24, gateway: {PREFIX}.1, azs: [z1]}}]\n\
             compilation: {{workers: 1, network: default, az: z1, vm_type: small, reuse_compilation_vms: true}}\n"
        );
        fs::write(site.file("cloud-config.yml"), cloud_config).unwrap();
        site.ok(&["-n", "update-cloud-config", site.file("cloud-config.yml").to_str().unwrap()]);
        let before = kept.is_some().then(|| vm(&site));
        write_manifest(&site, "small", "you");
        site.ok(&["-n", "-d", "example", "deploy", "--recreate", &site.manifest()]);
        let now = vm(&site);
        assert_ne!(Some(&now), before.as_ref());
        assert_eq!(cluster.instance(&now)["config"]["security.privileged"] == "true", privileged);
        assert!(runs(&site), "{:?}", site.rows(&["-d", "example", "instances", "--ps"]));
        let disk = disk(&cluster);
        let store = cluster.lxd.files_of_volume(&cluster.project, &disk);
        // As the VM has it, where the agent mounted it: the job writes there before it is stopped.
        let stops = || fs::read_to_string(store.join("stops")).unwrap_or_default().lines().count();
        let before = stops();
        write_manifest(&site, "small", "them");
        site.deploy();
        assert!(runs(&site) && vm(&site) == now && stops() > before, "a changed job runs in the same VM");
        let data = store.join("data");
        match &kept {
            None => fs::write(&data, "precious").unwrap(),
            Some(kept) => assert_eq!((kept, fs::read_to_string(&data).unwrap()), (&disk, "precious".to_owned())),
        }
        kept = Some(disk);
    }
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(!cluster.held().iter().any(|name| name.starts_with("vm-")), "{:?}", cluster.held());
}

/// As in the guide: both have one PostgreSQL, one folder, and the CPI's configuration.
#[test]
fn a_standby_director_goes_on_with_a_deploy_on_a_real_lxd_daemon() {
    const NAME: &str = "incus::a_standby_director_goes_on_with_a_deploy_on_a_real_lxd_daemon";
    if !is_whole_run(NAME) || !is_own_machine(NAME) {
        return;
    }
    let Some(cluster) = Cluster::start(NAME) else { return };
    let postgres = windlass_database::PrivatePostgres::start().unwrap();
    let shared = cluster.path("shared");
    fs::create_dir(&shared).unwrap();
    // What a CPI of the first does is waited for so long; nobody sees from another machine whether it still runs.
    let settings = format!(
        "{}db: '{}'\nshared_dir: {}\ncpi_deadline: 20s\nresurrector: {{enabled: false}}\n",
        cluster.settings(),
        postgres.url(),
        shared.display()
    );
    let mut first = Site::ready_in_network(PREFIX, &settings);
    first.deploy();
    let kept = disk(&cluster);
    fs::write(cluster.lxd.files_of_volume(&cluster.project, &kept).join("data"), "precious").unwrap();
    let mut second = first.standby();

    first.write_documents(2);
    let manifest = first.manifest();
    let mut deploy = first.verb(&["-n", "-d", "example", "deploy", &manifest]);
    let mut deploy = deploy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let vms = || cluster.held().iter().filter(|name| name.starts_with("vm-")).count();
    first.wait_until("another VM", |_| vms() > 1);
    first.kill_director();
    deploy.wait().unwrap();
    second.wait_until("taking over", |second| second.leads());
    second.wait_until("the end of the deploy", |second| second.rows(&["tasks"]).is_empty());

    let deploy = |more: &[&str]| second.ok(&[&["-n", "-d", "example", "deploy", manifest.as_str()], more].concat());
    deploy(&[]);
    assert_eq!(second.rows(&["-d", "example", "vms"]).len(), 2);
    let held = cluster.held();
    let count = |prefix: &str| held.iter().filter(|name| name.starts_with(prefix)).count();
    assert_eq!((count("vm-"), count("disk-"), held.len()), (2, 2, 5), "nothing is there twice: {held:?}");
    deploy(&["--recreate"]);
    let data = cluster.lxd.files_of_volume(&cluster.project, &kept).join("data");
    assert_eq!(fs::read_to_string(data).unwrap(), "precious");
    assert!(second.rows(&["leaks"]).is_empty());
    second.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert_eq!(vms(), 0);
}
