//! A director on a real cluster of three, whose VMs are on the members' own network: a machine dies during a deploy of twelve
//! instances over three zones, and comes back.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_rigs::lxd::POOL;
use windlass_rigs::lxd::cluster::{Cluster, LAN, LAN_BRIDGE};
use windlass_rigs::own_machine::is_own_machine;

use crate::site::Site;
use crate::whole_run::is_whole_run;

/// A director whose CPI asks all members, the one that dies first.
fn director(cluster: &Cluster, project: &str, folder: &std::path::Path) -> Site {
    let endpoint = |number| format!("unix:{}", cluster.member(number).socket().display());
    let endpoints = [2, 1, 3].map(endpoint);
    let incus = json!({"endpoints": endpoints, "project": project, "pool": POOL});
    let config = folder.join("cpi.json");
    fs::write(&config, json!({"cloud": {"plugin": "incus", "properties": {"incus": incus}}}).to_string()).unwrap();
    let settings = format!(
        "cpi: {{exec: incus, config: {}}}\nresurrector: {{enabled: false}}\nagent_wait: 60s\n",
        config.display()
    );
    Site::ready_in_network(LAN, &settings)
}

/// Zones are groups of members: the first zone is the one that is given.
fn configure(site: &Site, first: u8) {
    let zone = |(number, group): (u8, u8)| format!("{{name: z{number}, cloud_properties: {{target: '@z{group}'}}}}");
    let text = format!(
        "azs: [{}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: 32}}]\nnetworks:\n- name: default\n  \
         subnets:\n  - {{range: {LAN}.0/24, gateway: {LAN}.254, reserved: [{LAN}.1-{LAN}.9], azs: [z1, z2, z3], \
         cloud_properties: {{parent: {LAN_BRIDGE}, nictype: bridged}}}}\n",
        [(1, first), (2, 2), (3, 3)].map(zone).join(", ")
    );
    fs::write(site.file("cloud-config.yml"), text).unwrap();
    site.ok(&["-n", "update-cloud-config", site.file("cloud-config.yml").to_str().unwrap()]);
}

fn write_manifest(site: &Site, instances: usize) {
    let text = format!(
        "name: example\nreleases: []\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
         update: {{canaries: 1, max_in_flight: 6, canary_watch_time: 1-60000, update_watch_time: 1-60000}}\n\
         instance_groups:\n- name: db\n  instances: {instances}\n  azs: [z1, z2, z3]\n  vm_type: small\n  \
         stemcell: default\n  persistent_disk_type: disk\n  networks: [{{name: default}}]\n  jobs: []\n"
    );
    fs::write(site.manifest(), text).unwrap();
}

/// Where each disk is, from the cluster's own list.
fn disks(cluster: &Cluster, project: &str) -> BTreeMap<String, usize> {
    let path = format!("/1.0/storage-pools/{POOL}/volumes/custom?project={project}&recursion=1");
    let listed = cluster.member(1).ok("GET", &path, &Value::Null);
    let member = |volume: &Value| volume["location"].as_str().unwrap().trim_start_matches('n').parse().unwrap();
    listed.as_array().unwrap().iter().map(|it| (it["name"].as_str().unwrap().to_owned(), member(it))).collect()
}

fn data(cluster: &Cluster, project: &str, disk: &str, member: usize) -> String {
    let folder = cluster.member(member).files_of_volume(project, disk);
    fs::read_to_string(folder.join("data")).unwrap_or_default()
}

fn vms(cluster: &Cluster, project: &str) -> usize {
    let listed = cluster.member(1).ok("GET", &format!("/1.0/instances?project={project}"), &Value::Null);
    listed.as_array().unwrap().len()
}

#[test]
fn a_machine_that_dies_during_a_deploy_of_twelve_costs_nothing_but_time() {
    const NAME: &str = "incus_cluster::a_machine_that_dies_during_a_deploy_of_twelve_costs_nothing_but_time";
    if !is_whole_run(NAME) || !is_own_machine(NAME) {
        return;
    }
    let Some(mut cluster) = Cluster::start(NAME) else { return };
    let project = cluster.member(1).make_project("d1");
    let folder = tempfile::tempdir().unwrap();
    let site = director(&cluster, &project, folder.path());
    configure(&site, 1);
    write_manifest(&site, 3);
    site.deploy();
    let first = disks(&cluster, &project);
    assert_eq!(
        first.values().copied().collect::<std::collections::BTreeSet<_>>(),
        [1, 2, 3].into(),
        "one in each zone"
    );
    for (disk, member) in &first {
        let store = cluster.member(*member).files_of_volume(&project, disk);
        fs::write(store.join("data"), disk).unwrap();
    }

    // The first zone moves to another machine, and its disk with it.
    configure(&site, 3);
    site.deploy();
    let moved = disks(&cluster, &project);
    assert_eq!((moved.len(), moved.values().filter(|member| **member == 3).count()), (3, 2), "{first:?} {moved:?}");
    for (disk, member) in &moved {
        assert_eq!(data(&cluster, &project, disk, *member), *disk);
    }
    configure(&site, 1);

    write_manifest(&site, 12);
    let mut deploy = site.verb(&["-n", "-d", "example", "deploy", &site.manifest()]);
    let deploy = deploy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while vms(&cluster, &project) < 6 {
        assert!(Instant::now() < deadline, "{}", site.director_log());
        std::thread::sleep(Duration::from_millis(20));
    }
    cluster.pull_plug(2);
    let output = deploy.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("does not answer") || said.contains("cannot reach"), "{said}");
    // The first zone's disk may be on its way back: it is where it is whole.
    for (disk, member) in
        disks(&cluster, &project).iter().filter(|(disk, member)| first.contains_key(*disk) && **member != 2)
    {
        assert_eq!(data(&cluster, &project, disk, *member), *disk);
    }

    // What is on the dead machine is not taken for gone, and nothing is made in its place.
    cluster.wait_until_member_is(2, "Offline");
    let report = site.windlass(&["-d", "example", "cloud-check", "--report", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = report["Tables"][0]["Rows"].as_array().unwrap().clone();
    let stranded: Vec<&Value> = rows.iter().filter(|row| row["type"] == "unresponsive_agent").collect();
    assert!(!stranded.is_empty(), "{report:#}");
    for row in &stranded {
        assert!(row["description"].as_str().unwrap().contains("'n2', which does not answer"), "{row}");
    }
    assert!(!rows.iter().any(|row| row["type"] == "missing_disk"), "{report:#}");
    let known = vms(&cluster, &project);

    cluster.plug_in(2);
    site.deploy();
    assert!(vms(&cluster, &project) >= known);
    let instances = site.rows(&["-d", "example", "instances"]);
    assert_eq!(instances.len(), 12);
    let report = site.windlass(&["-d", "example", "cloud-check", "--report", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let problems = report["Tables"][0]["Rows"].as_array().map_or(0, Vec::len);
    assert_eq!(problems, 0, "{report:#}");
    assert_eq!((vms(&cluster, &project), disks(&cluster, &project).len()), (12, 12), "none twice");
    for (disk, member) in &first {
        assert_eq!(data(&cluster, &project, disk, *member), *disk);
    }
    assert_eq!(site.rows(&["leaks"]), Vec::<Value>::new());
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert_eq!(vms(&cluster, &project), 0);
}
