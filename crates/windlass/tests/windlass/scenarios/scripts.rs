//! Scripts of a start and of a deploy: when they run, where their output goes, and what their failure means.

use serde_json::{Value, json};

use super::release::{Job, Release};
use super::stand::{Scene, Stand, group, message, with};

super::scenarios! {
    "deploy/pre_start_spec.rb": "runs the pre-start scripts, and redirects stdout/stderr to pre-start.stdout.log/pre-start.stderr.log for each job" =>
        "both jobs' scripts ran, each with its output in its own two files", pre_start_runs;
    "deploy/pre_start_spec.rb": "should append the logs to the previous pre-start logs" =>
        "a second run adds to the first one's file", logs_are_appended;
    "deploy/pre_start_spec.rb": "error out if run_script errors, and redirects stdout/stderr to pre-start.stdout.log/pre-start.stderr.log for each job" =>
        "the deploy fails with the names of the jobs that failed and of those that did not, and the output is kept", pre_start_fails;
    "run_post_start_script_spec.rb": "successful runs post start script" =>
        "it ran once, after pre-start, with its output in two files", post_start_runs;
    "run_post_start_script_spec.rb": "runs post-start script on subsequent deploys only when previous post-start scripts have failed" =>
        "a deploy that fails runs it again the next time, and one that succeeded does not", post_start_is_repeated;
    "deploy/post_deploy_spec.rb": "runs the post-deploy scripts" =>
        "both jobs' scripts ran after all instances were updated", post_deploy_runs;
    "deploy/post_deploy_spec.rb": "does not run post-deploy scripts on stopped vms" =>
        "after one group was stopped only the other's script ran again", post_deploy_leaves_out_who_is_stopped;
    "deploy/post_deploy_spec.rb": "exits with error if post-deploy errors, and redirects stdout/stderr to post-deploy.stdout.log/post-deploy.stderr.log" =>
        "the deploy fails with the names of the jobs that failed and of those that did not", post_deploy_fails;
    "deploy/post_deploy_spec.rb": "should not run the post deploy script if no changes have been made in deployment" =>
        "a deploy that changes nothing runs no script", nothing_runs_without_a_change;
    "deploy/post_deploy_spec.rb": "should not run post deploy script on jobs with no vm_cid" =>
        "a group with the life cycle errand runs none", an_errand_runs_none;
    "cli_restart_spec.rb": "restarts a job instance / job / all jobs" =>
        "an instance, a group and all: each of those restarts once and nobody else", restarts_are_of_those_named;
}

fn release() -> Release {
    let properties = "properties: {log: {}, value: {default: ''}, pre_start: {default: 0}, post_start: {default: 0}, post_deploy: {default: 0}}";
    let says = |script: &str, property: &str| {
        format!(
            "echo \"{script} says <%= p('value') %>\"\necho \"{script} complains\" >&2\nexit <%= p('{property}') %>"
        )
    };
    let job = |name: &'static str| {
        Job::new(name, properties)
            .script("pre-start", &says("pre-start", "pre_start"))
            .script("post-start", &says("post-start", "post_start"))
            .script("post-deploy", &says("post-deploy", "post_deploy"))
    };
    Release::new("kit", "1").job(job("one")).job(job("two"))
}

fn job(scene: &Scene<'_>, name: &str, properties: Value) -> Value {
    json!({"name": name, "release": "kit", "properties": with(json!({"log": scene.log()}), properties)})
}

#[test]
fn what_scripts_of_jobs_promise() {
    let stand = Stand::new();
    stand.upload(&release());
    stand.play(SCENARIOS);
}

fn both(scene: &Scene<'_>, name: &str, properties: Value) -> Value {
    group(name, 1, json!([job(scene, "one", json!({})), job(scene, "two", properties)]))
}

/// Lines of one script since the last look.
fn runs(scene: &Scene<'_>, script: &str) -> Vec<String> {
    let mut lines = scene.logged();
    lines.retain(|line| line.ends_with(&format!(" {script}")));
    lines.sort();
    lines
}

fn output(scene: &Scene<'_>, job: &str, file: &str) -> String {
    scene.read("group/0", &format!("sys/log/{job}/{file}.log"))
}

fn pre_start_runs(scene: &Scene<'_>) {
    scene.deploy(json!([both(scene, "group", json!({"value": "hello"}))]));
    assert_eq!(runs(scene, "pre-start"), ["group/0 one pre-start", "group/0 two pre-start"]);
    assert_eq!(output(scene, "two", "pre-start.stdout"), "pre-start says hello\n");
    assert_eq!(output(scene, "two", "pre-start.stderr"), "pre-start complains\n");
    assert_eq!(output(scene, "one", "pre-start.stdout"), "pre-start says \n");
}

