//! A VM that its cloud cannot reach is not gone: it may run on. Another one takes its place only when somebody said that it is dead,
//! and it goes as soon as the cloud reaches it again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::site::{GROUP, Site};

const WHY: &str = "the VM is on the member 'n2', which does not answer";

/// A director with one VM that its cloud cannot reach any more. Addresses are the cloud's, so that another VM can have one.
fn stranded(settings: &str) -> (Site, String) {
    let site = Site::start(json!({"sim": {}}), settings);
    site.upload_stemcell("2");
    let config = site.write(
        "cloud-config.yml",
        "azs: [{name: z1}]\nvm_types: [{name: small}]\nnetworks: [{name: default, type: dynamic, subnets: [{azs: [z1]}]}]\n",
    );
    site.ok(&["-n", "update-cloud-config", &config]);
    site.deploy(&[&GROUP.replace(", persistent_disk_type: disk", "")]);
    let vm = site.in_cloud("vms")[0].clone();
    let refused = |method: &str| json!({"method": method, "fault": "fail", "error": {"type": "Bosh::Clouds::CloudError", "message": WHY}});
    let faults: Vec<Value> = ["get_disks", "delete_vm", "reboot_vm"].map(refused).to_vec();
    site.change_cloud(json!({"sim": {"faults": faults}}));
    site.ok(&["sim", "kill", &vm, "--config", site.state_dir().join("cpi/sim.json").to_str().unwrap()]);
    (site, vm)
}

fn wait_until(site: &Site, what: &str, is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}:\n{}", site.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The VM of the one instance.
fn vm_on_record(site: &Site) -> Option<String> {
    site.rows(&["-d", "example", "vms"]).first().map(|row| row["vm_cid"].as_str().unwrap().to_owned())
}

#[test]
fn a_vm_that_cannot_be_reached_is_replaced_only_when_the_operator_says_that_it_is_dead() {
    let (site, old) = stranded("resurrector: {enabled: false}\nschedules: {delete_orphaned_vms_every: 1s}\n");
    let report = site.windlass(&["-d", "example", "cloud-check", "--report", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let found = &report["Tables"][0]["Rows"][0];
    assert_eq!(found["type"], "unresponsive_agent");
    assert!(found["description"].as_str().unwrap().contains(WHY), "{found}");

    let refused = site.windlass(&["-n", "-d", "example", "cloud-check", "--resolution", "recreate_vm"]);
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stdout).contains(WHY), "{refused:?}");
    assert_eq!(site.in_cloud("vms"), std::slice::from_ref(&old), "there is no second one");
    assert_eq!(vm_on_record(&site), Some(old.clone()));

    site.ok(&["-n", "-d", "example", "cloud-check", "--resolution", "declare_vm_dead"]);
    let new = vm_on_record(&site).unwrap();
    assert_ne!(new, old);
    // It is on record until the cloud reaches it.
    assert!(site.in_cloud("vms").contains(&old));
    assert_eq!(site.rows(&["orphaned-vms"])[0]["vm_cid"], old.as_str());
    site.change_cloud(json!({"sim": {}}));
    wait_until(&site, "the dead VM is still there", || site.in_cloud("vms") == [new.clone()]);
    wait_until(&site, "the dead VM is still on record", || site.rows(&["orphaned-vms"]).is_empty());
    assert!(site.rows(&["leaks"]).is_empty());
}

#[test]
fn the_resurrector_replaces_a_vm_that_cannot_be_reached_when_the_fencing_command_says_that_it_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let (script, asked, allowed) =
        (folder.path().join("fence"), folder.path().join("asked"), folder.path().join("off"));
    let text = format!(
        "#!/bin/sh\necho \"$WINDLASS_VM_CID $WINDLASS_DEPLOYMENT $WINDLASS_REASON\" >> {}\ntest -e {} || {{ echo it is on >&2; exit 1; }}\n",
        asked.display(),
        allowed.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = format!(
        "resurrector: {{interval: 1s, agent_timeout: 2s}}\nschedules: {{delete_orphaned_vms_every: 1s}}\n\
         fencing: {{command: [{}], timeout: 20s}}\n",
        script.display()
    );
    let (site, old) = stranded(&settings);
    let calls = || fs::read_to_string(&asked).unwrap_or_default();
    wait_until(&site, "nobody was asked twice", || calls().lines().count() >= 2);
    assert_eq!(calls().lines().next().unwrap(), format!("{old} example {WHY}"));
    assert_eq!((site.in_cloud("vms"), vm_on_record(&site)), (vec![old.clone()], Some(old.clone())));
    fs::write(&allowed, "").unwrap();
    wait_until(&site, "the VM was not replaced", || vm_on_record(&site).is_some_and(|vm| vm != old));
    site.change_cloud(json!({"sim": {}}));
    wait_until(&site, "the dead VM is still there", || !site.in_cloud("vms").contains(&old));
    assert_eq!(site.in_cloud("vms").len(), 1);
}
