//! Instances are stopped, started, restarted and recreated, with and without convergence.

use serde_json::{Value, json};

use super::deploys::{full, job, most_at_once, release, running, updates, web};
use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, message, with};
use crate::api::client::Task;
use windlass_rigs::vm_root;

super::scenarios! {
    "cli_stop_spec.rb": "stops the indexed job" =>
        "one instance by index and one by id are stopped, the third runs; stopping again changes nothing", one_is_stopped;
    "cli_stop_spec.rb": "stops all instances of the job" =>
        "all of the group are stopped, and nobody else";
    "cli_stop_spec.rb": "deletes the VM(s)" =>
        "a hard stop of a group deletes its VMs and keeps the instances";
    "cli_stop_spec.rb": "stops all jobs in the deployment" =>
        "all are stopped", groups_are_stopped;
    "cli_stop_spec.rb": "is successful (regression: #108398600)" =>
        "a deploy after a hard stop leaves the instance without a VM and its disk alone; a start brings both back", a_deploy_after_a_hard_stop;
    "cli_start_spec.rb": "starts a job instance only" =>
        "of three that are stopped one is started", one_is_started;
    "cli_start_spec.rb": "starts vms for a given job / the whole deployment" =>
        "a group, then all", all_are_started;
    "cli_start_spec.rb": "respects --canaries" =>
        "with two canaries two instances are told as such", canaries_of_a_start;
    "cli_start_spec.rb": "respects --max-in-flight" =>
        "with one at a time each ends before the next begins", one_at_a_time;
    "cli_recreate_spec.rb": "recreates an instance only when using index with the original config" =>
        "one instance gets another VM with the same address and job, the others keep theirs";
    "cli_recreate_spec.rb": "recreates vms for a given instance group or the whole deployment with the original config (instance group)" =>
        "a group gets other VMs, the other group keeps its own";
    "cli_recreate_spec.rb": "recreates vms for a given instance group or the whole deployment with the original config (deployment)" =>
        "all get other VMs", they_are_recreated;
    "cli_recreate_spec.rb": "recreates an instance with initially resolved release version" =>
        "after a newer version was uploaded, a recreate keeps the one that `latest` meant at the deploy", the_version_stays;
    "cli_restart_isolated_spec.rb": "restarts the specified instance" =>
        "without convergence one instance restarts with what it has", an_isolated_restart;
    "cli_stop_isolated_spec.rb": "stops the indexed job" =>
        "without convergence one instance is stopped and started again", an_isolated_stop;
    "cli_stop_isolated_spec.rb": "maintains instance state across a deploy" =>
        "an instance that was stopped without convergence stays stopped in a deploy", a_stop_outlives_a_deploy;
    "cli_start_isolated_spec.rb": "creates the missing vm and starts the instance" =>
        "without convergence an instance without a VM gets one, with its job", an_isolated_start;
    "cli_start_isolated_spec.rb": "fails gracefully with a useful message" =>
        "an instance of an errand group is refused by each of the four actions, with words that say why", not_for_errands;
    "cli_recreate_isolated_spec.rb": "recreates the specified instance" =>
        "without convergence one instance gets another VM and its job", an_isolated_recreate;
}

#[test]
fn what_changes_of_states_promise() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

/// An operator who restarts an instance after a deploy that failed elsewhere does not want that deploy.
#[test]
fn after_a_failed_deploy_instances_that_it_did_not_reach_stay_what_they_were_without_convergence() {
    let stand = Stand::new();
    let kit = |version: &'static str| {
        let spec = "properties: {value: {}, log: {}, pre_start: {default: 0}}";
        let job = Job::new("web", spec).process().template("config", &format!("<%= p('value') %> of {version}"));
        Release::new("kit", version).job(job.script("pre-start", "exit <%= p('pre_start') %>"))
    };
    stand.upload(&kit("1"));
    let scene = Scene { stand: &stand, name: "d".to_owned() };
    let groups = |value: &str, pre_start: u8| {
        let job = job(json!({"value": value, "log": scene.log(), "pre_start": pre_start}));
        json!([with(group("web", 3, json!([job])), json!({"persistent_disk_type": "disk"}))])
    };
    scene.deploy(groups("old", 0));
    vm_root::write(&scene.vcap("web/1").join("store/precious"), "data");
    stand.upload(&kit("2"));
    assert!(scene.refused(groups("new", 1)).contains("Failed Jobs: web."), "the canary fails");
    let configs = || ["web/0", "web/1", "web/2"].map(|name| scene.read(name, "jobs/web/config"));
    assert_eq!(configs(), ["new of 2", "old of 1", "old of 1"]);

    // The old version is in use, so nobody takes it away.
    let answer = scene.client().send("DELETE", "/releases/kit?version=1", "", "");
    let said = message(&scene.client().finish(answer.headers["location"].to_str().unwrap()));
    assert!(said.contains("still in use by: d"), "{said}");
    let on = |name: &str, action: &str| {
        let id = scene.instance(name)["id"].as_str().unwrap().to_owned();
        let path = format!("/deployments/d/instance_groups/web/{id}/actions/{action}");
        scene.client().task("POST", &path, "application/json", "")
    };
    for action in ["restart", "stop", "start", "recreate"] {
        let task = on("web/1", action);
        assert_eq!(task.state, "done", "{action}: {}", message(&task));
        assert_eq!(configs(), ["new of 2", "old of 1", "old of 1"], "{action}");
        assert_eq!(scene.read("web/1", "store/precious"), "data", "{action}");
    }
    // The one that the deploy reached has what it brought, and fails as it did.
    assert!(message(&on("web/0", "restart")).contains("Failed Jobs: web."));

    // What is restarted is not done: the next deploy brings all to the new version, and the old one can go.
    let task = scene.deploy(groups("new", 0));
    assert_eq!(updates(&task).iter().filter(|(state, _)| state == "finished").count(), 3);
    assert_eq!(configs(), ["new of 2", "new of 2", "new of 2"]);
    assert_eq!(scene.read("web/1", "store/precious"), "data");
    assert_eq!(on("web/1", "restart").state, "done");
    assert_eq!(configs()[1], "new of 2");
    assert_eq!(scene.client().task("DELETE", "/releases/kit?version=1", "", "").state, "done");
    let task = scene.deploy(groups("new", 0));
    assert_eq!(updates(&task), [], "nothing is left to do");
}

