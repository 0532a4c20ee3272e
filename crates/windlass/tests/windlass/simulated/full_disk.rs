//! A state directory, or a database, without space: what was begun is finished once there is room again, by the same director.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_database::PrivatePostgres;
use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::is_own_machine;
use windlass_rigs::small_disk::SmallDisk;

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

/// Sends smaller and smaller cloud configs until each is refused, because some space may be left within the database.
fn is_told_to_clients(site: &Site) {
    let config = fs::read_to_string(site.file("cloud-config.yml")).unwrap();
    let refusal = |size: usize| {
        (0..20).find_map(|number| {
            let path = site.write("large.yml", &format!("{config}# {number}{}\n", "x".repeat(size)));
            let output = site.windlass(&["-n", "update-cloud-config", &path]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            (!output.status.success()).then_some(said)
        })
    };
    for size in [1_500_000, 100_000, 5_000] {
        let said = refusal(size).unwrap_or_else(|| panic!("a full disk took 20 times {size} bytes"));
        assert!(said.contains("the director's disk is full"), "{said}\n{}", site.log());
    }
}

/// What those are told who watch the director.
fn health(site: &Site) -> String {
    let output = site.windlass(&["curl", "--show-headers", "/health"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_director_whose_disk_was_full_goes_on_when_there_is_room_again() {
    if !is_own_machine("simulated::full_disk::a_director_whose_disk_was_full_goes_on_when_there_is_room_again") {
        return;
    }
    let mut disk = None;
    let mut site = Site::start_in(json!({"sim": {}}), "{}\n", |state_dir| {
        disk = Some(SmallDisk::on(state_dir, "size=48m,mode=700"));
    });
    let _goes_before_the_site = disk;
    let state_dir = site.state_dir();
    fill_and_free(&mut site, &state_dir, true);
}

#[test]
fn a_director_whose_postgresql_was_full_goes_on_when_there_is_room_again() {
    if !is_own_machine("simulated::full_disk::a_director_whose_postgresql_was_full_goes_on_when_there_is_room_again") {
        return;
    }
    let mut server = PrivatePostgres::start().unwrap();
    // Its tables alone: a server that cannot write its log ends, and then it is away, which is another test.
    let (tables, aside) = (server.data().join("base"), server.data().join("aside"));
    server.stop().unwrap();
    fs::rename(&tables, &aside).unwrap();
    fs::create_dir(&tables).unwrap();
    let owner = fs::metadata(&aside).unwrap();
    let disk = SmallDisk::on(&tables, &format!("size=48m,mode=700,uid={},gid={}", owner.uid(), owner.gid()));
    let copied = Command::new("cp").arg("-a").arg(aside.join(".")).arg(&tables).status();
    assert!(copied.unwrap().success());
    server.start_again().unwrap();
    let mut site = Site::start(json!({"sim": {}}), &format!("db: {}\n", server.url()));
    // Its log is elsewhere, and the page with the watchers' line has room.
    fill_and_free(&mut site, &tables, false);
    drop(site);
    server.stop().unwrap();
    drop(disk);
}

/// Fills the `folder` that the director needs after so many calls to the cloud, up to more than a recreate makes.
fn fill_and_free(site: &mut Site, folder: &Path, tells_watchers: bool) {
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    site.deploy(&[GROUP]);
    let (_, _, content) = site.attached_disk();
    fs::write(content.join("precious"), "data").unwrap();

    for point in Points::sampled(3) {
        let (before, made) = (site.requests().len(), usize::try_from(point - 1).unwrap());
        let mut recreate = site
            .verb(&["-n", "-d", "example", "recreate"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let calls = || site.requests().len() - before;
        wait_for("the recreate does not begin", site, || calls() >= made || recreate.try_wait().unwrap().is_some());
        let was_all = calls() < made;
        fill(folder);
        is_told_to_clients(site);
        if tells_watchers {
            // The rest of the database's log may take some lines yet.
            let full = "the director's disk is full";
            wait_for("nobody who watches is told", site, || {
                let said = health(site);
                said.starts_with("HTTP/1.1 507 ") && said.contains(full)
            });
        }
        fs::remove_file(folder.join("fill")).unwrap();
        wait_for("the recreate does not end", site, || recreate.try_wait().unwrap().is_some());
        wait_for("the director is not well", site, || health(site).starts_with("HTTP/1.1 200 "));
        wait_for("something is locked", site, || site.rows(&["locks"]).is_empty());
        assert!(site.rows(&["tasks"]).is_empty(), "after {made} calls");
        site.update_cloud_config("{}", "{}");
        site.deploy(&[GROUP]);
        let (_, _, content) = site.attached_disk();
        assert_eq!(fs::read_to_string(content.join("precious")).unwrap(), "data", "after {made} calls");
        assert_eq!(site.in_cloud("vms").len(), 1, "after {made} calls");
        assert!(site.ok(&["plan", &site.manifest(&[GROUP])]).contains("nothing to do"), "after {made} calls");
        if was_all {
            assert!(made > 5, "a recreate makes more calls than {made}");
            break;
        }
    }
    site.restart_director();
    assert!(!site.log().contains("an earlier run did not hear the end"), "{}", site.log());
}
