//! Scripts that drain: who runs them, with which arguments, and who does not.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, message, with};

super::scenarios! {
    "drain_spec.rb": "runs the drain script on a job if drain script is present" =>
        "a changed property drains with `job_changed hash_changed`; one that brings a disk drains with `job_shutdown hash_unchanged`", a_change_drains;
    "drain_spec.rb": "sets BOSH_JOB_STATE and BOSH_JOB_NEXT_STATE env vars with changed values" =>
        "a drain sees the size of the disk now and then", a_drain_sees_both_states;
    "drain_spec.rb": "retries after the appropriate amount of time" =>
        "a script that says -1 is asked again after a second, with `job_check_status`", a_drain_is_asked_again;
    "drain_spec.rb": "runs drain script for recreate" => "one drain";
    "drain_spec.rb": "runs drain script for stop" => "one drain";
    "drain_spec.rb": "runs drain script for isolated stop" => "one drain";
    "drain_spec.rb": "runs drain script for restart" => "one drain";
    "drain_spec.rb": "runs drain script for isolated restart" => "one drain", who_stops_drains;
    "drain_spec.rb": "runs drain scripts for change state of the deployment" => "a drain on each instance";
    "drain_spec.rb": "runs drain scripts for change state of the job" => "a drain on each instance of the group, and on no other", many_drain;
    "drain_spec.rb": "does not run drain script for recreate" => "no drain and no pre-stop";
    "drain_spec.rb": "does not run drain script for stop" => "no drain and no pre-stop";
    "drain_spec.rb": "does not run drain script for isolated stop" => "no drain and no pre-stop";
    "drain_spec.rb": "does not run drain script for restart" => "no drain and no pre-stop";
    "drain_spec.rb": "does not run drain script for isolated restart" => "no drain and no pre-stop", who_stops_may_skip;
    "drain_spec.rb": "skips drain for specified instance_groups" =>
        "a deploy that recreates skips the groups that are named, and drains the other";
    "drain_spec.rb": "skips drain for all instance_groups" => "a deploy that recreates drains nobody";
    "drain_spec.rb": "does not run drain scripts for change state of the deployment" => "nobody drains", many_skip;
    "drain_spec.rb": "runs drain for jobs that have drain script" =>
        "of three jobs those two drain that have a script", only_who_has_a_script_drains;
    "pre_stop_spec.rb": "runs the pre-stop script on a job if pre-stop script is present" =>
        "pre-stop comes before drain", pre_stop_comes_first;
    "pre_stop_spec.rb": "passes BOSH_VM_NEXT_STATE when deleting the vm" =>
        "a hard stop says that the VM is deleted and the instance kept", a_hard_stop_tells;
    "pre_stop_spec.rb": "passes BOSH_INSTANCE_NEXT_STATE when deleting the instance" =>
        "a group that shrinks says that VM and instance are deleted", a_removed_instance_is_told;
    "pre_stop_spec.rb": "passes BOSH_DEPLOYMENT_NEXT_STATE when deleting the deployment" =>
        "a deletion says that all three are deleted", a_deleted_deployment_is_told;
    "pre_stop_spec.rb": "stop execution if pre-stop script failed" =>
        "a stop fails with the job's name, does not drain, and the instance runs on", pre_stop_fails;
    "pre_stop_spec.rb": "skips pre-stop if --skip-drain is present" => "a stop runs neither", pre_stop_is_skipped;
    "post_stop_spec.rb": "stop command should exit 0 after running all scripts" =>
        "the scripts of both jobs ran after the drain", post_stop_runs;
    "post_stop_spec.rb": "runs scripts for all jobs but stop command fails" =>
        "both ran, and the stop fails with the name of the one that failed", post_stop_fails;
}

/// What a script is told of what will be.
const NEXT: &str = "echo \"$BOSH_VM_NEXT_STATE $BOSH_INSTANCE_NEXT_STATE $BOSH_DEPLOYMENT_NEXT_STATE\" >> <%= p('log') %>.next\n\
    exit <%= p('pre_stop') %>";
const STATES: &str = "echo \"$BOSH_JOB_STATE $BOSH_JOB_NEXT_STATE\" >> <%= p('log') %>.states\n\
    if [ \"<%= p('dynamic') %> $1\" = 'true job_changed' ]; then echo -1; else echo 0; fi";

fn release() -> Release {
    let properties =
        "properties: {log: {}, value: {}, dynamic: {default: false}, pre_stop: {default: 0}, post_stop: {default: 0}}";
    Release::new("kit", "1")
        .job(
            Job::new("foobar", properties)
                .script("pre-stop", NEXT)
                .script("drain", STATES)
                .template("value", "<%= p('value', '') %>"),
        )
        .job(Job::new("second", properties).script("drain", "echo 0").script("post-stop", "exit <%= p('post_stop') %>"))
        .job(Job::new("third", properties).script("post-stop", "exit <%= p('post_stop') %>"))
}

