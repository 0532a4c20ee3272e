//! The director acting on the simulated cloud, which lies, fails and refuses as configured: real director, CPI and agents.

mod failing_agents;
mod full_disk;
mod hung_calls;
mod limits;
mod lists;
mod names_kills;
mod recreating;
mod resolutions;
mod restarted_database;
mod resumed;
mod silent_agents;
pub(crate) mod site;
mod standby;
mod stranded;
mod versions;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use site::{GROUP, Site, WINDLASS, end_host, in_folder};

fn with_disk(disk: &str) -> String {
    GROUP.replace("persistent_disk_type: disk", disk)
}

/// Data is never lost, whatever a cloud says about its disks.
#[test]
fn a_disk_grows_in_place_or_by_copy_and_a_cloud_that_only_says_so_is_found_out() {
    let site = Site::ready(json!({"sim": {}}));
    site.deploy(&[GROUP]);
    let (first, _, content) = site.attached_disk();
    fs::write(content.join("precious"), "data").unwrap();

    let printed = site.deploy(&[&with_disk("persistent_disk_type: larger")]);
    assert!(!printed.contains("Warning"), "{printed}");
    let (grown, record, _) = site.attached_disk();
    assert_eq!((grown.as_str(), &record["size_mib"]), (first.as_str(), &json!(128)), "resized in place");

    for (mode, disk, size, warns) in [("pretended", "largest", 256, true), ("not_supported", "huge", 512, false)] {
        let (before, ..) = site.attached_disk();
        site.change_cloud(json!({"sim": {"resize_disk": mode}}));
        let printed = site.deploy(&[&with_disk(&format!("persistent_disk_type: {disk}"))]);
        assert_eq!(printed.contains("the VM sees no growth"), warns, "{mode}: {printed}");
        let (after, record, content) = site.attached_disk();
        assert_ne!(before, after, "{mode}: copied to a new disk");
        assert_eq!(record["size_mib"], size);
        assert_eq!(fs::read_to_string(content.join("precious")).unwrap(), "data", "{mode}");
        assert!(site.rows(&["disks", "--orphaned"]).iter().any(|row| row["disk_cid"] == before.as_str()));
    }
    assert!(site.ok(&["plan", &site.manifest(&[&with_disk("persistent_disk_type: huge")])]).contains("nothing to do"));
}