/// Names of instances by what their agents say.
fn in_state(scene: &Scene<'_>, state: &str) -> Vec<String> {
    let rows = full(scene);
    let chosen = rows.iter().filter(|row| row["job_state"] == state);
    chosen.map(|row| format!("{}/{}", row["job_name"].as_str().unwrap(), row["index"])).collect()
}

fn two_groups(scene: &Scene<'_>) {
    scene.deploy(json!([web(2), with(web(1), json!({"name": "zz"}))]));
}

fn one_is_stopped(scene: &Scene<'_>) {
    scene.deploy(json!([web(3)]));
    scene.changed("web/0", "state=stopped");
    let id = scene.instance("web/1")["id"].as_str().unwrap().to_owned();
    scene.changed(&format!("web/{id}"), "state=stopped");
    assert_eq!(in_state(scene, "stopped"), ["web/0", "web/1"]);
    let task = scene.changed("web/0", "state=stopped");
    assert_eq!(updates(&task), []);
}

fn groups_are_stopped(scene: &Scene<'_>) {
    two_groups(scene);
    scene.changed("web", "state=stopped");
    assert_eq!(in_state(scene, "stopped"), ["web/0", "web/1"]);
    assert_eq!(in_state(scene, "running"), ["zz/0"]);
    scene.changed("*", "state=stopped");
    assert_eq!(in_state(scene, "stopped"), ["web/0", "web/1", "zz/0"]);
    scene.changed("web", "state=detached");
    assert_eq!((scene.vms(), scene.instances().len()), (1, 3));
}

fn a_deploy_after_a_hard_stop(scene: &Scene<'_>) {
    let groups = json!([with(web(1), json!({"persistent_disk_type": "disk"}))]);
    scene.deploy(groups.clone());
    let disk = full(scene)[0]["disk_cids"].clone();
    assert_eq!(disk.as_array().map(Vec::len), Some(1));
    vm_root::write(&scene.vcap("web/0").join("store/precious"), "data");
    scene.changed("web/0", "state=detached");
    scene.deploy(groups);
    assert_eq!((scene.vms(), &full(scene)[0]["disk_cids"]), (0, &disk));
    scene.changed("web/0", "state=started");
    assert_eq!(scene.read("web/0", "store/precious"), "data");
}

fn one_is_started(scene: &Scene<'_>) {
    scene.deploy(json!([web(3)]));
    scene.changed("*", "state=stopped");
    scene.changed("web/1", "state=started");
    assert_eq!(in_state(scene, "running"), ["web/1"]);
}

fn all_are_started(scene: &Scene<'_>) {
    two_groups(scene);
    scene.changed("*", "state=stopped");
    scene.changed("web", "state=started");
    assert_eq!(in_state(scene, "running"), ["web/0", "web/1"]);
    scene.changed("*", "state=started");
    assert_eq!(in_state(scene, "running"), ["web/0", "web/1", "zz/0"]);
}

fn canaries_of_a_start(scene: &Scene<'_>) {
    scene.deploy(json!([web(4)]));
    scene.changed("*", "state=stopped");
    let told = updates(&scene.changed("*", "state=started&canaries=2"));
    let canaries = told.iter().filter(|(state, task)| state == "finished" && task.contains("(canary)")).count();
    assert_eq!(canaries, 2, "{told:?}");
}

