//! Jobs that fail, end to end: the deploy stops at the canary and says which process of which job it was, with what it wrote last.

use std::fs;

use windlass_rigs::own_machine::is_own_machine;

use super::release::{archive, digest};
use crate::keeping::api::Api;
use crate::site::Site;
use windlass_rigs::vm_root;

const SPEC: &str = "name: frail\npackages: []\ntemplates: {ctl.erb: bin/ctl, pre-start.erb: bin/pre-start}\n\
    properties: {breaks: {default: false}, prepares: {default: true}, port: {}}\n";
/// The process is not called as its job, so that one has to look for it.
const MONIT: &str = "check process worker\n  with pidfile /var/vcap/sys/run/frail/pid\n  \
    start program \"/var/vcap/jobs/frail/bin/ctl start\" with timeout 2 seconds\n  \
    stop program \"/var/vcap/jobs/frail/bin/ctl stop\"\n  group vcap\n";
const CTL: &str = "#!/bin/sh\nrun=/var/vcap/sys/run/frail\nlog=/var/vcap/sys/log/frail\nmkdir -p $run $log\n\
    case $1 in\nstart)\n  [ -e /var/vcap/data/broken ] && exit 1\n  printf '\\033[31mport 7777 is taken\\n' >> $log/worker.stderr.log\n\
    <% if p('breaks') %>  exit 1\n<% end %>\
    <% if_p('port') do |port| %>  perl -e 'use Socket; socket(S, PF_INET, SOCK_STREAM, 0); \
    bind(S, sockaddr_in(<%= port %>, INADDR_ANY)) or die \"bind to port <%= port %>: $!\\n\"; listen(S, 5); sleep 100000' \
    2>> $log/worker.stderr.log &\n<% end.else do %>  sleep 100000 &\n<% end %>\
    \x20 echo $! > $run/pid ;;\nstop)\n  [ -f $run/pid ] && kill $(cat $run/pid)\n  rm -f $run/pid ;;\nesac\n";
const PRE_START: &str = "#!/bin/sh\necho begins\nrm -f /var/vcap/data/broken\n<% unless p('prepares') %>echo there is no room >&2\nexit 7\n<% end %>\n";

fn release() -> Vec<u8> {
    let job = archive(&[
        ("job.MF", SPEC.as_bytes()),
        ("monit", MONIT.as_bytes()),
        ("templates/ctl.erb", CTL.as_bytes()),
        ("templates/pre-start.erb", PRE_START.as_bytes()),
    ]);
    let print = digest(SPEC.as_bytes());
    let manifest = format!(
        "name: frail\nversion: '1'\ncommit_hash: abc\nuncommitted_changes: false\n\
         jobs: [{{name: frail, version: {print}, fingerprint: {print}, sha1: 'sha256:{}', packages: []}}]\npackages: []\n",
        digest(&job)
    );
    archive(&[("release.MF", manifest.as_bytes()), ("jobs/frail.tgz", &job)])
}

/// Canaries and the others are watched for at most so many milliseconds.
fn manifest(site: &Site, properties: &str, (canaries, others): (u32, u32)) {
    let text = format!(
        "name: example\nreleases: [{{name: frail, version: latest}}]\n\
         stemcells: [{{alias: default, os: windlass-host, version: latest}}]\n\
         update: {{canaries: 1, max_in_flight: 1, canary_watch_time: 1000-{canaries}, update_watch_time: 1000-{others}}}\n\
         instance_groups:\n- name: web\n  instances: 2\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
         networks: [{{name: default}}]\n  jobs: [{{name: frail, release: frail, properties: {properties}}}]\n"
    );
    fs::write(site.manifest(), text).unwrap();
}

