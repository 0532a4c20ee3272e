//! The director keeps deployments as they should be: what cloud-check finds and repairs, what the resurrector does by itself
//! and when it does not, with real VMs that really die.

pub(crate) mod api;
mod certificates;
mod resolutions;
mod whole_life;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::site::Site;
use api::Api;

/// Asks the cloud for something behind the director's back.
fn behind_the_directors_back(site: &Site, method: &str, arguments: Value) {
    let request =
        json!({"method": method, "arguments": arguments, "context": {"director_uuid": "x"}, "api_version": 2});
    let mut cpi = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["cpi", "local", "--config"])
        .arg(site.state_dir().join("cpi/local.json"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    cpi.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = cpi.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["error"].is_null(), "{answer}");
}

fn kill_vm(site: &Site, vm: &str) {
    site.ok(&["local", "kill", vm]);
}

/// A site with three instances, each with a file of its own on its disk.
fn three_instances(settings: &str) -> (Site, Vec<String>) {
    let site = Site::ready_with_settings(settings);
    site.write_documents(3);
    site.deploy();
    let vms = site.in_cloud("vms");
    for vm in &vms {
        site.write_to_store(vm, "precious", vm);
    }
    (site, vms)
}

/// What all disks have, whichever VMs they are on.
fn data(site: &Site) -> Vec<String> {
    let mut data: Vec<_> = site
        .in_cloud("vms")
        .iter()
        .map(|vm| fs::read_to_string(site.store(vm).join("precious")).unwrap_or_else(|_| format!("{vm} has no data")))
        .collect();
    data.sort();
    data
}

/// The resurrector is somebody else's test.
const NO_RESURRECTOR: &str = "resurrector: {enabled: false}\n";

#[test]
fn cloud_check_finds_what_is_lost_and_every_repair_keeps_the_data() {
    cloud_check(NO_RESURRECTOR);
}

#[test]
fn cloud_check_and_metrics_on_postgresql() {
    let postgres = windlass_database::PrivatePostgres::start().unwrap();
    cloud_check(&format!("db: {}\n{NO_RESURRECTOR}", postgres.url()));
}

fn cloud_check(settings: &str) {
    let (site, vms) = three_instances(settings);
    let api = Api::of(&site);
    assert_eq!(api.scan("example"), json!([]), "nothing is wrong");
    assert_eq!((api.metric("windlass_vms"), api.metric("windlass_problems")), (3, 0));

    // A VM that is there and does not answer.
    kill_vm(&site, &vms[0]);
    let found = api.scan("example");
    assert_eq!((found.as_array().unwrap().len(), &found[0]["type"]), (1, &json!("unresponsive_agent")));
    assert_eq!(api.resolve("example", &found, None), "done", "by itself nothing is done to it");
    assert_eq!(site.in_cloud("vms"), vms);
    let found = api.scan("example");
    assert_eq!(api.resolve("example", &found, Some("reboot_vm")), "done");
    assert_eq!((site.in_cloud("vms"), api.scan("example")), (vms.clone(), json!([])));
    kill_vm(&site, &vms[0]);
    assert_eq!(api.resolve("example", &api.scan("example"), Some("recreate_vm")), "done");
    assert!(!site.in_cloud("vms").contains(&vms[0]));
    assert_eq!((data(&site), api.scan("example")), (vms.clone(), json!([])));

    // A VM that is gone.
    behind_the_directors_back(&site, "delete_vm", json!([vms[1]]));
    let found = api.scan("example");
    assert_eq!(found[0]["type"], "missing_vm");
    assert_eq!(api.resolve("example", &found, None), "done");
    assert_eq!((data(&site), api.scan("example")), (vms.clone(), json!([])));

    // A disk that the cloud took away under a running VM.
    let disk = site.rows(&["disks"]).into_iter().find(|disk| disk["vm_cid"] == vms[2].as_str()).unwrap();
    let disk = disk["disk_cid"].as_str().unwrap();
    behind_the_directors_back(&site, "detach_disk", json!([vms[2], disk]));
    let found = api.scan("example");
    assert_eq!(found[0]["type"], "mount_info_mismatch");
    assert_eq!(api.resolve("example", &found, Some("reattach_disk")), "done");
    assert_eq!((data(&site), api.scan("example")), (vms.clone(), json!([])));
    assert!(site.rows(&["leaks"]).is_empty());
}

