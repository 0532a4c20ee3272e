//! A director that is killed while it works goes on with its tasks once it runs again; clients that follow them see them go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::site::{GROUP, Site};

const PATIENCE: Duration = Duration::from_secs(120);

/// VMs by their instances.
fn vms(site: &Site) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    site.rows(&["-d", "example", "vms"]).iter().map(|row| (text(&row["instance"]), text(&row["vm_cid"]))).collect()
}

/// Every VM that the cloud was asked for, by the ids of the requests.
fn creations(site: &Site) -> BTreeSet<String> {
    let requests = site.requests();
    let creations = requests.iter().filter(|request| request["method"] == "create_vm");
    creations.map(|request| request["context"]["request_id"].as_str().unwrap().to_owned()).collect()
}

/// One at a time, so that some instances are recreated when the director is killed and others are not.
#[test]
fn a_recreate_whose_director_was_killed_goes_on_and_recreates_nobody_twice() {
    let mut site = Site::ready(json!({"sim": {}}));
    let group = GROUP.replace("instances: 1", "instances: 3");
    site.deploy(&[&group]);
    let before = vms(&site);
    site.change_cloud(json!({"sim": {"latency": {"create_vm": 300, "attach_disk": 300}}}));
    let mut recreate = site.verb(&["-n", "-d", "example", "recreate", "--max-in-flight=1", "--canaries=0"]);
    let recreate = recreate.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deployed = creations(&site);
    let deadline = Instant::now() + PATIENCE;
    while creations(&site).len() < deployed.len() + 2 {
        assert!(Instant::now() < deadline, "the second VM is not asked for:\n{}", site.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let script = fs::read_to_string(site.state_dir().join("env.sh")).unwrap();
    let address = script.split("https://").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    let mut asked = creations(&site);
    site.kill_director();
    site.spawn_director(&address);

    let ended = recreate.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "who follows the task sees its end: {said}\n{}", site.log());
    assert!(said.contains("it goes on (try 2 of 3)"), "{said}");
    asked.extend(creations(&site));
    assert_eq!(asked.difference(&deployed).count(), 3, "one new VM for each");
    let after = vms(&site);
    assert!(
        before.iter().all(|(instance, vm)| after.get(instance).is_some_and(|new| new != vm)),
        "{before:?} {after:?}"
    );
    assert_eq!(site.in_cloud("vms").len(), 3);
    assert_eq!(site.rows(&["tasks", "--recent=1"])[0]["state"], "done");
    assert!(site.rows(&["locks"]).is_empty() && site.rows(&["leaks"]).is_empty());
    assert!(site.ok(&["plan", &site.manifest(&[&group])]).contains("nothing to do"));
}
