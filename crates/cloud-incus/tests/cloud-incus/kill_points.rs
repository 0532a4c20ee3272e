//! The CPI killed before and after each of its requests that change something: the repeated call finishes the job, once. What
//! counts is what the daemon's own lists have, not what the CPI says.

use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};
use windlass_durable::kill_point::KILL_AT;
use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::is_own_machine;

use crate::rig::{Asked, Site, volume};

/// Fewer points than this would mean that the sweep looks at nothing.
const FEWEST_POINTS: u64 = 4;

/// Kills the CPI at some points of the call that `make` gives, repeats it, and has `check` look at the answer and the daemon;
/// until a call ends unkilled. Tells how many were killed.
fn sweep<T>(site: &Site, one_in: u64, make: impl Fn() -> (Asked, T), check: impl Fn(T, &Value)) -> u64 {
    let mut kills = 0;
    for point in Points::sampled(one_in) {
        let (asked, made) = make();
        let mut command = site.command();
        command.env(KILL_AT, point.to_string());
        let output = site.run(command, &asked);
        let was_killed = output.status.signal() == Some(9);
        let answer = if was_killed {
            kills += 1;
            site.answer(&asked)
        } else {
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let last_words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(answer["error"], Value::Null, "point {point}: {last_words}: {answer}");
        check(made, &answer["result"]);
        if !was_killed {
            assert!(point > FEWEST_POINTS, "the sweep passed only {point} points");
            break;
        }
    }
    kills
}

#[test]
fn calls_killed_after_any_request_and_repeated_have_one_effect() {
    const NAME: &str = "kill_points::calls_killed_after_any_request_and_repeated_have_one_effect";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(site) = Site::start(NAME) else { return };
    let image = site.image();
    let mut kills = sweep(
        &site,
        5,
        || (Asked::new("create_stemcell", json!([image, {"name": "x", "version": "1"}])), ()),
        |(), stemcell| {
            assert_eq!(site.held(), [stemcell.as_str().unwrap()]);
            site.ok("delete_stemcell", json!([stemcell]));
            assert!(site.held().is_empty());
        },
    );
    let stemcell = site.stemcell();
    kills += vms(&site, &stemcell);
    kills += disks(&site, &stemcell);
    kills += networks(&site);
    site.ok("delete_stemcell", json!([stemcell]));
    assert_eq!(site.held(), Vec::<String>::new(), "nothing is left");
    eprintln!("{kills} calls were killed: 0 lost, 0 doubled, 0 leaked");
}

fn vms(site: &Site, stemcell: &str) -> u64 {
    let kills = sweep(
        site,
        6,
        || (Asked::new("create_vm", site.vm_arguments(stemcell, 11)), ()),
        |(), created| {
            let vm = created[0].as_str().unwrap();
            assert_eq!(site.held(), [vm, stemcell]);
            let instance = site.instance(vm);
            assert_eq!(
                (&instance["status"], &instance["config"]["user.windlass.stage"]),
                (&json!("Running"), &json!("ready"))
            );
            site.ok("delete_vm", json!([vm]));
            assert_eq!(site.held(), [stemcell]);
        },
    );
    kills
        + sweep(
            site,
            3,
            || {
                let vm = site.vm(stemcell, 12);
                (Asked::new("delete_vm", json!([vm])), ())
            },
            |(), _| assert_eq!(site.held(), [stemcell]),
        )
}

fn disks(site: &Site, stemcell: &str) -> u64 {
    let vm = site.vm(stemcell, 13);
    let held = |more: &[&str]| {
        let mut expected: Vec<&str> = vec![&vm, stemcell];
        expected.extend(more);
        assert_eq!(site.held(), expected);
    };
    let mut kills = sweep(
        site,
        3,
        || (Asked::new("create_disk", json!([32, {}, vm])), ()),
        |(), disk| {
            let disk = disk.as_str().unwrap();
            held(&[volume(disk)]);
            site.ok("delete_disk", json!([disk]));
        },
    );
    kills += sweep(
        site,
        3,
        || {
            let disk = site.disk(&vm);
            site.write(&disk, "precious");
            (Asked::new("attach_disk", json!([vm, disk])), disk)
        },
        |disk, _| {
            assert_eq!(site.claim(&disk), vm.as_str());
            assert_eq!(site.ok("get_disks", json!([vm])), json!([disk]));
            assert_eq!(site.read(&disk), "precious");
            site.ok("detach_disk", json!([vm, disk]));
            site.ok("delete_disk", json!([disk]));
        },
    );
    kills += sweep(
        site,
        3,
        || {
            let disk = site.disk(&vm);
            site.ok("attach_disk", json!([vm, disk]));
            site.write(&disk, "precious");
            (Asked::new("detach_disk", json!([vm, disk])), disk)
        },
        |disk, _| {
            assert_eq!(site.claim(&disk), Value::Null);
            assert_eq!(site.ok("get_disks", json!([vm])), json!([]));
            assert_eq!(site.read(&disk), "precious");
            site.ok("delete_disk", json!([disk]));
        },
    );
    kills += sweep(
        site,
        3,
        || {
            let disk = site.disk(&vm);
            (Asked::new("snapshot_disk", json!([disk, {}])), disk)
        },
        |disk, snapshot| {
            let snapshot = snapshot.as_str().unwrap();
            let name = snapshot.rsplit_once(':').unwrap().1;
            held(&[volume(&disk), &format!("{}/{name}", volume(&disk))]);
            site.ok("delete_snapshot", json!([snapshot]));
            held(&[volume(&disk)]);
            site.ok("delete_disk", json!([disk]));
        },
    );
    site.ok("delete_vm", json!([vm]));
    assert_eq!(site.held(), [stemcell]);
    kills
}

fn networks(site: &Site) -> u64 {
    let made = || -> Vec<String> {
        let listed = site.listed().into_iter().filter(|(kind, ..)| *kind == "network");
        listed.map(|(_, name, _)| name).collect()
    };
    sweep(
        site,
        2,
        || (Asked::new("create_network", json!([{"type": "manual", "netmask_bits": 26}])), ()),
        |(), network| {
            assert_eq!(made(), [network[0].as_str().unwrap()]);
            site.ok("delete_network", json!([network[0]]));
            assert!(made().is_empty());
        },
    )
}
