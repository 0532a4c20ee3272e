//! What can be done about a disk that a deploy left half-way: by our command line, on a cloud where that happens.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::site::{GROUP, Site};

const NO_RESURRECTOR: &str = "resurrector: {enabled: false}\n";

fn site(agents: Value) -> Site {
    let site = Site::start(json!({"sim": {"agents": agents}}), NO_RESURRECTOR);
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    site
}

/// The kinds of problems that there are.
fn problems(site: &Site) -> Vec<String> {
    let output = site.windlass(&["-d", "example", "cloud-check", "--report", "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = printed["Tables"][0]["Rows"].as_array().unwrap();
    let kinds: Vec<_> = rows.iter().map(|row| row["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(output.status.success(), kinds.is_empty(), "{output:?}");
    kinds
}

fn record(site: &Site, disk: &str) -> Value {
    serde_json::from_slice(&fs::read(site.cloud().join("disks").join(disk).join("disk.json")).unwrap()).unwrap()
}

/// Nobody loses a disk by giving it up: it is an orphan, and can be attached again.
#[test]
fn a_disk_that_was_never_mounted_can_be_given_up() {
    let site = site(json!({"misses_disks": true}));
    site.deploy_fails(&[GROUP]);
    assert_eq!(problems(&site), ["inactive_disk"]);
    let disks = site.in_cloud("disks");

    // It is not taken for the instance's own before it is mounted.
    let output = site.windlass(&["-n", "-d", "example", "cloud-check", "--resolution", "activate_disk"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stdout).contains("is not mounted on db/"));
    assert_eq!(problems(&site), ["inactive_disk"]);

    site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", "delete_disk"]);
    assert!(problems(&site).is_empty());
    assert!(record(&site, &disks[0])["attached_to"].is_null());
    let orphans = site.rows(&["disks", "--orphaned"]);
    assert_eq!((site.in_cloud("disks"), &orphans[0]["disk_cid"]), (disks.clone(), &json!(disks[0])));

    // The instance gets another one.
    site.change_cloud(json!({"sim": {}}));
    site.ok(&["-n", "-d", "example", "deploy", "--recreate", &site.manifest(&[GROUP])]);
    assert!(problems(&site).is_empty());
    assert_ne!(site.attached_disk().0, disks[0]);
    assert!(site.rows(&["leaks"]).is_empty());
}

/// A director that dies between the mounting of a disk and its record neither loses the disk nor makes another one.
#[test]
fn a_disk_that_was_mounted_without_a_record_can_be_kept() {
    let mut site = site(json!({"latency": 150}));
    let manifest = site.manifest(&[GROUP]);
    let mut deploy = site.verb(&["-n", "-d", "example", "deploy", &manifest]);
    let mut deploy = deploy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The agent is slow to say so, and meanwhile nobody knows.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !site.in_cloud("vms").iter().any(|vm| site.store(vm).is_symlink()) {
        assert!(Instant::now() < deadline, "nothing is mounted:\n{}", site.log());
        std::thread::sleep(Duration::from_millis(1));
    }
    site.kill_director();
    let _ = deploy.kill();
    let _ = deploy.wait();
    site.give_up_killed_tasks();
    site.restart_director();
    let (disk, _, content) = site.attached_disk();
    fs::write(content.join("precious"), "data").unwrap();

    assert_eq!(problems(&site), ["inactive_disk"]);
    // What is in use is not given up.
    let output = site.windlass(&["-n", "-d", "example", "cloud-check", "--resolution", "delete_disk"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stdout).contains("is mounted and in use"));
    site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", "activate_disk"]);
    assert!(problems(&site).is_empty());
    assert_eq!(site.rows(&["disks"])[0]["mounted"], "true");

    site.deploy(&[GROUP]);
    let (after, _, content) = site.attached_disk();
    assert_eq!((after, site.in_cloud("disks").len()), (disk, 1));
    assert_eq!(fs::read_to_string(content.join("precious")).unwrap(), "data");
}

/// Jobs that start after a failed migration must not write beside their disk.
#[test]
fn a_migration_that_fails_half_way_leaves_the_disk_where_it_was() {
    let site =
        Site::start(json!({"sim": {"resize_disk": "not_supported", "agents": {"fails_to_migrate": true}}}), "{}\n");
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    site.deploy(&[GROUP]);
    let vm = site.in_cloud("vms")[0].clone();
    fs::write(site.store(&vm).join("precious"), "data").unwrap();
    let said = site.deploy_fails(&[&GROUP.replace("persistent_disk_type: disk", "persistent_disk_type: larger")]);
    assert!(said.contains("while migrating disk"), "{said}");
    assert_eq!(fs::read_to_string(site.store(&vm).join("precious")).unwrap(), "data");
    assert_eq!(site.in_cloud("vms"), [vm]);
    // Only the new disk is not in use.
    assert_eq!(problems(&site), ["inactive_disk"]);
}
