//! Deploys with jobs, and changes of states.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, with};
use crate::api::client::Task;
use windlass_rigs::vm_root;

super::scenarios! {
    "deploy/basic_spec.rb": "allows removing deployed jobs and adding new jobs at the same time" =>
        "a group that is renamed without migration is removed and made again, there and back", groups_come_and_go;
    "deploy/basic_spec.rb": "supports scaling down and then scaling up" =>
        "3, 2 and 4 instances, each with its job", scaling;
    "deploy/basic_spec.rb": "outputs properly formatted deploy information" =>
        "the stages come in BOSH's order, and a lone instance is a canary", stages;
    "deploy/basic_spec.rb": "saves instance name, deployment name, az, and id to the file system on the instance" =>
        "four files in `instance/`", files_of_an_instance;
    "deploy/basic_spec.rb": "deployment fails when starting task fails" =>
        "a job that cannot start fails the deploy, and the next one begins with it", a_start_fails;
    "deploy_job_update_spec.rb": "updates a job with multiple instances in parallel and obeys max_in_flight" =>
        "two begin before the first ends, and never three", max_in_flight;
    "deploy_job_update_spec.rb": "updates a job taking into account max_in_flight and canaries as percents" =>
        "40% of 3 is one canary, 70% are two at a time", percents;
    "deploy_job_update_spec.rb": "stops deployment when a job update fails" =>
        "the canary fails, and no other instance is begun", a_canary_fails;
    "deploy_job_update_spec.rb": "accurately reports deployment configuration changes, cloud configuration changes and runtime config changes" =>
        "the diff has the changes of manifest and runtime config, and none after the deploy", a_diff;
    "deploy_scale_instances_change_lifecycle_spec.rb": "does not try to delete previously deleted instances" =>
        "a group that shrank, became an errand and a service again deploys each time", life_cycles;
    "global_networking/migrated_from_spec.rb": "succeeds" =>
        "a renamed group keeps ids, disks and what is on them, and has its job", a_renamed_group;
    "global_networking/migrated_from_spec.rb": "preserves existing job instances and migrated job instances keeping disks" =>
        "a group that takes in another has the instances of both, with their disks, and one bootstrap instance", two_groups_become_one;
    "ignore_instance/deploying_spec.rb": "leaves ignored instances alone when count of the instance groups is larger than 1" =>
        "an ignored instance keeps the old file while the other gets the new one", an_ignored_instance;
    "cli_instances_spec.rb": "displays instances in a deployment" =>
        "instances with their processes, zone, address and state", processes;
    "deploy/large_manifest_spec.rb": "deploys successfully" =>
        "a manifest of more than 64 KiB deploys", a_large_manifest;
}

pub(super) fn release() -> Release {
    let spec = "properties: {value: {default: usual}, log: {default: /dev/null}, pre_start: {default: 0}}";
    Release::new("kit", "1")
        .job(
            Job::new("web", spec)
                .process()
                .template("config", "<%= p('value') %>")
                .script("pre-start", "exit <%= p('pre_start') %>"),
        )
        .job(Job::new("extra", "").process())
}

pub(super) fn job(properties: Value) -> Value {
    json!({"name": "web", "release": "kit", "properties": properties})
}

pub(super) fn web(instances: usize) -> Value {
    group("web", instances, json!([job(json!({}))]))
}

#[test]
fn what_deploys_promise() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

/// Names of the instances with a VM on which the job is.
pub(super) fn running(scene: &Scene<'_>) -> Vec<String> {
    let instances = scene.instances();
    let with_vm = instances.iter().filter(|instance| instance["cid"].is_string());
    let names = with_vm.map(|instance| format!("{}/{}", instance["job"].as_str().unwrap(), instance["index"]));
    names.filter(|name| scene.has_job(name, "web")).collect()
}

fn groups_come_and_go(scene: &Scene<'_>) {
    for name in ["name1", "name2", "name1"] {
        scene.deploy(json!([with(web(2), json!({"name": name}))]));
        assert_eq!(running(scene), [format!("{name}/0"), format!("{name}/1")]);
    }
}

fn scaling(scene: &Scene<'_>) {
    for count in [3, 2, 4] {
        scene.deploy(json!([web(count)]));
        assert_eq!(running(scene), (0..count).map(|index| format!("web/{index}")).collect::<Vec<_>>());
    }
}

