//! Errands, end to end: on instances that have the job, and on a VM that is made for the group and goes afterwards.

use std::fs;

use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::is_own_machine;

use super::release::{archive, digest};
use crate::keeping::api::Api;
use crate::site::Site;

const SPEC: &str = "packages: []\ntemplates: {run.erb: bin/run}\n\
    properties: {code: {default: 0}, seconds: {default: 0}}\n";
/// A shell that waits for a child does not hear a signal before the child has ended.
const RUN: &str = "#!/bin/sh\necho out of <%= spec.name %>\necho err >&2\nmkdir -p /var/vcap/sys/log/check\n\
    echo logged > /var/vcap/sys/log/check/log\n\
    <% if p('seconds') > 0 %>exec sleep <%= p('seconds') %>\n<% end %>exit <%= p('code') %>\n";

fn release() -> Vec<u8> {
    let mut listed = String::new();
    let mut files = Vec::new();
    for name in ["smoke", "check"] {
        let spec = format!("name: {name}\n{SPEC}");
        let packed = archive(&[("job.MF", spec.as_bytes()), ("monit", b""), ("templates/run.erb", RUN.as_bytes())]);
        let print = digest(spec.as_bytes());
        listed.push_str(&format!(
            "- {{name: {name}, version: {print}, fingerprint: {print}, sha1: 'sha256:{}', packages: []}}\n",
            digest(&packed)
        ));
        files.push((format!("jobs/{name}.tgz"), packed));
    }
    let manifest = format!(
        "name: tools\nversion: '1'\ncommit_hash: abc\nuncommitted_changes: false\njobs:\n{listed}packages: []\n"
    );
    let mut all = vec![("release.MF", manifest.as_bytes())];
    all.extend(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())));
    archive(&all)
}

/// Two instances with a job that is an errand, and a group that is one.
struct Tools {
    site: Site,
    /// The operating system of its stemcell.
    os: &'static str,
}

impl Tools {
    fn in_processes() -> Self {
        Self::new(Site::ready_with_own_programs(""), "windlass-host")
    }

    fn new(site: Site, os: &'static str) -> Self {
        let tarball = site.file("tools.tgz");
        fs::write(&tarball, release()).unwrap();
        site.ok(&["upload-release", tarball.to_str().unwrap()]);
        Self { site, os }
    }

    fn deploy(&self, properties: &str) {
        let group = |name: &str, instances: usize, rest: &str| {
            format!(
                "- name: {name}\n  instances: {instances}\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
                 networks: [{{name: default}}]\n{rest}"
            )
        };
        let text = format!(
            "name: example\nreleases: [{{name: tools, version: latest}}]\n\
             stemcells: [{{alias: default, os: {}, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1-60000, update_watch_time: 1-60000}}\n\
             instance_groups:\n{}{}",
            self.os,
            group("web", 2, "  jobs: [{name: smoke, release: tools}]\n"),
            group(
                "once",
                1,
                &format!("  lifecycle: errand\n  jobs: [{{name: check, release: tools, properties: {properties}}}]\n")
            ),
        );
        fs::write(self.site.manifest(), text).unwrap();
        self.site.deploy();
    }

    fn run(&self, words: &[&str]) -> Vec<serde_json::Value> {
        self.site.rows(&[&["-d", "example", "run-errand"], words].concat())
    }

    fn vms(&self) -> usize {
        self.site.in_cloud("vms").len()
    }
}

#[test]
fn errands_run_where_their_job_is_and_a_vm_that_is_made_for_one_goes_afterwards() {
    if !is_own_machine(
        "software::errands::errands_run_where_their_job_is_and_a_vm_that_is_made_for_one_goes_afterwards",
    ) {
        return;
    }
    they_run_and_leave_nothing(&Tools::in_processes());
}

#[test]
fn errands_run_where_their_job_is_with_the_originals_agents() {
    let test = "software::errands::errands_run_where_their_job_is_with_the_originals_agents";
    if let Some(site) = super::site_of_originals(test) {
        they_run_and_leave_nothing(&Tools::new(site, "windlass-minimal"));
    }
}

