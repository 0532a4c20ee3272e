//! The director dies at any point of its work; started again, it goes on with its task, leaks nothing, loses nothing, and the
//! operator's next try converges. Judged from what the cloud really holds.

use std::fs;

use windlass_durable::sweep::Points;

use crate::site::Site;

/// Kills the director at one point of `operation` after the other until it survives. Each time it is started again and goes on
/// with the task, if there is one, and `operation` is repeated; both must succeed, and after each `check` looks at the cloud.
fn sweep(name: &str, site: &mut Site, operation: &[&str], check: impl Fn(&Site, u64), reset: impl Fn(&Site)) {
    let mut kills = 0;
    for point in Points::sampled(11) {
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
    fs::write(site.store(&site.in_cloud("vms")[0]).join("precious"), "data").unwrap();
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
