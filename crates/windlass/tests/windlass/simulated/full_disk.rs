//! A state directory without space: what was begun is finished once there is room again, by the same director.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_rigs::own_machine::is_own_machine;

use super::site::{GROUP, Site};

const PATIENCE: Duration = Duration::from_secs(120);

/// Takes all the space that is left.
fn fill(folder: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(folder.join("fill")).unwrap();
    for size in [1 << 16, 1 << 12, 1 << 8, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

fn wait_for(what: &str, site: &Site, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}:\n{}", site.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends cloud configs until one is refused, because some space may be left within the database.
fn is_told_to_clients(site: &Site) {
    let config = fs::read_to_string(site.file("cloud-config.yml")).unwrap();
    for number in 0..10 {
        let path = site.write("large.yml", &format!("{config}# {number}{}\n", "x".repeat(1_500_000)));
        let output = site.windlass(&["-n", "update-cloud-config", &path]);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("the director's disk is full"), "{said}\n{}", site.log());
            return;
        }
    }
    panic!("a full disk took 15 MB");
}

#[test]
fn a_director_whose_disk_was_full_goes_on_when_there_is_room_again() {
    if !is_own_machine("simulated::full_disk::a_director_whose_disk_was_full_goes_on_when_there_is_room_again") {
        return;
    }
    let mut site = Site::start_in(json!({"sim": {}}), "{}\n", |state_dir| {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs"]).arg(state_dir).status();
        assert!(mounted.unwrap().success());
    });
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    site.deploy(&[GROUP]);
    let (_, _, content) = site.attached_disk();
    fs::write(content.join("precious"), "data").unwrap();

    // After so many calls to the cloud; a recreate makes more of them than the last.
    for point in [0, 1, 3, 5] {
        let (state_dir, calls) = (site.state_dir(), site.requests().len());
        let mut recreate = site
            .verb(&["-n", "-d", "example", "recreate"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("the recreate does not begin", &site, || {
            site.requests().len() >= calls + point || recreate.try_wait().unwrap().is_some()
        });
        fill(&state_dir);
        is_told_to_clients(&site);
        fs::remove_file(state_dir.join("fill")).unwrap();
        wait_for("the recreate does not end", &site, || recreate.try_wait().unwrap().is_some());
        wait_for("the director is not well", &site, || site.ok(&["curl", "/health"]).contains("ok"));
        wait_for("something is locked", &site, || site.rows(&["locks"]).is_empty());
        assert!(site.rows(&["tasks"]).is_empty(), "after {point} calls");
        site.update_cloud_config("{}", "{}");
        site.deploy(&[GROUP]);
        let (_, _, content) = site.attached_disk();
        assert_eq!(fs::read_to_string(content.join("precious")).unwrap(), "data", "after {point} calls");
        assert_eq!(site.in_cloud("vms").len(), 1, "after {point} calls");
        assert!(site.ok(&["plan", &site.manifest(&[GROUP])]).contains("nothing to do"), "after {point} calls");
    }
    site.restart_director();
    assert!(!site.log().contains("an earlier run did not hear the end"), "{}", site.log());
}