#[test]
fn what_is_forgotten_on_purpose_is_forgotten_and_listed_where_it_may_be_left() {
    let (site, vms) = three_instances(NO_RESURRECTOR);
    let api = Api::of(&site);
    kill_vm(&site, &vms[0]);
    assert_eq!(api.resolve("example", &api.scan("example"), Some("delete_vm_reference")), "done");
    let leaks = site.rows(&["leaks"]);
    assert_eq!(leaks.len(), 2, "once as a doubt, once as what the cloud has: {leaks:?}");
    assert!(leaks[0]["subject"].as_str().unwrap().contains(&vms[0]), "{leaks:?}");
    let found = api.scan("example");
    assert!(found[0]["description"].as_str().unwrap().ends_with("missing."), "{found}");
    assert_eq!(api.resolve("example", &found, Some("ignore")), "done");

    // An agent that came back meanwhile is left alone.
    kill_vm(&site, &vms[1]);
    api.scan("example");
    behind_the_directors_back(&site, "reboot_vm", json!([vms[1]]));
    api.wait_for_agent("example", &vms[1]);
    let everything = api.get("/deployments/example/problems");
    assert_eq!(everything.as_array().unwrap().len(), 2);
    let choices = everything.as_array().unwrap().iter().map(|problem| {
        let choice = if problem["type"] == "missing_vm" { "ignore" } else { "recreate_vm" };
        (problem["id"].to_string(), json!(choice))
    });
    let choices: serde_json::Map<_, _> = choices.collect();
    let task = api.task("PUT", "/deployments/example/problems", json!({"resolutions": choices}));
    assert_eq!(task["state"], "error");
    assert!(task["result"].as_str().unwrap().contains("is responding now"), "{task}");
    assert!(site.in_cloud("vms").contains(&vms[1]));

    // A disk that the cloud lost. Whatever data it had is gone, but the instance is not stuck with it.
    let disk = site.rows(&["disks"]).into_iter().find(|disk| disk["vm_cid"] == vms[2].as_str()).unwrap();
    let cid = disk["disk_cid"].as_str().unwrap().to_owned();
    behind_the_directors_back(&site, "detach_disk", json!([vms[2], cid]));
    behind_the_directors_back(&site, "delete_disk", json!([cid]));
    let found = api.scan("example");
    let lost: Vec<_> = found.as_array().unwrap().iter().map(|problem| problem["type"].as_str().unwrap()).collect();
    assert!(lost.contains(&"missing_disk"), "{found}");
    assert_eq!(api.resolve("example", &found, Some("delete_disk_reference")), "done");
    let after = api.scan("example").to_string();
    assert!(!after.contains("missing_disk"), "{after}");
}

#[test]
fn only_open_problems_and_known_resolutions_are_accepted_and_strangers_none() {
    let (site, vms) = three_instances(NO_RESURRECTOR);
    let api = Api::of(&site);
    kill_vm(&site, &vms[0]);
    let found = api.scan("example");
    let id = found[0]["id"].to_string();
    let task = api.task("PUT", "/deployments/example/problems", json!({"resolutions": {&id: "set_on_fire"}}));
    assert!(task["result"].as_str().unwrap().contains("has no resolution 'set_on_fire'"), "{task}");
    let task = api.task("PUT", "/deployments/example/problems", json!({"resolutions": {}}));
    assert!(task["result"].as_str().unwrap().contains("is not provided"), "{task}");
    for body in [json!({"resolutions": {"x": null}}), json!({"resolutions": 1}), json!([])] {
        assert_eq!(api.status("PUT", "/deployments/example/problems", body), 400);
    }
    assert_eq!(api.status("POST", "/deployments/nope/scans", json!({})), 404);
    assert_eq!(site.in_cloud("vms"), vms);

    // The switch.
    assert_eq!(api.status("PUT", "/resurrection", json!({"resurrection_paused": true})), 200);
    assert_eq!(api.get("/resurrection"), json!({"resurrection": false}));
    assert_eq!(api.status("PUT", "/deployments/example/scan_and_fix", json!({"jobs": {}})), 400);
}