/// Each of them plans while the others do, and there is one network.
#[test]
fn many_deployments_that_come_at_once_get_addresses_of_their_own() {
    let site = Site::ready(json!({"sim": {}}));
    let manifest = fs::read_to_string(site.manifest(&[GROUP])).unwrap();
    let deploys: Vec<_> = (0..20)
        .map(|number| {
            let name = format!("d{number}");
            let path = site.write(&format!("{name}.yml"), &manifest.replace("name: example", &format!("name: {name}")));
            let mut deploy = site.verb(&["-n", "-d", &name, "deploy", &path]);
            deploy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for deploy in deploys {
        let output = deploy.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", site.log());
    }
    let address = |number| site.rows(&["-d", &format!("d{number}"), "vms"])[0]["ips"].to_string();
    let addresses: BTreeSet<String> = (0..20).map(address).collect();
    assert_eq!(addresses.len(), 20, "{addresses:?}");
}

/// What jobs find by name is the disk that was meant.
#[test]
fn disks_with_names_are_found_by_their_names_also_after_a_recreate() {
    let site = Site::ready(json!({"sim": {}}));
    let group = with_disk("persistent_disks: [{name: data, type: disk}, {name: log, type: larger}]");
    site.deploy(&[&group]);
    let content = |name: &str| {
        let vm = site.in_cloud("vms")[0].clone();
        let path = site.cloud().join("vms").join(vm).join("base/instance/disks").join(name);
        path.canonicalize().unwrap()
    };
    fs::write(content("data").join("precious"), "data").unwrap();
    assert_ne!(content("data"), content("log"));
    site.ok(&["-n", "-d", "example", "recreate"]);
    assert_eq!(fs::read_to_string(content("data").join("precious")).unwrap(), "data");
    let grown = with_disk("persistent_disks: [{name: data, type: largest}, {name: log, type: larger}]");
    site.deploy(&[&grown]);
    assert_eq!(fs::read_to_string(content("data").join("precious")).unwrap(), "data", "grown in place");
    assert_eq!(site.in_cloud("disks").len(), 2);
}

/// With a hot swap the new VM is there before the old one stops, and the disk moves over.
#[test]
fn a_hot_swap_moves_the_disk_to_a_vm_with_another_address() {
    let site = Site::ready(json!({"sim": {}}));
    let group = |vm_type: &str| {
        let swapped = GROUP.replace("{name: db", "{update: {vm_strategy: create-swap-delete}, name: db");
        swapped.replace("vm_type: small", vm_type)
    };
    site.deploy(&[&group("vm_type: small")]);
    let before = site.rows(&["-d", "example", "vms"])[0].clone();
    let (_, _, content) = site.attached_disk();
    fs::write(content.join("precious"), "data").unwrap();
    site.deploy(&[&group("vm_type: large")]);
    let after = site.rows(&["-d", "example", "vms"])[0].clone();
    assert_ne!(before["vm_cid"], after["vm_cid"]);
    assert_ne!(before["ips"], after["ips"]);
    let store = site.store(after["vm_cid"].as_str().unwrap());
    assert_eq!(fs::read_to_string(store.join("precious")).unwrap(), "data");
    // The old one is off and waits to be deleted; its address is not given to anybody.
    assert_eq!(site.in_cloud("vms").len(), 2);
    let two = group("vm_type: large").replace("instances: 1", "instances: 2");
    site.deploy(&[&two]);
    let addresses: Vec<Value> = site.rows(&["-d", "example", "vms"]).iter().map(|row| row["ips"].clone()).collect();
    assert!(!addresses.contains(&before["ips"]), "{addresses:?}");
}

fn creation_fails(nth: u64, ok_to_retry: bool) -> Value {
    let error = json!({"type": "Bosh::Clouds::VMCreationFailed", "ok_to_retry": ok_to_retry});
    json!({"method": "create_vm", "nth": nth, "fault": "fail", "error": error})
}

/// A cloud that is short of something for a moment does not fail a deploy; one that refuses for good fails it once.
#[test]
fn a_creation_is_tried_again_as_often_as_the_contract_says() {
    let site = Site::ready(json!({"sim": {}}));
    let retried: Vec<Value> = (1..=8).map(|nth| creation_fails(nth, true)).collect();
    // Each try is asked for twice, because this cloud finds what it may have made before it failed.
    site.change_cloud(json!({"sim": {"faults": retried}}));
    site.deploy(&[GROUP]);
    assert_eq!(site.in_cloud("vms").len(), 1);
    let calls = fs::read_to_string(site.cloud().join("calls/create_vm")).unwrap();
    assert_eq!(calls.trim(), "9", "the fifth try succeeded");

    let always: Vec<Value> = (1..=40).map(|nth| creation_fails(nth, true)).collect();
    site.change_cloud(json!({"sim": {"faults": always}}));
    let said = site.deploy_fails(&[&GROUP.replace("instances: 1", "instances: 2")]);
    assert!(said.contains("VMCreationFailed"), "{said}");
    let calls = fs::read_to_string(site.cloud().join("calls/create_vm")).unwrap();
    assert_eq!(calls.trim(), "10", "five tries and no more");
}

/// A cloud that says no is believed: asking again could make what it refused to make.
#[test]
fn a_creation_that_may_not_be_retried_is_asked_for_once() {
    let site = Site::ready(json!({"sim": {}}));
    site.change_cloud(json!({"sim": {"faults": [creation_fails(1, false)]}}));
    let said = site.deploy_fails(&[GROUP]);
    assert!(said.contains("VMCreationFailed"), "{said}");
    let calls = || fs::read_to_string(site.cloud().join("calls/create_vm")).unwrap().trim().to_owned();
    assert_eq!(calls(), "1");
    assert_eq!(site.in_cloud("vms"), Vec::<String>::new());

    site.deploy(&[GROUP]);
    assert_eq!(calls(), "2");
    site.change_cloud(json!({"sim": {"faults": [creation_fails(1, false)]}}));
    assert!(!site.windlass(&["-n", "-d", "example", "recreate"]).status.success());
    assert_eq!(calls(), "1", "a recreate is believed, too");
}

/// What is not there any more need not be removed, and nothing else that a cloud says means that.
#[test]
fn a_vm_that_the_cloud_does_not_know_any_more_counts_as_deleted() {
    let site = Site::ready(json!({"sim": {}}));
    site.deploy(&[GROUP]);
    let refuse = |kind: &str| {
        let fault = json!({"method": "delete_vm", "fault": "fail", "error": {"type": format!("Bosh::Clouds::{kind}")}});
        site.change_cloud(json!({"sim": {"faults": [fault]}}));
    };
    refuse("CloudError");
    let delete = ["-n", "-d", "example", "delete-deployment"];
    assert!(!site.windlass(&delete).status.success(), "the VM is there");
    refuse("VMNotFound");
    site.ok(&delete);
}

/// Operators find out from the cloud's own console whose a VM and a disk are.
#[test]
fn the_cloud_is_told_whose_its_vms_and_disks_are() {
    let site = Site::ready(json!({"sim": {}}));
    site.deploy(&[GROUP]);
    let (_, disk, _) = site.attached_disk();
    let vm = site.cloud().join("vms").join(&site.in_cloud("vms")[0]).join("vm.json");
    let vm: Value = serde_json::from_slice(&fs::read(vm).unwrap()).unwrap();
    let keys = |record: &Value| {
        let mut keys: Vec<String> = record["metadata"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let of_a_vm = ["created_at", "deployment", "director", "id", "index", "instance_group", "job", "name"];
    assert_eq!(keys(&vm), of_a_vm);
    let of_a_disk = ["attached_at", "deployment", "director", "instance_group", "instance_id", "instance_index"];
    assert_eq!(keys(&disk), of_a_disk);
    for record in [&vm, &disk] {
        let named = ["deployment", "instance_group"].map(|key| record["metadata"][key].clone());
        assert_eq!(named, [json!("example"), json!("db")]);
    }
}

/// What was made well is not made again, and every failure is told.
#[test]
fn a_deploy_that_fails_for_some_keeps_the_others_for_the_next_try() {
    let site = Site::ready(json!({"sim": {}}));
    let five = GROUP.replace("instances: 1", "instances: 5");
    // There is room for three of them, whichever come first.
    site.change_cloud(json!({"sim": {"capacity": {"vms": 3}}}));
    let said = site.deploy_fails(&[&five]);
    assert!(said.matches("VMCreationFailed").count() >= 2, "{said}");
    let kept = site.in_cloud("vms");
    assert_eq!(kept.len(), 3, "{kept:?}");
    site.change_cloud(json!({"sim": {}}));
    site.deploy(&[&five]);
    let vms = site.in_cloud("vms");
    assert_eq!(vms.len(), 5);
    assert!(kept.iter().all(|vm| vms.contains(vm)), "VMs that were good were kept");
    assert!(site.rows(&["leaks"]).is_empty());
}

/// Each zone is served by its own cloud.
#[test]
fn zones_of_several_cpis_are_served_each_by_its_own() {
    let site = Site::start(json!({"sim": {}}), "{}\n");
    let clouds = ["one", "two"].map(|name| site.file(name));
    let [one, two] = &clouds;
    let config = site.write(
        "cpi-config.yml",
        &format!(
            "cpis:\n- {{name: one, type: sim, properties: {{state_dir: {}}}}}\n- {{name: two, type: sim, properties: {{state_dir: {}}}}}\n",
            one.display(),
            two.display()
        ),
    );
    site.ok(&["-n", "update-cpi-config", &config]);
    site.upload_stemcell("2");
    site.update_cloud_config("{cpi: one}", "{cpi: two}");
    let both = GROUP.replace("azs: [z1]", "azs: [z1, z2]").replace("instances: 1", "instances: 3");
    site.deploy(&[&both]);
    for (cloud, vms) in [(one, 2), (two, 1)] {
        assert_eq!(in_folder(cloud, "stemcells").len(), 1, "a stemcell in each cloud");
        assert_eq!((in_folder(cloud, "vms").len(), in_folder(cloud, "disks").len()), (vms, vms));
    }
    assert!(site.in_cloud("vms").is_empty(), "the default cloud is not used any more");
    site.ok(&["-n", "-d", "example", "recreate"]);
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    for cloud in &clouds {
        assert!(in_folder(cloud, "vms").is_empty());
        end_host(cloud);
    }
}

/// A sample of the sweep that `windlass bench kills` does in full.
#[test]
fn a_director_that_is_killed_or_whose_cpi_fails_loses_and_leaks_nothing() {
    let output = Command::new(WINDLASS).args(["bench", "kills", "director", "--every", "149"]).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{said}{complained}");
    for operation in ["deploy", "resize", "migrate", "recreate", "swap", "detach", "delete"] {
        let row = said.lines().find(|line| line.starts_with(operation)).unwrap_or_default();
        let kills = row.split_whitespace().nth(1).and_then(|kills| kills.parse::<u64>().ok());
        assert!(kills.is_some_and(|kills| kills > 0), "{operation} in {said}");
    }
}