fn one_at_a_time(scene: &Scene<'_>) {
    scene.deploy(json!([web(3)]));
    scene.changed("*", "state=stopped");
    let told = updates(&scene.changed("*", "state=started&canaries=0&max_in_flight=1"));
    assert_eq!((most_at_once(&told), told.len()), (1, 6), "{told:?}");
}

/// VMs and addresses by instance.
fn vms(scene: &Scene<'_>) -> Vec<(Value, Value)> {
    scene.instances().iter().map(|instance| (instance["cid"].clone(), instance["ips"].clone())).collect()
}

/// Which instances have another VM than before, and the address that they had.
fn replaced(scene: &Scene<'_>, before: &[(Value, Value)]) -> Vec<bool> {
    let now = vms(scene);
    assert!(before.iter().zip(&now).all(|(before, now)| before.1 == now.1), "{before:?} {now:?}");
    assert_eq!(running(scene).len(), now.len());
    before.iter().zip(&now).map(|(before, now)| before.0 != now.0).collect()
}

fn they_are_recreated(scene: &Scene<'_>) {
    two_groups(scene);
    for (jobs, expected) in [("web/1", [false, true, false]), ("web", [true, true, false]), ("*", [true, true, true])] {
        let before = vms(scene);
        scene.changed(jobs, "state=recreate");
        assert_eq!(replaced(scene, &before), expected, "{jobs}");
    }
}

fn isolated(scene: &Scene<'_>, action: &str) -> Task {
    let id = scene.instance("web/0")["id"].as_str().unwrap().to_owned();
    let path = format!("/deployments/{}/instance_groups/web/{id}/actions/{action}", scene.name);
    let task = scene.client().task("POST", &path, "application/json", "");
    assert_eq!(task.state, "done", "{}", message(&task));
    task
}

fn an_isolated_restart(scene: &Scene<'_>) {
    let properties = |value: &str| json!([group("web", 2, json!([job(json!({"value": value, "log": scene.log()}))]))]);
    scene.deploy(properties("old"));
    scene.logged();
    isolated(scene, "restart");
    assert_eq!(scene.logged(), ["web/0 web pre-start"]);
    assert_eq!(scene.read("web/0", "jobs/web/config"), "old");
}

fn an_isolated_stop(scene: &Scene<'_>) {
    scene.deploy(json!([web(2)]));
    isolated(scene, "stop");
    assert_eq!(in_state(scene, "stopped"), ["web/0"]);
    isolated(scene, "start");
    assert_eq!(in_state(scene, "running"), ["web/0", "web/1"]);
}

fn an_isolated_recreate(scene: &Scene<'_>) {
    scene.deploy(json!([web(2)]));
    let before = vms(scene);
    isolated(scene, "recreate");
    assert_eq!(replaced(scene, &before), [true, false]);
}

fn an_isolated_start(scene: &Scene<'_>) {
    scene.deploy(json!([web(2)]));
    scene.changed("web/0", "state=detached");
    assert_eq!(scene.vms(), 1);
    isolated(scene, "start");
    assert_eq!((in_state(scene, "running").len(), running(scene).len()), (2, 2));
}

fn a_stop_outlives_a_deploy(scene: &Scene<'_>) {
    scene.deploy(json!([web(2)]));
    isolated(scene, "stop");
    scene.deploy(json!([group("web", 2, json!([job(json!({"value": "new"}))]))]));
    assert_eq!(in_state(scene, "stopped"), ["web/0"]);
    assert_eq!(scene.read("web/1", "jobs/web/config"), "new");
}

fn not_for_errands(scene: &Scene<'_>) {
    scene.deploy(json!([with(web(1), json!({"lifecycle": "errand"}))]));
    let id = scene.instance("web/0")["id"].as_str().unwrap().to_owned();
    for action in ["start", "stop", "restart", "recreate"] {
        let path = format!("/deployments/{}/instance_groups/web/{id}/actions/{action}", scene.name);
        let answer = scene.client().send("POST", &path, "application/json", "");
        let said = match answer.headers.get("location") {
            Some(task) => message(&scene.client().finish(task.to_str().unwrap())),
            None => answer.text(),
        };
        let expected =
            format!("Isolated {action} can not be run on instances of type errand. Try the bosh run-errand command.");
        assert!(said.contains(&expected), "{action}: {said}");
    }
}

fn the_version_stays(scene: &Scene<'_>) {
    let moving = |version: &'static str| {
        Release::new("moving", version).job(Job::new("web", "").template("config", "<%= spec.release.version %>"))
    };
    scene.stand.upload(&moving("1"));
    let groups = json!([group("web", 1, json!([{"name": "web", "release": "moving"}]))]);
    scene.deploy_manifest(&scene.manifest_of(&scene.name, &["moving"], groups));
    scene.stand.upload(&moving("2"));
    scene.changed("web/0", "state=recreate");
    assert_eq!(scene.read("web/0", "jobs/web/config"), "1");
}
