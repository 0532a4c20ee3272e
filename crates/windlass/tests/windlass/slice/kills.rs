//! The director dies at any point of its work; started again, it goes on with its task, leaks nothing, loses nothing, and the
//! operator's next try converges. Judged from what the cloud really holds.

use std::fs;

use windlass_durable::sweep::Points;

use crate::site::Site;
use windlass_rigs::vm_root;

/// Kills the director at one point of `operation` after the other until it survives. Each time it is started again and goes on
/// with the task, if there is one, and `operation` is repeated; both must succeed, and after each `check` looks at the cloud.
fn sweep(name: &str, site: &mut Site, operation: &[&str], check: impl Fn(&Site, u64), reset: impl Fn(&Site)) {
    let mut kills = 0;
    for point in Points::sampled(23) {
        site.kill_director();
        site.start_director(Some(point));
        let survived = site.try_while_director_runs(operation);
        site.kill_director();
        site.start_director(None);
        if !survived {
            kills += 1;
            if site.sees_killed_task_go_on() {
                check(site, point);
            }
            site.ok(operation);
        }
        check(site, point);
        assert!(site.rows(&["leaks"]).is_empty(), "{name}, killed at point {point}: a possible leak");
        reset(site);
        if survived {
            println!("{name}: {kills} kills at points up to {point}");
            return;
        }
    }
}

fn vms_and_disks(site: &Site) -> (usize, usize) {
    (site.in_cloud("vms").len(), site.in_cloud("disks").len())
}

fn remove_everything(site: &Site) {
    site.ok(&["-n", "-d", "example", "delete-deployment"]);
    assert!(site.in_cloud("vms").is_empty() && site.vm_processes().is_empty(), "a VM is left");
    for orphan in site.in_cloud("disks") {
        let folder = site.state_dir().join("cloud/disks").join(orphan);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_deploy_that_is_killed_anywhere_leaks_nothing_and_converges() {
    let mut site = Site::ready_to_deploy();
    let manifest = site.manifest();
    let deploy = ["-n", "-d", "example", "deploy", &manifest];
    sweep(
        "deploy",
        &mut site,
        &deploy,
        |site, point| {
            assert_eq!(vms_and_disks(site), (1, 1), "killed at point {point}");
            let vm = &site.in_cloud("vms")[0];
            assert!(site.store(vm).exists(), "killed at point {point}: the disk is not mounted");
        },
        remove_everything,
    );
}

#[test]
fn a_recreate_that_is_killed_anywhere_keeps_the_data() {
    let mut site = Site::ready_to_deploy();
    site.deploy();
    vm_root::write(&site.store(&site.in_cloud("vms")[0]).join("precious"), "data");
    sweep(
        "recreate",
        &mut site,
        &["-n", "-d", "example", "recreate"],
        |site, point| {
            assert_eq!(vms_and_disks(site), (1, 1), "killed at point {point}");
            let file = site.store(&site.in_cloud("vms")[0]).join("precious");
            assert_eq!(fs::read_to_string(file).unwrap(), "data", "killed at point {point}");
        },
        |_| {},
    );
}

#[test]
fn a_deletion_that_is_killed_anywhere_keeps_the_data_and_leaves_no_vm() {
    let mut site = Site::ready_to_deploy();
    site.deploy();
    let manifest = site.manifest();
    sweep(
        "delete",
        &mut site,
        &["-n", "-d", "example", "delete-deployment"],
        |site, point| {
            let orphans = site.rows(&["disks", "--orphaned"]).len();
            assert_eq!(vms_and_disks(site), (0, orphans), "killed at point {point}");
            assert!(site.vm_processes().is_empty(), "killed at point {point}: a process is left");
        },
        |site| drop(site.ok(&["-n", "-d", "example", "deploy", &manifest])),
    );
}

/// The versions of a variable that the config server has.
fn versions(site: &Site, name: &str) -> Vec<serde_json::Value> {
    let answer = site.ok(&["curl", &format!("/v1/data?name={name}")]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    answer["data"].as_array().unwrap().clone()
}

const VARIABLES: &str = "name: example\nstemcells: []\nreleases: []\ninstance_groups: []\n\
    update: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, update_watch_time: 1}\n\
    variables:\n- {name: password, type: password}\n\
    - {name: ca, type: certificate, options: {is_ca: true, common_name: ca, key_length: 2048}}\n\
    - {name: leaf, type: certificate, options: {ca: ca, common_name: leaf, key_length: 2048}}\n";

#[test]
fn a_deploy_that_is_killed_while_it_makes_variables_makes_each_of_them_once() {
    let mut site = Site::ready_to_deploy();
    let manifest = site.manifest();
    fs::write(&manifest, VARIABLES).unwrap();
    let names = ["password", "ca", "leaf"].map(|name| format!("/windlass/example/{name}"));
    sweep(
        "variables",
        &mut site,
        &["-n", "-d", "example", "deploy", &manifest],
        |site, point| {
            let listed = site.rows(&["-d", "example", "variables"]);
            assert_eq!(listed.len(), 3, "killed at point {point}: {listed:?}");
            for name in &names {
                assert_eq!(versions(site, name).len(), 1, "killed at point {point}: {name}");
            }
            let value = |at: usize| versions(site, &names[at])[0]["value"].clone();
            assert_eq!(value(2)["ca"], value(1)["certificate"], "killed at point {point}");
        },
        |site| {
            site.ok(&["-n", "-d", "example", "delete-deployment"]);
            for name in &names {
                site.ok(&["-n", "curl", "-X", "DELETE", &format!("/v1/data?name={name}")]);
            }
        },
    );
}

#[test]
fn a_change_of_the_key_of_variables_that_is_killed_anywhere_loses_no_value() {
    let mut site = Site::ready_to_deploy();
    fs::write(site.manifest(), VARIABLES).unwrap();
    site.deploy();
    let before = versions(&site, "/windlass/example/password");
    let keys = ["variables.key", "another.key"].map(|name| site.state_dir().join(name));
    let other = (0..32).map(|byte| format!("{byte:02x}")).collect::<String>();
    windlass_durable::file::write(&keys[1], other.as_bytes(), 0o600).unwrap();
    let mut kills = 0;
    for point in Points::sampled(7) {
        site.kill_director();
        let (new, old) = if kills % 2 == 0 { (&keys[1], &keys[0]) } else { (&keys[0], &keys[1]) };
        let settings = format!(
            "isolation: process\nvariables: {{key: {{file: {}}}, previous_key: {{file: {}}}}}\n",
            new.display(),
            old.display()
        );
        fs::write(site.state_dir().join("director.yml"), settings).unwrap();
        site.start_director(Some(point));
        let survived = site.director_runs();
        site.kill_director();
        site.start_director(None);
        assert_eq!(versions(&site, "/windlass/example/password"), before, "killed at point {point}");
        kills += 1;
        if survived {
            println!("change of the key: {kills} kills at points up to {point}");
            break;
        }
    }
}