fn job(scene: &Scene<'_>, name: &str, properties: Value) -> Value {
    json!({"name": name, "release": "kit", "properties": with(json!({"log": scene.log()}), properties)})
}

#[test]
fn what_draining_promises() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

fn foobar(scene: &Scene<'_>, instances: usize, properties: Value) -> Value {
    group("foobar", instances, json!([job(scene, "foobar", properties)]))
}

/// One instance, deployed, with nothing in its log.
fn one(scene: &Scene<'_>) {
    scene.deploy(json!([foobar(scene, 1, json!({}))]));
    assert_eq!(scene.logged(), [""; 0], "the first deploy stops nothing");
}

/// Drains since the last look.
fn drains(scene: &Scene<'_>) -> Vec<String> {
    scene.logged().into_iter().filter(|line| line.contains(" drain ")).collect()
}

fn a_change_drains(scene: &Scene<'_>) {
    one(scene);
    scene.deploy(json!([foobar(scene, 1, json!({"value": 1}))]));
    assert_eq!(drains(scene), ["foobar/0 foobar drain job_changed hash_changed"]);
    let with_disk = with(foobar(scene, 1, json!({"value": 1})), json!({"persistent_disk_type": "disk"}));
    scene.deploy(json!([with_disk]));
    assert_eq!(drains(scene), ["foobar/0 foobar drain job_shutdown hash_unchanged"]);
}