fn they_run_and_leave_nothing(tools: &Tools) {
    tools.deploy("{}");
    assert_eq!(tools.vms(), 2, "an errand has no VM until it runs");
    let listed = tools.site.rows(&["-d", "example", "errands"]);
    let names: Vec<_> = listed.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["check", "once", "smoke"]);

    let both = tools.run(&["smoke"]);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(
        both.iter().all(|row| row["exit_code"] == "0" && row["stdout"] == "out of web\n" && row["stderr"] == "err\n"),
        "{both:?}"
    );
    assert_eq!(tools.run(&["smoke", "--instance", "web/first"]).len(), 1);
    let nowhere = tools.site.fails(&["-d", "example", "run-errand", "smoke", "--instance", "web/9"]);
    assert!(
        nowhere.contains(r#"No instances match selection criteria: [{"group" => "web", "id" => "9"}]"#),
        "{nowhere}"
    );
    let unknown = tools.site.fails(&["-d", "example", "run-errand", "nope"]);
    assert!(unknown.contains("Errand 'nope' doesn't exist"), "{unknown}");
    let service = tools.site.fails(&["-d", "example", "run-errand", "web"]);
    assert!(service.contains("Instance group 'web' is not an errand."), "{service}");

    // By the group's name and by its job's.
    for name in ["once", "check"] {
        let ran = tools.run(&[name]);
        assert_eq!((ran.len(), &ran[0]["stdout"]), (1, &"out of once\n".into()), "{ran:?}");
        assert_eq!(tools.vms(), 2, "its VM is gone");
    }
    assert_eq!(Api::of(&tools.site).newest_task()["result"], "1 succeeded, 0 errored, 0 canceled");
    let skipped = tools.run(&["check", "--when-changed"]);
    assert!(skipped.is_empty(), "{skipped:?}");
    assert_eq!(Api::of(&tools.site).newest_task()["result"], "skipped - no changes detected");

    tools.run(&["check", "--keep-alive"]);
    assert_eq!(tools.vms(), 3);
    tools.deploy("{code: 3}");
    let logs = tools.site.file("logs");
    fs::create_dir(&logs).unwrap();
    let words = ["-d", "example", "run-errand", "check", "--when-changed", "--download-logs", "--logs-dir"];
    let failed = tools.site.fails(&[&words[..], &[logs.to_str().unwrap()]].concat());
    assert!(failed.contains("Errand 'check' completed with error (exit code 3)"), "{failed}");
    assert_eq!(tools.vms(), 2, "its VM goes also after a failure");
    assert_eq!(fs::read_dir(&logs).unwrap().count(), 1, "its logs are here");
    assert!(tools.site.rows(&["leaks"]).is_empty());
    it_is_cancelled(tools);
    tools.site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

fn it_is_cancelled(tools: &Tools) {
    tools.deploy("{seconds: 1000}");
    let mut running = tools.site.verb(&["-d", "example", "run-errand", "once"]).spawn().unwrap();
    let api = Api::of(&tools.site);
    let begun = || api.get("/tasks?state=processing&verbose=2")[0]["id"].as_u64();
    super::until(|| {
        begun().is_some_and(|task| api.text(&format!("/tasks/{task}/output?type=event")).contains("Running errand"))
    });
    let task = begun().unwrap();
    tools.site.ok(&["-n", "cancel-task", &task.to_string()]);
    assert!(!running.wait().unwrap().success());
    let told = api.text(&format!("/tasks/{task}/output?type=result"));
    assert!(told.contains(r#""exit_code":143"#), "{told}");
    assert_eq!(api.get(&format!("/tasks/{task}"))["state"], "cancelled");
    assert_eq!(tools.vms(), 2, "its VM is gone");
}

/// Nobody knows whether its script ran, so it is not begun again by itself; its VM is there for the next run, and goes with it.
#[test]
fn an_errand_that_is_killed_anywhere_runs_at_most_once_and_the_next_one_leaves_nothing() {
    if !is_own_machine(
        "software::errands::an_errand_that_is_killed_anywhere_runs_at_most_once_and_the_next_one_leaves_nothing",
    ) {
        return;
    }
    let mut tools = Tools::in_processes();
    tools.deploy("{}");
    let runs = |site: &Site| {
        site.director_log()
            .lines()
            .filter(|line| line.contains("asking the agent") && line.contains("run_errand"))
            .count()
    };
    let mut kills = 0;
    for point in Points::sampled(59) {
        tools.site.kill_director();
        let before = runs(&tools.site);
        tools.site.start_director(Some(point));
        let survived = tools.site.try_while_director_runs(&["-d", "example", "run-errand", "once"]);
        tools.site.kill_director();
        tools.site.start_director(None);
        tools.site.wait_until("the end of what was killed", |site| site.rows(&["tasks"]).is_empty());
        assert!(runs(&tools.site) <= before + 1, "killed at point {point}: the errand ran twice");
        kills += usize::from(!survived);
        let ran = tools.run(&["once"]);
        assert_eq!((ran.len(), &ran[0]["exit_code"]), (1, &"0".into()), "killed at point {point}: {ran:?}");
        assert_eq!(tools.vms(), 2, "killed at point {point}: the errand's VM is left");
        assert!(tools.site.rows(&["leaks"]).is_empty(), "killed at point {point}: a possible leak");
        assert!(tools.site.rows(&["disks", "--orphaned"]).is_empty(), "killed at point {point}");
        if survived {
            println!("an errand: {kills} kills, and none at point {point}");
            break;
        }
    }
    tools.site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(tools.site.in_cloud("vms").is_empty() && tools.site.vm_processes().is_empty(), "a VM is left");
}
