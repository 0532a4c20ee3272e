//! A database that is restarted under a director: its task goes on, or fails and can be asked for again.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_database::PrivatePostgres;
use windlass_durable::sweep::Points;
use windlass_rigs::own_machine::is_own_machine;

use super::site::{GROUP, Site};

const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn a_recreate_goes_on_or_can_be_repeated_when_postgresql_is_restarted_under_it() {
    if !is_own_machine(
        "simulated::restarted_database::a_recreate_goes_on_or_can_be_repeated_when_postgresql_is_restarted_under_it",
    ) {
        return;
    }
    let mut server = PrivatePostgres::start().unwrap();
    let site = Site::start(json!({"sim": {}}), &format!("db: {}\n", server.url()));
    site.upload_stemcell("2");
    site.update_cloud_config("{}", "{}");
    site.deploy(&[GROUP]);
    let (_, _, content) = site.attached_disk();
    fs::write(content.join("precious"), "data").unwrap();
    for point in Points::sampled(4) {
        // From its first call on: before it the director may have been asked for nothing.
        let (before, made) = (site.requests().len(), usize::try_from(point).unwrap());
        let calls = || site.requests().len() - before;
        let mut recreate = site.verb(&["-n", "-d", "example", "recreate"]);
        let mut recreate = recreate.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while calls() < made && recreate.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the recreate does not begin:\n{}", site.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        let was_all = calls() < made;
        server.stop().unwrap();
        server.start_again().unwrap();
        let ended = recreate.wait_with_output().unwrap();
        if !ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(said.contains("database"), "after {made} calls: {ended:?}\n{}", site.log());
            site.ok(&["-n", "-d", "example", "recreate"]);
        }
        let (_, _, content) = site.attached_disk();
        assert_eq!(fs::read_to_string(content.join("precious")).unwrap(), "data", "after {made} calls");
        assert_eq!(site.in_cloud("vms").len(), 1, "after {made} calls");
        assert!(site.rows(&["locks"]).is_empty() && site.rows(&["tasks"]).is_empty(), "after {made} calls");
        assert!(site.ok(&["plan", &site.manifest(&[GROUP])]).contains("nothing to do"), "after {made} calls");
        if was_all {
            assert!(made > 5, "a recreate makes more calls than {made}");
            break;
        }
    }
    drop(site);
    server.stop().unwrap();
}