fn a_drain_sees_both_states(scene: &Scene<'_>) {
    let with_disk = |name: &str| with(foobar(scene, 1, json!({})), json!({"persistent_disk_type": name}));
    scene.deploy(json!([with_disk("disk")]));
    scene.changed("foobar/0", "state=restart");
    let states = || std::fs::read_to_string(format!("{}.states", scene.log())).unwrap_or_default();
    assert_eq!(states().trim(), r#"{"persistent_disk":64} {"persistent_disk":64}"#);
}

fn a_drain_is_asked_again(scene: &Scene<'_>) {
    scene.deploy(json!([foobar(scene, 1, json!({"dynamic": true}))]));
    let begun = std::time::Instant::now();
    scene.deploy(json!([foobar(scene, 1, json!({"dynamic": true, "value": 1}))]));
    assert!(begun.elapsed().as_millis() >= 1000);
    let expected =
        ["foobar/0 foobar drain job_changed hash_changed", "foobar/0 foobar drain job_check_status hash_unchanged"];
    assert_eq!(drains(scene), expected);
}

fn isolated(scene: &Scene<'_>, action: &str, query: &str) {
    let id = scene.instance("foobar/0")["id"].as_str().unwrap().to_owned();
    let path = format!("/deployments/{}/instance_groups/foobar/{id}/actions/{action}{query}", scene.name);
    let task = scene.client().task("POST", &path, "application/json", "");
    assert_eq!(task.state, "done", "{}", message(&task));
}

fn who_stops_drains(scene: &Scene<'_>) {
    one(scene);
    for state in ["restart", "recreate", "stopped"] {
        scene.changed("foobar/0", &format!("state={state}"));
        assert_eq!(drains(scene).len(), 1, "{state}");
    }
    scene.changed("foobar/0", "state=started");
    for action in ["restart", "stop"] {
        isolated(scene, action, "");
        assert_eq!(drains(scene).len(), 1, "{action}");
    }
}

fn who_stops_may_skip(scene: &Scene<'_>) {
    one(scene);
    for state in ["restart", "recreate", "stopped"] {
        scene.changed("foobar/0", &format!("state={state}&skip_drain=*"));
        assert_eq!(scene.logged(), [""; 0], "{state}");
    }
    scene.changed("foobar/0", "state=started");
    for action in ["restart", "stop"] {
        isolated(scene, action, "?skip_drain=true");
        assert_eq!(scene.logged(), [""; 0], "{action}");
    }
}

fn of_two_groups(scene: &Scene<'_>) -> Value {
    json!([foobar(scene, 2, json!({})), group("others", 1, json!([job(scene, "foobar", json!({}))]))])
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines.into_iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn many_drain(scene: &Scene<'_>) {
    scene.deploy(of_two_groups(scene));
    scene.changed("foobar", "state=restart");
    assert_eq!(sorted(drains(scene)), ["foobar/0", "foobar/1"]);
    scene.changed("*", "state=stopped");
    assert_eq!(sorted(drains(scene)), ["foobar/0", "foobar/1", "others/0"]);
}

fn three(scene: &Scene<'_>) -> Value {
    let of = |name: &str| group(name, 1, json!([job(scene, "foobar", json!({}))]));
    scene.manifest(json!([of("first"), of("second"), of("third")]))
}

fn many_skip(scene: &Scene<'_>) {
    let manifest = three(scene);
    scene.deploy_manifest(&manifest);
    let task = scene.try_deploy(&manifest, "?recreate=true&skip_drain=second,third");
    assert_eq!(task.state, "done", "{}", message(&task));
    assert_eq!(sorted(drains(scene)), ["first/0"]);
    let task = scene.try_deploy(&manifest, "?recreate=true&skip_drain=*");
    assert_eq!(task.state, "done", "{}", message(&task));
    scene.changed("*", "state=stopped&skip_drain=*");
    assert_eq!(scene.logged(), [""; 0]);
}

fn colocated(scene: &Scene<'_>, properties: Value) -> Value {
    let job = |name: &str| job(scene, name, properties.clone());
    json!([group("colocated", 1, json!([job("foobar"), job("second"), job("third")]))])
}

fn only_who_has_a_script_drains(scene: &Scene<'_>) {
    let manifest = scene.manifest(colocated(scene, json!({})));
    scene.deploy_manifest(&manifest);
    assert_eq!(scene.try_deploy(&manifest, "?recreate=true").state, "done");
    let mut drained = drains(scene);
    drained.sort();
    let expected = ["foobar", "second"].map(|job| format!("colocated/0 {job} drain job_shutdown hash_unchanged"));
    assert_eq!(drained, expected);
}

fn pre_stop_comes_first(scene: &Scene<'_>) {
    one(scene);
    scene.changed("foobar/0", "state=stopped");
    assert_eq!(scene.logged(), ["foobar/0 foobar pre-stop", "foobar/0 foobar drain job_shutdown hash_unchanged"]);
}

fn next(scene: &Scene<'_>) -> String {
    std::fs::read_to_string(format!("{}.next", scene.log())).unwrap_or_default().trim().to_owned()
}

fn a_hard_stop_tells(scene: &Scene<'_>) {
    one(scene);
    scene.changed("foobar/0", "state=detached");
    assert_eq!(next(scene), "delete keep keep");
}

fn a_removed_instance_is_told(scene: &Scene<'_>) {
    one(scene);
    scene.deploy(json!([foobar(scene, 0, json!({}))]));
    assert_eq!(next(scene), "delete delete keep");
}

fn a_deleted_deployment_is_told(scene: &Scene<'_>) {
    one(scene);
    scene.client().done("DELETE", &format!("/deployments/{}", scene.name), "");
    assert_eq!(next(scene), "delete delete delete");
}

fn pre_stop_fails(scene: &Scene<'_>) {
    scene.deploy(json!([foobar(scene, 1, json!({"pre_stop": 1}))]));
    let task = scene.change("foobar/0", "state=stopped");
    assert_eq!(task.state, "error");
    assert!(message(&task).contains("1 of 1 pre-stop scripts failed. Failed Jobs: foobar."), "{}", message(&task));
    assert_eq!(drains(scene), [""; 0]);
}

fn pre_stop_is_skipped(scene: &Scene<'_>) {
    scene.deploy(json!([foobar(scene, 1, json!({"pre_stop": 1}))]));
    scene.changed("foobar/0", "state=stopped&skip_drain=*");
    assert_eq!(scene.logged(), [""; 0]);
}

fn post_stops(lines: Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().skip_while(|line| !line.contains(" post-stop")).collect();
    lines.sort();
    lines
}

fn post_stop_runs(scene: &Scene<'_>) {
    scene.deploy(colocated(scene, json!({})));
    scene.changed("colocated/0", "state=stopped");
    assert_eq!(post_stops(scene.logged()), ["colocated/0 second post-stop", "colocated/0 third post-stop"]);
}

fn post_stop_fails(scene: &Scene<'_>) {
    let mut groups = colocated(scene, json!({}));
    groups[0]["jobs"][1]["properties"]["post_stop"] = json!(1);
    scene.deploy(groups);
    let task = scene.change("colocated/0", "state=stopped");
    assert_eq!(task.state, "error");
    assert!(
        message(&task).contains("1 of 2 post-stop scripts failed. Failed Jobs: second. Successful Jobs: third."),
        "{}",
        message(&task)
    );
    assert_eq!(post_stops(scene.logged()), ["colocated/0 second post-stop", "colocated/0 third post-stop"]);
}
