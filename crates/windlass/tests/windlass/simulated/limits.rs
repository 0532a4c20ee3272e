//! A task that gives an instance a new VM from what is on record asks first whether the cloud can make one: a VM that is deleted for one
//! that cannot be had is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::json;

use super::site::{GROUP, Site, WINDLASS};

const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: &str = "resurrector: {interval: 1s, agent_timeout: 2s, stateful: true}\n";

/// The simulated cloud, in which no network can be had but 10.0.0.0/8 while the file `full` is there.
const CPI: &str = r#"#!/bin/sh
request=$(cat)
case "$request" in *'"method":"info"'*)
    if [ -e "$(dirname "$0")/full" ]; then
        printf %s "$request" | WINDLASS cpi sim --config CONFIG |
            sed 's|"largest_disk_mib"|"networks_within":["10.0.0.0/8"],"largest_disk_mib"|'
        exit
    fi ;;
esac
printf %s "$request" | exec WINDLASS cpi sim --config CONFIG
"#;

/// How the names of methods begin that change something.
const CHANGES: [&str; 5] = ["create_", "delete_", "attach_", "detach_", "reboot_"];

fn site() -> Site {
    let site = Site::start(json!({"sim": {}}), SETTINGS);
    let config = site.file("cpi.json").display().to_string();
    let cpi = site.write("their-cpi", &CPI.replace("WINDLASS", WINDLASS).replace("CONFIG", &config));
    fs::set_permissions(&cpi, fs::Permissions::from_mode(0o755)).unwrap();
    let cpis = format!("cpis: [{{name: theirs, type: theirs, exec_path: {cpi}, properties: {{}}}}]\n");
    site.ok(&["-n", "update-cpi-config", &site.write("cpis.yml", &cpis)]);
    site.upload_empty_stemcell("empty", "windlass-minimal", "1");
    site.update_cloud_config("{cpi: theirs}", "{cpi: theirs}");
    site
}

/// All that could have been done to an instance: its VM and disk in the cloud, and what the CPI was asked to change.
fn what_there_is(site: &Site) -> (Vec<String>, Vec<String>, Vec<String>) {
    let is_change = |method: &String| CHANGES.iter().any(|change| method.starts_with(change));
    let methods = site.requests().into_iter().map(|request| request["method"].as_str().unwrap().to_owned());
    let changes = methods.filter(is_change).collect();
    (site.in_cloud("vms"), site.in_cloud("disks"), changes)
}

fn answers(site: &Site) -> bool {
    site.rows(&["-d", "example", "vms"])[0]["process_state"] != "unresponsive agent"
}

#[test]
fn a_vm_is_not_deleted_for_one_that_its_cloud_cannot_make() {
    let site = site();
    site.deploy(&[GROUP]);
    site.write("full", "");
    let before = what_there_is(&site);
    let vm = before.0[0].clone();
    let refused = |said: &str| {
        let why = format!("{}.0/24 is not in 10.0.0.0/8, where all VMs of this cloud must be", site.prefix);
        said.contains(&why) && said.contains("; nothing was done to it")
    };

    let output = site.windlass(&["-n", "-d", "example", "recreate", "db/0", "--no-converge"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && refused(&said), "{output:?}");
    assert_eq!(what_there_is(&site), before);
    assert!(answers(&site));

    site.ok(&["sim", "kill", &vm, "--config", site.file("cpi.json").to_str().unwrap()]);
    assert!(!answers(&site));
    let output = site.windlass(&["-n", "-d", "example", "cloud-check", "--resolution", "recreate_vm"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && refused(&said), "{output:?}");
    assert_eq!(what_there_is(&site), before);

    let wait_for = |what: &str, is_so: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}:\n{}", site.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // One that came while cloud-check held the lock failed because of that.
    let resurrector_was_refused = || {
        let tasks = site.rows(&["tasks", "--recent", "--all"]);
        let failed = tasks.iter().filter(|task| task["description"] == "scan and fix" && task["state"] == "error");
        let mut said = failed.map(|task| site.windlass(&["task", task["id"].as_str().unwrap()]).stdout);
        said.any(|said| refused(&String::from_utf8_lossy(&said)))
    };
    wait_for("the resurrector does not try it, or is not told why it cannot", &resurrector_was_refused);
    assert_eq!(what_there_is(&site), before);

    // Nothing else kept it from a new VM.
    fs::remove_file(site.file("full")).unwrap();
    wait_for("the resurrector gives it no new VM", &|| {
        let vms = site.in_cloud("vms");
        vms.len() == 1 && vms[0] != vm && site.rows(&["tasks"]).is_empty()
    });
    assert_eq!(site.in_cloud("disks"), before.1);
    assert!(answers(&site));
}
