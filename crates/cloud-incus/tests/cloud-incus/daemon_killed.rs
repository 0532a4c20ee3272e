//! The daemon killed in the middle of a creation, and started again: the call, or its repetition, ends with one whole thing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_rigs::own_machine::is_own_machine;

use crate::rig::{Asked, Site, volume};

/// How long after the daemon began it is killed. A record of a VM is there before anything else of it is.
const MOMENTS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(150)];

/// Begins a call, kills the daemon when it has something that it had not before, and starts it again. The answer is the call's or,
/// if that failed, the one of the same call made again.
fn answered_over_a_kill(site: &mut Site, asked: &Asked, moment: Duration) -> Value {
    let before = site.held().len();
    let call = Site::begin(&mut site.command(), asked);
    let deadline = Instant::now() + Duration::from_secs(60);
    while site.held().len() == before {
        assert!(Instant::now() < deadline, "nothing is made");
    }
    std::thread::sleep(moment);
    site.lxd_mut().kill_daemon();
    site.lxd_mut().start_daemon();
    let output = call.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    if answer["error"].is_null() {
        return answer["result"].clone();
    }
    let again = site.answer(asked);
    assert_eq!(again["error"], Value::Null, "{again}, after {answer}");
    again["result"].clone()
}

#[test]
fn a_daemon_that_is_killed_in_the_middle_of_a_creation_has_one_whole_thing_in_the_end() {
    const NAME: &str =
        "daemon_killed::a_daemon_that_is_killed_in_the_middle_of_a_creation_has_one_whole_thing_in_the_end";
    if !is_own_machine(NAME) {
        return;
    }
    let Some(mut site) = Site::start(NAME) else { return };
    let stemcell = site.stemcell();
    for moment in MOMENTS {
        let asked = Asked::new("create_vm", site.vm_arguments(&stemcell, 11));
        let created = answered_over_a_kill(&mut site, &asked, moment);
        let vm = created[0].as_str().unwrap().to_owned();
        assert_eq!(site.held(), [vm.as_str(), &stemcell], "after {moment:?}");
        let instance = site.instance(&vm);
        assert_eq!(
            (&instance["status"], &instance["config"]["user.windlass.stage"]),
            (&json!("Running"), &json!("ready"))
        );
        let settings = site.lxd().files_of_instance(&site.project, &vm).join("var/vcap/bosh/warden-cpi-agent-env.json");
        assert!(std::fs::metadata(settings).unwrap().len() > 0);
        site.ok("delete_vm", json!([vm]));
        assert_eq!(site.held(), [stemcell.as_str()]);
    }
    let asked = Asked::new("create_disk", json!([32, {}, null]));
    let disk = answered_over_a_kill(&mut site, &asked, Duration::ZERO);
    let disk = disk.as_str().unwrap().to_owned();
    assert_eq!(site.held(), [stemcell.as_str(), volume(&disk)]);
    site.ok("delete_disk", json!([disk]));
    site.ok("delete_stemcell", json!([stemcell]));
    assert_eq!(site.held(), Vec::<String>::new(), "nothing is left");
}