fn logs_are_appended(scene: &Scene<'_>) {
    for value in ["first", "second"] {
        scene.deploy(json!([both(scene, "group", json!({"value": value}))]));
    }
    assert_eq!(output(scene, "two", "pre-start.stdout"), "pre-start says first\npre-start says second\n");
}

fn pre_start_fails(scene: &Scene<'_>) {
    let said = scene.refused(json!([both(scene, "group", json!({"pre_start": 1}))]));
    assert!(said.contains("1 of 2 pre-start scripts failed. Failed Jobs: two. Successful Jobs: one."), "{said}");
    assert_eq!(output(scene, "one", "pre-start.stdout"), "pre-start says \n");
    assert_eq!(output(scene, "two", "pre-start.stderr"), "pre-start complains\n");
    assert_eq!(runs(scene, "post-start"), [""; 0]);
}

fn post_start_runs(scene: &Scene<'_>) {
    scene.deploy(json!([group("group", 1, json!([job(scene, "one", json!({}))]))]));
    let lines = scene.logged();
    assert_eq!(lines, ["group/0 one pre-start", "group/0 one post-start", "group/0 one post-deploy"]);
    assert_eq!(output(scene, "one", "post-start.stdout"), "post-start says \n");
    assert_eq!(output(scene, "one", "post-start.stderr"), "post-start complains\n");
}

fn post_start_is_repeated(scene: &Scene<'_>) {
    let failing = json!([both(scene, "group", json!({"post_start": 1}))]);
    for _ in 0..2 {
        let said = scene.refused(failing.clone());
        assert!(said.contains("1 of 2 post-start scripts failed. Failed Jobs: two. Successful Jobs: one."), "{said}");
        assert_eq!(runs(scene, "post-start").len(), 2);
    }
    let good = json!([both(scene, "group", json!({"post_start": 0}))]);
    scene.deploy(good.clone());
    assert_eq!(runs(scene, "post-start").len(), 2);
    scene.deploy(good);
    assert_eq!(runs(scene, "post-start"), [""; 0]);
}

fn post_deploy_runs(scene: &Scene<'_>) {
    scene.deploy(json!([both(scene, "first", json!({})), both(scene, "second", json!({}))]));
    let lines = scene.logged();
    let last_start = lines.iter().rposition(|line| line.ends_with("post-start")).unwrap();
    let first_deploy = lines.iter().position(|line| line.ends_with("post-deploy")).unwrap();
    assert!(last_start < first_deploy, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.ends_with("post-deploy")).count(), 4, "{lines:?}");
}

fn post_deploy_leaves_out_who_is_stopped(scene: &Scene<'_>) {
    scene.deploy(json!([both(scene, "first", json!({})), both(scene, "second", json!({}))]));
    scene.logged();
    scene.changed("second/0", "state=stopped");
    assert_eq!(runs(scene, "post-deploy"), ["first/0 one post-deploy", "first/0 two post-deploy"]);
}

fn post_deploy_fails(scene: &Scene<'_>) {
    let said = scene.refused(json!([both(scene, "group", json!({"post_deploy": 3}))]));
    assert!(said.contains("1 of 2 post-deploy scripts failed. Failed Jobs: two. Successful Jobs: one."), "{said}");
    assert_eq!(output(scene, "two", "post-deploy.stderr"), "post-deploy complains\n");
}

fn nothing_runs_without_a_change(scene: &Scene<'_>) {
    let groups = json!([both(scene, "group", json!({}))]);
    scene.deploy(groups.clone());
    assert_eq!(scene.logged().len(), 6);
    scene.deploy(groups);
    assert_eq!(scene.logged(), [""; 0]);
}

fn an_errand_runs_none(scene: &Scene<'_>) {
    let errand = with(both(scene, "errand", json!({})), json!({"lifecycle": "errand"}));
    scene.deploy(json!([both(scene, "group", json!({})), errand]));
    assert!(scene.logged().iter().all(|line| line.starts_with("group/0")));
}

fn restarts_are_of_those_named(scene: &Scene<'_>) {
    let two = with(both(scene, "group", json!({})), json!({"instances": 2}));
    scene.deploy(json!([two, both(scene, "other", json!({}))]));
    scene.logged();
    let restarted = |jobs: &str| {
        let task = scene.changed(jobs, "state=restart");
        assert!(message(&task).is_empty());
        let mut who: Vec<String> =
            runs(scene, "pre-start").iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        who.dedup();
        who
    };
    assert_eq!(restarted("group/0"), ["group/0"]);
    assert_eq!(restarted("group"), ["group/0", "group/1"]);
    assert_eq!(restarted("*"), ["group/0", "group/1", "other/0"]);
}