/// BOSH's cloud-check does not look at jobs; here one sees in one place what does not work, and can do something about it.
#[test]
fn cloud_check_tells_of_failing_jobs_and_restarts_them_and_nobody_replaces_their_vm() {
    if !is_own_machine(
        "software::failures::cloud_check_tells_of_failing_jobs_and_restarts_them_and_nobody_replaces_their_vm",
    ) {
        return;
    }
    let site = Site::ready_with_own_programs("resurrector: {enabled: false}\n");
    let tarball = site.file("frail.tgz");
    fs::write(&tarball, release()).unwrap();
    site.ok(&["upload-release", tarball.to_str().unwrap()]);
    manifest(&site, "{}", (60_000, 60_000));
    site.deploy();
    let api = Api::of(&site);
    assert_eq!(api.scan("example"), serde_json::json!([]));
    let vms = || -> Vec<_> { site.rows(&["-d", "example", "vms"]).iter().map(|row| row["vm_cid"].clone()).collect() };
    let before = vms();
    let first = site.rows(&["-d", "example", "vms"])[0].clone();
    let store = site.store(first["vm_cid"].as_str().unwrap());
    let break_it = || {
        vm_root::write(&store.parent().unwrap().join("data/broken"), "");
        let pid = fs::read_to_string(store.parent().unwrap().join("data/sys/run/frail/pid")).unwrap();
        super::kill_inside(&store, pid.trim());
        super::until(|| api.scan("example") != serde_json::json!([]));
    };
    break_it();
    let name = first["instance"].as_str().unwrap();
    let said = site.fails(&["-d", "example", "cloud-check", "--report"]);
    for expected in ["failing_jobs", &format!("Jobs of '{name} ("), "are failing: worker."] {
        assert!(said.contains(expected), "expected '{expected}' in: {said}");
    }
    let task = api.newest_task()["id"].clone();
    let events = api.text(&format!("/tasks/{task}/output?type=event"));
    assert!(events.contains("1 OK, 0 unresponsive, 0 missing, 0 unbound, 1 with failing jobs"), "{events}");

    // What is meant for lost VMs leaves it alone: by itself, by name, and by the resurrector.
    for choice in [None, Some("recreate_vm")] {
        assert_eq!(api.resolve("example", &api.scan("example"), choice), "done");
    }
    let (group, id) = name.split_once('/').unwrap();
    let suspects = serde_json::json!({"jobs": {group: [id]}});
    assert_eq!(api.task("PUT", "/deployments/example/scan_and_fix", suspects)["state"], "done");
    assert_eq!(vms(), before, "a VM was replaced");

    assert_eq!(api.resolve("example", &api.scan("example"), Some("restart_jobs")), "done");
    assert_eq!(api.scan("example"), serde_json::json!([]));
    assert_eq!(vms(), before, "a VM was replaced");
    assert!(site.ok(&["-d", "example", "plan", &site.manifest()]).contains("nothing to do"));

    // Jobs that run again by then are left alone.
    break_it();
    let problems = api.scan("example");
    site.ok(&["-n", "-d", "example", "restart", &format!("{group}/{id}"), "--no-converge"]);
    let said = api.resolve("example", &problems, Some("restart_jobs"));
    assert!(said.contains("are running now; nothing was done to them"), "{said}");
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}

#[test]
fn a_canary_that_fails_stops_the_deploy_and_tells_the_last_lines_of_its_log() {
    if !is_own_machine("software::failures::a_canary_that_fails_stops_the_deploy_and_tells_the_last_lines_of_its_log") {
        return;
    }
    let site = Site::ready_with_own_programs("");
    let tarball = site.file("frail.tgz");
    fs::write(&tarball, release()).unwrap();
    site.ok(&["upload-release", tarball.to_str().unwrap()]);
    let api = Api::of(&site);
    let fails = |properties: &str| {
        manifest(&site, properties, (3000, 60_000));
        let said = site.fails(&["-n", "-d", "example", "deploy", &site.manifest()]);
        let task = api.newest_task()["id"].as_u64().unwrap();
        let events = api.text(&format!("/tasks/{task}/output?type=event"));
        let begun = |line: &&str| line.contains("\"Updating instance\"") && line.contains("\"started\"");
        assert_eq!(events.lines().filter(begun).count(), 1, "only the canary was touched: {events}");
        (said, events)
    };
    let (said, events) = fails("{breaks: true}");
    for expected in [
        "(0)' is not running after update. Review logs for failed jobs: worker",
        "process 'worker' of job 'frail' is not running; the last lines of frail/worker.stderr.log:",
        "\\u{1b}[31mport 7777 is taken",
    ] {
        assert!(said.contains(expected), "expected '{expected}' in: {said}");
    }
    assert!(events.contains("\"code\":400007"), "{events}");

    let (said, _) = fails("{prepares: false}");
    for expected in [
        "1 of 1 pre-start scripts failed. Failed Jobs: frail.",
        "script 'pre-start' of job 'frail' failed; the last lines of frail/pre-start.stderr.log:",
        "there is no room",
        "the last lines of frail/pre-start.stdout.log:",
    ] {
        assert!(said.contains(expected), "expected '{expected}' in: {said}");
    }
    // What failed is mended by the next deploy, which goes on to the others.
    manifest(&site, "{}", (60_000, 60_000));
    site.deploy();
    let running = site.rows(&["-d", "example", "instances", "--ps"]);
    let runs = |row: &&serde_json::Value| row["process"] == "worker" && row["process_state"] == "running";
    assert_eq!(running.iter().filter(runs).count(), 2, "{running:?}");
    // Both want the same port of the machine, and the second cannot have it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    manifest(&site, &format!("{{port: {port}}}"), (60_000, 4000));
    let said = site.fails(&["-n", "-d", "example", "deploy", &site.manifest()]);
    let expected = format!("bind to port {port}: Address already in use");
    assert!(said.contains(&expected), "expected '{expected}' in: {said}");
    let others: Vec<_> =
        site.rows(&["-d", "example", "vms"]).iter().map(|row| row["vm_cid"].as_str().unwrap().to_owned()).collect();
    let names_one = others.iter().any(|vm| said.contains(&format!("port {port} is in use by VM {vm}, web/")));
    assert!(names_one, "{others:?}: {said}");
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}
