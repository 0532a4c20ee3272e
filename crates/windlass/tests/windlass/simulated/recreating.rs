//! A cloud that makes a VM again to attach a disk, as some clouds of containers do: the agent is away for a while and comes
//! back with nothing mounted. Data must be where jobs look for it after whatever is done with disks.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::site::{GROUP, Site, WINDLASS};
use super::with_disk;

fn cloud(agents: Value) -> Value {
    json!({"sim": {"attach_disk": "recreate", "resize_disk": "not_supported", "agents": agents}})
}

fn site(agents: Value) -> Site {
    let site = Site::start(cloud(agents), "resurrector: {enabled: false}\n");
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    site
}

/// The VM that the instance has now.
fn vm(site: &Site) -> String {
    site.rows(&["-d", "example", "vms"])[0]["vm_cid"].as_str().unwrap().to_owned()
}

fn instance(site: &Site) -> String {
    site.rows(&["-d", "example", "vms"])[0]["instance"].as_str().unwrap().to_owned()
}

fn write_data(site: &Site) {
    fs::write(site.store(&vm(site)).join("precious"), "data").unwrap();
}

fn has_data(site: &Site, after: &str) {
    let found = fs::read_to_string(site.store(&vm(site)).join("precious"));
    assert_eq!(found.unwrap_or_else(|error| panic!("{after}: {error}")), "data", "{after}");
}

