//! A director that was killed while CPIs hang serves at once, and only what is concerned waits.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_rigs::own_machine::is_own_machine;

use super::site::{GROUP, Site};

const PATIENCE: Duration = Duration::from_secs(60);
/// A CPI that outlived its director is waited for longer, and its call is then repeated.
const SOON: Duration = Duration::from_secs(40);

fn wait_for(what: &str, site: &Site, patience: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}:\n{}", site.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// In a machine of its own, with which the CPIs that hang end.
#[test]
fn a_director_that_was_killed_while_calls_hang_serves_at_once() {
    if !is_own_machine("simulated::hung_calls::a_director_that_was_killed_while_calls_hang_serves_at_once") {
        return;
    }
    let mut site = Site::ready(json!({"sim": {}}));
    let hang = |nth: u64| json!({"method": "create_vm", "nth": nth, "fault": "hang"});
    site.change_cloud(json!({"sim": {"faults": [hang(1), hang(2), hang(3)]}}));
    let manifest = site.manifest(&[&GROUP.replace("instances: 1", "instances: 3")]);
    let mut deploy = site.verb(&["-n", "-d", "example", "deploy", &manifest]);
    let mut deploy = deploy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_creation = |request: &Value| request["method"] == "create_vm";
    wait_for("no VM is asked for", &site, PATIENCE, || {
        site.requests().iter().filter(|it| is_creation(it)).count() == 3
    });
    let script = fs::read_to_string(site.state_dir().join("env.sh")).unwrap();
    let address = script.split("https://").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    site.kill_director();
    site.spawn_director(&address);
    wait_for("the director does not serve", &site, SOON, || site.windlass(&["env"]).status.success());
    // It would follow its task to the end.
    deploy.kill().unwrap();
    deploy.wait().unwrap();

    let locks = site.rows(&["locks"]);
    assert_eq!((locks.len(), &locks[0]["resource"]), (1, &json!("example")), "{locks:?}");
    let refused = site.windlass(&["-n", "unlock", "example"]);
    assert!(!refused.status.success(), "two would work on it: {refused:?}");
    let text = fs::read_to_string(site.manifest(&[GROUP])).unwrap();
    let other = site.write("other.yml", &text.replace("name: example", "name: other"));
    site.ok(&["-n", "-d", "other", "deploy", &other]);
    assert_eq!(site.rows(&["-d", "other", "vms"]).len(), 1);
}
