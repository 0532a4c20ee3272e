//! A disk goes to the member of the VM that it is attached to. Wherever the call is killed, there is one disk with all that was on it.

use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};
use windlass_durable::kill_point::KILL_AT;

use crate::rig::{Asked, Site, volume};
use crate::simulated::{Said, Volume};

const VM: &str = "vm-00000000-0000-4000-8000-000000000001";
const DISK: &str = "fast:disk-00000000-0000-4000-8000-000000000002";

/// A VM on n1, and a disk with data on n2.
fn apart() -> Site {
    let site = Site::simulated();
    site.simulation().add_vm(VM, "n1");
    site.simulation().add_disk(volume(DISK), "n2", "precious");
    site
}

fn the_one_disk(site: &Site) -> Volume {
    let volumes = site.simulation().volumes();
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    volumes[0].clone()
}

/// Kills a call at a point; false if it ended before.
fn killed_at(site: &Site, asked: &Asked, point: u64) -> bool {
    let mut command = site.command();
    command.env(KILL_AT, point.to_string());
    site.run(command, asked).status.signal() == Some(9)
}

#[test]
fn a_disk_of_another_member_moves_to_the_vm_and_is_whole_wherever_the_call_is_killed() {
    let mut kills = 0;
    for point in 1.. {
        let site = apart();
        let asked = Asked::new("attach_disk", json!([VM, DISK]));
        let was_killed = killed_at(&site, &asked, point);
        // Until it is repeated, nothing is gone, and nobody else gets half of it.
        let left = site.simulation().volumes();
        let whole = |volume: &&Volume| volume.content == "precious" && volume.stage() != "copying";
        assert!(left.iter().any(|volume| whole(&volume)), "point {point}: {left:?}");
        assert_eq!(site.ok("has_disk", json!([DISK])), true);
        if was_killed {
            let answer = site.answer(&asked);
            assert_eq!(answer["error"], Value::Null, "point {point}: {answer}");
        }
        let disk = the_one_disk(&site);
        assert_eq!((disk.member.as_str(), disk.stage(), disk.content.as_str()), ("n1", "made", "precious"));
        assert_eq!(disk.config["user.windlass.attached_to"], VM);
        assert_eq!(site.ok("get_disks", json!([VM])), json!([DISK]));
        if !was_killed {
            break;
        }
        kills += 1;
    }
    assert!(kills >= 10, "a move takes more requests than {kills} points");
}

/// Between its two halves another call may come: a VM elsewhere, or the end of the disk.
#[test]
fn a_move_that_was_cut_short_is_finished_or_taken_back_by_the_next_call() {
    for point in 1.. {
        let site = apart();
        let was_killed = killed_at(&site, &Asked::new("attach_disk", json!([VM, DISK])), point);
        let attached = site.ok("get_disks", json!([VM])) == json!([DISK]);
        if attached {
            site.ok("detach_disk", json!([VM, DISK]));
        }
        if point % 2 == 0 {
            site.simulation().change(|world| world.instances.remove(VM));
            let other = "vm-00000000-0000-4000-8000-000000000009";
            site.simulation().add_vm(other, "n3");
            site.ok("attach_disk", json!([other, DISK]));
            let disk = the_one_disk(&site);
            assert_eq!((disk.member.as_str(), disk.content.as_str()), ("n3", "precious"), "point {point}");
        } else {
            site.simulation().change(|world| world.instances.remove(VM));
            site.ok("delete_disk", json!([DISK]));
            assert_eq!(site.simulation().volumes(), [], "point {point}: nothing is left of it");
        }
        if !was_killed {
            break;
        }
    }
}

#[test]
fn a_disk_that_cannot_move_stays_where_it_is_and_free() {
    let site = apart();
    site.simulation().says("POST /1.0/storage-pools/fast/volumes/custom/disk-", Said::Refusal(500, "the wire is cut"));
    let (_, words) = site.refused("attach_disk", json!([VM, DISK]));
    assert!(words.contains("have the member 'n2' offer the disk") && words.contains("the wire is cut"), "{words}");
    let disk = the_one_disk(&site);
    assert_eq!((disk.member.as_str(), disk.config.get("user.windlass.attached_to")), ("n2", None));
}

/// Two whole volumes of one name are nobody's guess: neither is attached, neither is deleted.
#[test]
fn two_whole_disks_of_one_name_are_reported_and_never_touched() {
    let site = apart();
    site.simulation().add_disk(volume(DISK), "n3", "something else");
    let before = site.simulation().volumes();
    for (method, arguments) in [("attach_disk", json!([VM, DISK])), ("delete_disk", json!([DISK]))] {
        let (_, words) = site.refused(method, arguments);
        assert!(words.contains("n2 and n3") && words.contains("look which one has the data"), "{words}");
    }
    assert_eq!(site.simulation().volumes(), before);
}