/// Changes how the agent of a VM is from its next start on.
fn change_agent(site: &Site, vm: &str, key: &str, value: Value) {
    let path = site.cloud().join("vms").join(vm).join("vm.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    record["agent"][key] = value;
    fs::write(path, record.to_string()).unwrap();
}

/// Whether a second disk is attached, and nothing is mounted.
fn is_between_two_disks(site: &Site, vm: &str) -> bool {
    let record = fs::read(site.cloud().join("vms").join(vm).join("vm.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    record["disks"].as_object().is_some_and(|disks| disks.len() == 2) && !site.store(vm).exists()
}

/// The plan of a deploy, with and without `--fix`.
fn plan(site: &Site, group: &str) -> String {
    let manifest = site.manifest(&[group]);
    let plan = site.ok(&["plan", &manifest]);
    assert_eq!(site.ok(&["plan", "--fix", &manifest]), plan, "the agent answers, so there is nothing to fix");
    plan
}

/// Asks the CPI as somebody would who does not tell the director.
pub(super) fn behind_the_directors_back(site: &Site, method: &str, arguments: Value) {
    let request =
        json!({"method": method, "arguments": arguments, "context": {"director_uuid": "u"}, "api_version": 2});
    let path = site.write("request.json", &request.to_string());
    let config = site.state_dir().join("cpi/sim.json");
    let input = fs::File::open(path).unwrap();
    let mut cpi = std::process::Command::new(WINDLASS);
    let output = cpi.args(["cpi", "sim", "--config"]).arg(config).stdin(Stdio::from(input)).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
}

/// What happened once: the growth failed, the old disk was not mounted again, and the next deploy started the jobs beside it.
#[test]
fn a_growth_that_failed_is_repaired_and_the_plan_says_so() {
    let mut site = site(json!({"delay": 300, "fails_to_migrate": true}));
    let larger = with_disk("persistent_disk_type: larger");
    site.deploy(&[GROUP]);
    write_data(&site);
    let first = site.attached_disk().0;
    let said = site.deploy_fails(&[&larger]);
    assert!(said.contains("while migrating disk"), "{said}");
    has_data(&site, "a failed growth");

    // Killed while the agent is away, the director cannot mount anything either.
    let vm = vm(&site);
    change_agent(&site, &vm, "delay", json!(2000));
    let mut deploy = site.verb(&["-n", "-d", "example", "deploy", &site.manifest(&[&larger])]);
    let mut deploy = deploy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_between_two_disks(&site, &vm) {
        assert!(Instant::now() < deadline, "the VM was not made again:\n{}", site.log());
        std::thread::sleep(Duration::from_millis(1));
    }
    site.kill_director();
    let _ = deploy.kill();
    let _ = deploy.wait();
    site.give_up_killed_tasks();
    site.restart_director();
    let manifest = site.manifest(&[GROUP]);
    while !site.windlass(&["plan", &manifest]).status.success() {
        assert!(Instant::now() < deadline, "the agent does not come back:\n{}", site.log());
    }
    change_agent(&site, &vm, "delay", json!(0));
    change_agent(&site, &vm, "fails_to_migrate", json!(false));

    let planned = plan(&site, GROUP);
    assert!(planned.contains(&format!("attach disk {first}: it is attached, but not mounted")), "{planned}");
    assert!(planned.contains("(data is kept): it is not in use"), "{planned}");
    site.ok(&["-n", "-d", "example", "deploy", "--fix", &site.manifest(&[GROUP])]);
    has_data(&site, "deploy --fix");
    site.deploy(&[&larger]);
    has_data(&site, "growth");
    assert!(site.ok(&["plan", &site.manifest(&[&larger])]).contains("nothing to do"));
    assert!(site.rows(&["leaks"]).is_empty());
}

#[test]
fn data_survives_all_that_is_done_with_one_disk() {
    let site = site(json!({"delay": 100}));
    let grown = with_disk("persistent_disk_type: larger");
    site.deploy(&[GROUP]);
    write_data(&site);
    site.deploy(&[&grown]);
    has_data(&site, "growth by copy");
    site.ok(&["-n", "-d", "example", "recreate"]);
    has_data(&site, "recreate");
    let swapped = grown.replace("{name: db", "{update: {vm_strategy: create-swap-delete}, name: db");
    site.deploy(&[&swapped.replace("vm_type: small", "vm_type: large")]);
    has_data(&site, "hot swap");

    let (vm, disk) = (vm(&site), site.rows(&["disks"])[0]["disk_cid"].clone());
    behind_the_directors_back(&site, "detach_disk", json!([vm, disk]));
    site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", "reattach_disk"]);
    has_data(&site, "cloud-check");

    let instance = instance(&site);
    let other = site.rows(&["disks", "--orphaned"])[0]["disk_cid"].as_str().unwrap().to_owned();
    site.ok(&["-n", "-d", "example", "stop"]);
    site.ok(&["-n", "-d", "example", "attach-disk", &instance, &other]);
    site.ok(&["-n", "-d", "example", "start"]);
    has_data(&site, "attach-disk of the disk before the growth");
    site.ok(&["-n", "-d", "example", "stop", "--hard"]);
    site.ok(&["-n", "-d", "example", "start"]);
    has_data(&site, "a hard stop");
    assert!(site.rows(&["leaks"]).is_empty());
}

/// A disk that is attached takes the names of the others with it, unless they are told again.
#[test]
fn disks_with_names_keep_their_names() {
    let site = site(json!({"delay": 100}));
    let disks =
        |log: &str| with_disk(&format!("persistent_disks: [{{name: data, type: disk}}, {{name: log, type: {log}}}]"));
    site.deploy(&[&disks("larger")]);
    let content = |name: &str| {
        let path = site.cloud().join("vms").join(vm(&site)).join("base/instance/disks").join(name);
        path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert_ne!(content("data"), content("log"));
    for name in ["data", "log"] {
        fs::write(content(name).join("precious"), name).unwrap();
    }
    let have_data = |after: &str, names: &[&str]| {
        for name in names {
            let found = fs::read_to_string(content(name).join("precious")).unwrap_or_default();
            assert_eq!(found, *name, "{after}");
        }
    };
    site.ok(&["-n", "-d", "example", "recreate"]);
    have_data("recreate", &["data", "log"]);

    let vm = vm(&site);
    let of = |name: &str| content(name).parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let (data, log) = (of("data"), of("log"));
    behind_the_directors_back(&site, "detach_disk", json!([vm, log]));
    site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", "reattach_disk"]);
    have_data("cloud-check", &["data", "log"]);
    behind_the_directors_back(&site, "detach_disk", json!([vm, data]));
    site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", "reattach_disk_and_reboot"]);
    have_data("cloud-check with a reboot", &["data", "log"]);

    // A disk with a name cannot be copied.
    site.deploy(&[&disks("largest")]);
    have_data("growth of the other one", &["data"]);
    assert!(!content("log").join("precious").exists());
    assert!(site.rows(&["leaks"]).is_empty());
}
