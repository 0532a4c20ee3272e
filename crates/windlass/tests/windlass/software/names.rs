//! Names of instances, end to end: a program in one VM finds another instance.

use std::fs;

use windlass_rigs::own_machine::is_own_machine;

use crate::scenarios::release::{Job, Release};
use crate::site::Site;

/// Prints each name that the manifest hands out, and what the VM's own means find under it.
fn release(look_up: &str) -> Release {
    let run = format!(
        "#!/bin/sh\nfor name in <%= link('db').instances[0].address %> <%= link('db').address %> \
         <%= link('db').address(azs: ['z1'], status: 'all') %> db.example-internal; do\n  echo \"$name $({look_up})\"\ndone\n"
    );
    Release::new("net", "1")
        .job(Job::new("pg", "provides: [{name: db, type: sql}]"))
        .job(Job::new("ask", "consumes: [{name: db, type: sql}]").template("bin/run", &run))
}

fn deploy(site: &Site, os: &str, release: &Release) {
    let tarball = site.file("net.tgz");
    fs::write(&tarball, release.tarball()).unwrap();
    site.ok(&["upload-release", tarball.to_str().unwrap()]);
    let group = |name: &str, job: &str| {
        format!(
            "- name: {name}\n  instances: 1\n  azs: [z1]\n  vm_type: small\n  stemcell: default\n  \
             networks: [{{name: default}}]\n  jobs: [{{release: net, {job}}}]\n"
        )
    };
    let text = format!(
        "name: example\nfeatures: {{use_dns_addresses: true}}\nreleases: [{{name: net, version: latest}}]\n\
         stemcells: [{{alias: default, os: {os}, version: latest}}]\n\
         update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1000-60000, update_watch_time: 1000-60000}}\n\
         instance_groups:\n{}{}",
        group("db", "name: pg, provides: {db: {aliases: [{domain: db.example-internal}]}}"),
        group("front", "name: ask"),
    );
    fs::write(site.manifest(), text).unwrap();
    site.deploy();
}

/// What the errand found, by name.
fn found(site: &Site) -> Vec<(String, String)> {
    let ran = site.rows(&["-d", "example", "run-errand", "ask"]);
    assert_eq!(ran[0]["exit_code"], "0", "{ran:?}");
    let lines = ran[0]["stdout"].as_str().unwrap().lines();
    lines.map(|line| line.split_once(' ').unwrap()).map(|(name, what)| (name.to_owned(), what.to_owned())).collect()
}

fn everything_is_found(site: &Site) {
    let instances = site.rows(&["-d", "example", "instances"]);
    let db = instances.iter().find(|row| row["instance"].as_str().unwrap().starts_with("db/")).unwrap();
    let address = db["ips"].as_str().unwrap();
    let id = db["instance"].as_str().unwrap().strip_prefix("db/").unwrap();
    let found = found(site);
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found[0].0, format!("{id}.db.default.example.bosh"));
    assert_eq!(found[1].0, "q-s0.db.default.example.bosh");
    assert_eq!(found[2].0, "q-a1s4.db.default.example.bosh");
    for (name, what) in &found {
        assert!(what.split_whitespace().any(|word| word == address), "{name} is not {address}: {found:?}");
    }
}

#[test]
fn a_program_in_one_vm_finds_another_instance_by_name() {
    if !is_own_machine("software::names::a_program_in_one_vm_finds_another_instance_by_name") {
        return;
    }
    let site = Site::ready_with_own_programs("local_dns: {enabled: true}\n");
    deploy(&site, "windlass-host", &release("getent hosts $name"));
    everything_is_found(&site);
}

/// In a container the agent has port 53 for itself. Nothing is looked up in the hosts file by `nslookup`.
#[test]
fn a_program_in_a_container_asks_its_agent_for_names() {
    if !is_own_machine("software::names::a_program_in_a_container_asks_its_agent_for_names") {
        return;
    }
    let settings = "local_dns: {enabled: true}\nagent: {env: {bosh: {dns_resolver: {recursors: [127.0.0.1]}}}}\n";
    let site = Site::ready_with_containers(settings);
    deploy(&site, "windlass-minimal", &release("nslookup $name 2>/dev/null | tr '\\n' ' '"));
    everything_is_found(&site);
    // Control groups outlive namespaces.
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
}