/// Quick, so that the test is.
fn quick_resurrector(meltdown: &str) -> String {
    format!("resurrector: {{interval: 1s, agent_timeout: 2s, meltdown: {meltdown}}}\n")
}

#[test]
fn a_vm_that_dies_comes_back_by_itself_with_its_data() {
    let (mut site, vms) = three_instances(&quick_resurrector("{instances: 2, percent: 60}"));
    kill_vm(&site, &vms[0]);
    site.wait_until("the resurrection", |site| {
        let now = site.in_cloud("vms");
        now.len() == 3 && !now.contains(&vms[0])
    });
    let api = Api::of(&site);
    site.wait_until("the end of the task", |_| api.newest_task()["state"] == "done");
    let task = api.newest_task();
    assert_eq!((&task["description"], &task["result"]), (&json!("scan and fix"), &json!("scan and fix complete")));
    assert_eq!(data(&site), vms);

    // Off means off.
    assert_eq!(api.status("PUT", "/resurrection", json!({"resurrection_paused": true})), 200);
    let second = site.in_cloud("vms")[0].clone();
    kill_vm(&site, &second);
    let metric = "windlass_instances{deployment=\"example\",health=\"unhealthy\"} 1";
    site.wait_until("that it was noticed", |_| api.text("/metrics").contains(metric));
    let noticed = api.metric("windlass_health_rounds_total");
    site.wait_until("four more rounds", |_| api.metric("windlass_health_rounds_total") >= noticed + 4);
    assert!(site.in_cloud("vms").contains(&second), "{}", site.director_log());
    assert_eq!(api.newest_task(), task);
}

/// When everything dies at once, something else is wrong, and new VMs would not help.
#[test]
fn a_meltdown_stops_the_resurrector() {
    // One is enough here: they do not die in the same instant.
    let (mut site, vms) = three_instances(&quick_resurrector("{instances: 1, percent: 1}"));
    let api = Api::of(&site);
    let task = api.newest_task();
    for vm in &vms {
        kill_vm(&site, vm);
    }
    site.wait_until("the alert", |_| api.get("/events?object_type=alert").to_string().contains("cloud-check"));
    let seen = api.metric("windlass_health_rounds_total");
    site.wait_until("three more rounds", |_| api.metric("windlass_health_rounds_total") >= seen + 3);
    assert_eq!((site.in_cloud("vms"), api.newest_task()), (vms, task));
    assert!(site.director_log().contains("do not answer: this is no accident"));
}

/// Nobody has to remember to take snapshots, or to delete what nobody wants back.
#[test]
fn snapshots_are_taken_and_orphans_deleted_when_their_time_comes() {
    let settings = format!("{NO_RESURRECTOR}schedules: {{delete_orphan_disks_after: 3s, snapshot_every: 2s}}\n");
    let mut site = Site::ready_with_settings(&settings);
    site.deploy();
    let disk = site.in_cloud("disks")[0].clone();
    site.wait_until("a snapshot", |site| !site.in_cloud("snapshots").is_empty());
    assert_eq!(site.in_cloud("disks"), [disk], "a disk that belongs to an instance stays");
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    site.wait_until("the end of the orphan", |site| site.in_cloud("disks").is_empty());
    site.wait_until("the end of its snapshots", |site| site.in_cloud("snapshots").is_empty());
    site.wait_until("the end of their records", |site| site.rows(&["disks", "--orphaned"]).is_empty());
    assert!(site.rows(&["leaks"]).is_empty());
}
