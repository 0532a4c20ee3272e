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
         update: {{canaries: 1, max_in_flight: 2, canary_watch_time: 1-60000, update_watch_time: 1-60000}}\n\
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

/// Callers would be sent to instances that are down, until somebody deploys.
#[test]
fn an_instance_that_is_stopped_leaves_the_names_that_others_find() {
    if !is_own_machine("software::names::an_instance_that_is_stopped_leaves_the_names_that_others_find") {
        return;
    }
    let mut site = Site::ready_with_own_programs("local_dns: {enabled: true}\nresurrector: {interval: 1s}\n");
    site.write_documents(2);
    let manifest = fs::read_to_string(site.manifest()).unwrap().replace("windlass-minimal", "windlass-host");
    fs::write(site.manifest(), manifest).unwrap();
    site.deploy();
    let mut addresses: Vec<(String, String)> = (site.rows(&["-d", "example", "instances"]).iter())
        .map(|row| (row["instance"].as_str().unwrap().to_owned(), row["ips"].as_str().unwrap().to_owned()))
        .collect();
    addresses.sort();
    let [(first, stopped), (second, well)] = addresses.try_into().unwrap();
    let finds = |site: &Site, query: &str| {
        let name = format!("q-{query}.db.default.example.bosh");
        // Of several lines with one name, programs take the first, or all.
        let hosts = site.ok(&["-d", "example", "exec", &second, "--", "cat", "/etc/hosts"]);
        let lines = hosts.lines().filter(|line| line.split_whitespace().skip(1).any(|word| word == name));
        let mut found: Vec<String> = lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
        found.sort();
        found
    };
    let mut both = vec![stopped.clone(), well.clone()];
    both.sort();
    assert_eq!((finds(&site, "s0"), finds(&site, "s4")), (both.clone(), both.clone()));
    assert!(finds(&site, "s1").is_empty());
    site.ok(&["-n", "-d", "example", "stop", &first]);
    site.wait_until("the news of the stop", |site| finds(site, "s0") == [well.clone()]);
    assert_eq!((finds(&site, "s1"), finds(&site, "s3")), (vec![stopped.clone()], vec![well.clone()]));
    assert_eq!(finds(&site, "s4"), both);
    site.ok(&["-n", "-d", "example", "start", &first]);
    site.wait_until("the news of the start", |site| finds(site, "s0") == both && finds(site, "s1").is_empty());
}