fn stages(scene: &Scene<'_>) {
    let task = scene.deploy(json!([web(1)]));
    let mut told: Vec<String> = Vec::new();
    for event in &task.events {
        let Some(stage) = event["stage"].as_str() else { continue };
        if told.last().map(String::as_str) != Some(stage) {
            told.push(stage.to_owned());
        }
    }
    assert_eq!(
        told,
        [
            "Preparing deployment",
            "Preparing deployment",
            "Preparing package compilation",
            "Creating missing vms",
            "Updating instance"
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
        .fold(Vec::new(), |mut stages: Vec<String>, stage| {
            if stages.last() != Some(&stage) {
                stages.push(stage);
            }
            stages
        })
    );
    let id = scene.instance("web/0")["id"].as_str().unwrap().to_owned();
    let last = task.events.last().unwrap();
    assert_eq!(last["task"], format!("web/{id} (0) (canary)"), "{last}");
}

fn files_of_an_instance(scene: &Scene<'_>) {
    scene.deploy(json!([with(web(1), json!({"azs": ["z2"]}))]));
    let read = |name: &str| scene.read("web/0", &format!("instance/{name}"));
    assert_eq!((read("name"), read("deployment"), read("az")), ("web".into(), scene.name.clone(), "z2".into()));
    assert_eq!(read("id"), scene.instance("web/0")["id"].as_str().unwrap());
}

fn a_start_fails(scene: &Scene<'_>) {
    scene.deploy(json!([web(1)]));
    let said = scene.refused(json!([group("web", 1, json!([job(json!({"pre_start": 1}))]))]));
    assert!(said.contains("Failed Jobs: web."), "{said}");
    let task = scene.deploy(json!([web(1)]));
    assert_eq!(ends(&task), 1);
}

/// Beginnings and ends of updates, in their order.
pub(super) fn updates(task: &Task) -> Vec<(String, String)> {
    let told =
        task.events.iter().filter(|event| event["stage"] == "Updating instance" && event["state"] != "in_progress");
    told.map(|event| (event["state"].as_str().unwrap().to_owned(), event["task"].as_str().unwrap().to_owned()))
        .collect()
}

fn ends(task: &Task) -> usize {
    updates(task).iter().filter(|(state, _)| state == "finished").count()
}

/// The most that were begun and not ended.
pub(super) fn most_at_once(updates: &[(String, String)]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for (state, _) in updates {
        now = if state == "started" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    most
}

fn max_in_flight(scene: &Scene<'_>) {
    let mut manifest = scene.manifest(json!([web(4)]));
    manifest["update"]["canaries"] = json!(0);
    manifest["update"]["max_in_flight"] = json!(2);
    let task = scene.deploy_manifest(&manifest);
    assert_eq!((most_at_once(&updates(&task)), ends(&task)), (2, 4), "{:?}", updates(&task));
}

fn percents(scene: &Scene<'_>) {
    let mut manifest = scene.manifest(json!([web(3)]));
    manifest["update"]["canaries"] = json!("40%");
    manifest["update"]["max_in_flight"] = json!("70%");
    let told = updates(&scene.deploy_manifest(&manifest));
    let canaries: Vec<bool> = told.iter().map(|(_, task)| task.contains("(canary)")).collect();
    assert_eq!(canaries, [true, true, false, false, false, false], "{told:?}");
    assert_eq!(most_at_once(&told), 2);
}

fn a_canary_fails(scene: &Scene<'_>) {
    scene.deploy(json!([web(3)]));
    let task = scene.try_deploy(&scene.manifest(json!([group("web", 3, json!([job(json!({"pre_start": 1}))]))])), "");
    assert_eq!(task.state, "error");
    let told = updates(&task);
    assert_eq!(told.iter().map(|(state, _)| state.as_str()).collect::<Vec<_>>(), ["started", "failed"]);
    assert!(told[1].1.ends_with("(0) (canary)"), "{told:?}");
}

fn diff(scene: &Scene<'_>, manifest: &Value) -> String {
    let answer =
        scene.client().send("POST", &format!("/deployments/{}/diff", scene.name), "text/yaml", manifest.to_string());
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    answer.json()["diff"].to_string()
}

fn a_diff(scene: &Scene<'_>) {
    let mut manifest = scene.manifest(json!([web(1)]));
    manifest["releases"][0]["version"] = json!("1");
    scene.deploy_manifest(&manifest);
    assert_eq!(diff(scene, &manifest), "[]");
    let addon = json!({"name": "more", "jobs": [{"name": "extra", "release": "kit"}], "include": {"deployments": [scene.name]}});
    scene.stand.configure_runtime("more", &json!({"releases": [{"name": "kit", "version": "1"}], "addons": [addon]}));
    manifest["instance_groups"][0]["instances"] = json!(2);
    let changes = diff(scene, &manifest);
    assert!(changes.contains("instances: 2") && changes.contains("addons:") && changes.contains("extra"), "{changes}");
    scene.deploy_manifest(&manifest);
    let none = diff(scene, &manifest);
    scene.stand.forget_runtime_config("more");
    assert_eq!(none, "[]");
    assert!(scene.has_job("web/1", "extra"));
}

fn life_cycles(scene: &Scene<'_>) {
    scene.deploy(json!([web(3)]));
    scene.deploy(json!([web(2)]));
    scene.deploy(json!([with(web(1), json!({"lifecycle": "errand"}))]));
    scene.deploy(json!([with(web(2), json!({"lifecycle": "service"}))]));
    assert_eq!(running(scene), ["web/0", "web/1"]);
}

/// Ids and disks of the instances of a group.
fn kept(scene: &Scene<'_>, group: &str) -> Vec<(Value, Value)> {
    let rows = full(scene);
    let ours = rows.iter().filter(|row| row["job_name"] == group);
    let mut kept: Vec<_> = ours.map(|row| (row["id"].clone(), row["disk_cids"].clone())).collect();
    assert!(kept.iter().all(|(_, disks)| disks.as_array().is_some_and(|disks| disks.len() == 1)), "{kept:?}");
    kept.sort_by_key(|(id, _)| id.to_string());
    kept
}

fn a_renamed_group(scene: &Scene<'_>) {
    let disk = json!({"persistent_disk_type": "disk"});
    scene.deploy(json!([with(web(2), disk.clone())]));
    let before = kept(scene, "web");
    for index in 0..2 {
        vm_root::write(&scene.vcap(&format!("web/{index}")).join("store/precious"), index.to_string());
    }
    let renamed = with(with(web(2), disk), json!({"name": "www", "migrated_from": [{"name": "web"}]}));
    scene.deploy(json!([renamed]));
    assert_eq!(kept(scene, "www"), before);
    for index in 0..2 {
        assert_eq!(scene.read(&format!("www/{index}"), "store/precious"), index.to_string());
    }
    assert_eq!(running(scene), ["www/0", "www/1"]);
}

fn two_groups_become_one(scene: &Scene<'_>) {
    let named = |name: &str, count: usize| with(web(count), json!({"name": name, "persistent_disk_type": "disk"}));
    scene.deploy(json!([named("one", 1), named("two", 1)]));
    let mut before = [kept(scene, "one"), kept(scene, "two")].concat();
    before.sort_by_key(|(id, _)| id.to_string());
    scene.deploy(json!([with(named("one", 2), json!({"migrated_from": [{"name": "two"}]}))]));
    assert_eq!(kept(scene, "one"), before);
    assert_eq!(running(scene), ["one/0", "one/1"]);
    assert_eq!(full(scene).iter().filter(|row| row["bootstrap"] == true).count(), 1);
}

fn an_ignored_instance(scene: &Scene<'_>) {
    scene.deploy(json!([web(2)]));
    let ignored = scene.instance("web/1")["id"].as_str().unwrap().to_owned();
    let path = format!("/deployments/{}/instance_groups/web/{ignored}/ignore", scene.name);
    let ignore = |yes: bool| {
        let answer = scene.client().send("PUT", &path, "application/json", json!({"ignore": yes}).to_string());
        assert!(answer.status.is_success(), "{}", answer.text());
    };
    ignore(true);
    scene.deploy(json!([group("web", 2, json!([job(json!({"value": "new"}))]))]));
    let seen = || (scene.read("web/0", "jobs/web/config"), scene.read("web/1", "jobs/web/config"));
    assert_eq!(seen(), ("new".into(), "usual".into()));
    ignore(false);
    scene.deploy(json!([group("web", 2, json!([job(json!({"value": "new"}))]))]));
    assert_eq!(seen(), ("new".into(), "new".into()));
}

/// What the agents say of each instance.
pub(super) fn full(scene: &Scene<'_>) -> Vec<Value> {
    let task = scene.client().task("GET", &format!("/deployments/{}/instances?format=full", scene.name), "", "");
    let mut rows: Vec<Value> = task.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.sort_by_key(|row| (row["job_name"].to_string(), row["index"].as_i64()));
    rows
}

fn processes(scene: &Scene<'_>) {
    let jobs = json!([job(json!({})), {"name": "extra", "release": "kit"}]);
    scene.deploy(json!([group("web", 1, jobs)]));
    let row = full(scene)[0].clone();
    let mut names: Vec<(String, String)> = row["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| (process["name"].as_str().unwrap().to_owned(), process["state"].as_str().unwrap().to_owned()))
        .collect();
    names.sort();
    assert_eq!(names, [("extra".into(), "running".into()), ("web".into(), "running".into())]);
    assert_eq!(
        (&row["job_state"], &row["az"], &row["ips"][0]),
        (&json!("running"), &json!("z1"), &json!(scene.address("web/0")))
    );
}

fn a_large_manifest(scene: &Scene<'_>) {
    let value = "a".repeat(70_000);
    scene.deploy(json!([group("web", 1, json!([job(json!({"value": value}))]))]));
    assert_eq!(scene.read("web/0", "jobs/web/config"), value);
}
