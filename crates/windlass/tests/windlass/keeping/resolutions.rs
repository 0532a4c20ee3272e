//! Every way to repair what is wrong with a VM or where its disk is, from a problem that really is there to what the cloud and
//! the records have afterwards. What was written to a disk is still on it each time.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::api::Api;
use super::{NO_RESURRECTOR, behind_the_directors_back, data, kill_vm, three_instances};
use crate::site::Site;

/// The one problem that a scan finds.
fn only_problem(api: &Api, kind: &str) -> Value {
    let found = api.scan("example");
    assert_eq!((found.as_array().unwrap().len(), &found[0]["type"]), (1, &json!(kind)), "{found}");
    found
}

fn repair(api: &Api, kind: &str, resolution: &str) {
    let found = only_problem(api, kind);
    assert_eq!(api.resolve("example", &found, Some(resolution)), "done", "{found}");
}

/// The disk that is attached to a VM.
fn disk_of(site: &Site, vm: &str) -> String {
    let disks = site.rows(&["disks"]);
    let disk = disks.iter().find(|disk| disk["vm_cid"] == vm).unwrap();
    disk["disk_cid"].as_str().unwrap().to_owned()
}

#[test]
fn a_vm_that_is_given_up_leaves_its_disk_for_the_next_one() {
    let (site, vms) = three_instances(NO_RESURRECTOR);
    let api = Api::of(&site);
    let disks = site.in_cloud("disks");

    // One that does not answer is removed from the cloud, and its instance has none.
    kill_vm(&site, &vms[0]);
    repair(&api, "unresponsive_agent", "delete_vm");
    assert_eq!(site.in_cloud("vms"), vms[1..]);
    assert_eq!(site.rows(&["-d", "example", "vms"]).len(), 2);
    repair(&api, "missing_vm", "recreate_vm");
    assert_eq!((data(&site), api.scan("example")), (vms.clone(), json!([])));

    // Another one in its place, whether or not its processes come up.
    kill_vm(&site, &vms[1]);
    repair(&api, "unresponsive_agent", "recreate_vm_without_wait");
    assert!(!site.in_cloud("vms").contains(&vms[1]));
    assert_eq!((data(&site), api.scan("example")), (vms.clone(), json!([])));

    // One that the cloud does not have is forgotten without a doubt.
    behind_the_directors_back(&site, "delete_vm", json!([vms[2]]));
    repair(&api, "missing_vm", "delete_vm_reference");
    assert!(site.rows(&["leaks"]).is_empty());
    assert!(only_problem(&api, "missing_vm")[0]["description"].as_str().unwrap().ends_with("' missing."));
    repair(&api, "missing_vm", "recreate_vm");
    assert_eq!((data(&site), api.scan("example")), (vms, json!([])));
    assert_eq!(site.in_cloud("disks"), disks);
    assert!(site.rows(&["disks", "--orphaned"]).is_empty() && site.rows(&["leaks"]).is_empty());
}

#[test]
fn a_problem_that_is_no_longer_there_can_only_be_closed() {
    let (site, vms) = three_instances(NO_RESURRECTOR);
    let api = Api::of(&site);
    kill_vm(&site, &vms[0]);
    only_problem(&api, "unresponsive_agent");
    site.ok(&["-n", "-d", "example", "delete-vm", &vms[0]]);
    let stale = api.get("/deployments/example/problems");
    assert_eq!((&stale[0]["type"], stale[0]["resolutions"].as_array().unwrap().len()), (&json!("invalid_problem"), 1));
    assert_eq!(api.resolve("example", &stale, Some("close")), "done");
    assert_eq!(api.get("/deployments/example/problems"), json!([]));
    assert_eq!(site.in_cloud("vms"), vms[1..]);
}

/// When the machine last started, as far as one can see from outside.
fn boot(site: &Site, vm: &str) -> Value {
    let record = fs::read(site.state_dir().join("cloud/vms").join(vm).join("supervisor.json")).unwrap();
    serde_json::from_slice::<Value>(&record).unwrap()["process"].clone()
}

#[test]
fn a_disk_is_attached_again_and_its_vm_rebooted() {
    let (site, vms) = three_instances(NO_RESURRECTOR);
    let api = Api::of(&site);
    let (disk, before) = (disk_of(&site, &vms[0]), boot(&site, &vms[0]));
    behind_the_directors_back(&site, "detach_disk", json!([vms[0], disk]));
    repair(&api, "mount_info_mismatch", "reattach_disk_and_reboot");
    assert_ne!(boot(&site, &vms[0]), before);
    assert_eq!((site.in_cloud("vms"), disk_of(&site, &vms[0])), (vms.clone(), disk));
    assert_eq!((data(&site), api.scan("example")), (vms, json!([])));
}

/// As the original's agents in containers are: what they write to their disk after a reboot would be lost with the VM.
#[test]
fn an_agent_that_boots_without_its_disk_gets_it_mounted() {
    let site = Site::ready_with_settings(NO_RESURRECTOR);
    let forgetful = site.file("forgetful-agent");
    let script = format!(
        "#!/bin/bash\nbase=${{!#}}\nrm -f \"$base/store\" \"$base/bosh/managed_disk_settings.json\"\n\
         exec -a bosh-agent '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_windlass")
    );
    fs::write(&forgetful, script).unwrap();
    fs::set_permissions(&forgetful, fs::Permissions::from_mode(0o755)).unwrap();
    let stemcell = site.file("forgetful.tgz").display().to_string();
    site.ok(&["stemcell", "build", "--version", "2", "--agent", forgetful.to_str().unwrap(), "--output", &stemcell]);
    site.ok(&["upload-stemcell", &stemcell]);
    site.deploy();
    let vms = site.in_cloud("vms");
    site.write_to_store(&vms[0], "precious", &vms[0]);
    let api = Api::of(&site);

    kill_vm(&site, &vms[0]);
    repair(&api, "unresponsive_agent", "reboot_vm");
    assert_eq!((data(&site), api.scan("example")), (vms.clone(), json!([])));

    // Behind the director's back, it is found and mended.
    behind_the_directors_back(&site, "reboot_vm", json!([vms[0]]));
    api.wait_for_agent("example", &vms[0]);
    repair(&api, "mount_info_mismatch", "reattach_disk");
    assert_eq!((data(&site), api.scan("example")), (vms, json!([])));
}
