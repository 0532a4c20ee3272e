//! An agent that is killed at each of its steps in turn, comes back, and is asked again.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_agent_client::Deadlines;

use crate::machine::{Machine, PATIENCE};

/// The life of a disk: it comes, is mounted, and its data moves to another one.
fn story(machine: &Machine) -> Vec<(&'static str, Value)> {
    let (old, old_hint) = machine.disk("old");
    let (new, new_hint) = machine.disk("new");
    let data = machine.folder.path().join("disks/old");
    std::fs::create_dir_all(data.join("db/deep")).unwrap();
    std::fs::write(data.join("db/deep/data"), "precious").unwrap();
    std::fs::hard_link(data.join("db/deep/data"), data.join("same")).unwrap();
    vec![
        ("add_persistent_disk", json!([old, old_hint])),
        ("mount_disk", json!([old])),
        ("unmount_disk", json!([old])),
        ("add_persistent_disk", json!([old, old_hint])),
        ("mount_disk", json!([old])),
        ("add_persistent_disk", json!([new, new_hint])),
        ("mount_disk", json!([new])),
        ("migrate_disk", json!([old, new])),
        ("unmount_disk", json!([old])),
        ("remove_persistent_disk", json!([old])),
        ("update_settings", json!([{"disk_associations": [{"name": "data", "cid": "new"}]}])),
        ("apply", json!([{"id": "i", "networks": {"default": {"ip": machine.address}}}])),
        ("stop", json!([])),
    ]
}

/// Does the whole story with a kill at step `kill_at`; says whether there was one.
async fn killed_at(kill_at: u64) -> bool {
    let mut machine = Machine::new();
    machine.kill_at = Some(kill_at);
    let story = story(&machine);
    machine.spawn();
    let mut was_killed = false;
    let patience = Deadlines { silence: Duration::from_millis(200), ..Deadlines::default() };
    let begun = Instant::now();
    let mut position = 0;
    while position < story.len() {
        assert!(begun.elapsed() < PATIENCE, "no end after a kill at step {kill_at}: {}", machine.console());
        if !machine.is_running() {
            was_killed = true;
            machine.kill_at = None;
            machine.kill();
            machine.start().await;
        }
        let director = machine.director();
        if director.wait_until_ready(Duration::from_secs(1)).await.is_err() {
            continue;
        }
        let (method, arguments) = &story[position];
        match director.with_deadlines(patience).call(method, arguments.as_array().unwrap().clone()).await {
            Ok(_) => position += 1,
            // Whoever asked does not know whether it was done, and asks again.
            Err(error) => {
                let deadline = Instant::now() + Duration::from_secs(2);
                while machine.is_running() {
                    assert!(Instant::now() < deadline, "step {kill_at}, {method}: {error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
    check(&machine, kill_at).await;
    was_killed
}

async fn check(machine: &Machine, kill_at: u64) {
    let after = format!("after a kill at step {kill_at}\n{}", machine.console());
    let director = machine.director();
    let new = machine.folder.path().join("disks/new");
    assert_eq!(json!(director.list_disk().await.unwrap()), json!(["new"]), "{after}");
    assert_eq!(std::fs::read_link(machine.base().join("store")).unwrap(), new, "{after}");
    for disk in ["old", "new"] {
        let disk = machine.folder.path().join("disks").join(disk);
        for name in ["db/deep/data", "same"] {
            assert_eq!(std::fs::read_to_string(disk.join(name)).unwrap_or_default(), "precious", "{after}");
        }
        assert_eq!(names(&disk), ["db", "same"], "{after}");
    }
    assert!(machine.base().join("instance/disks/data/same").exists(), "{after}");
    assert_eq!(director.get_state(false).await.unwrap().job_state, "stopped", "{after}");
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_kill_at_any_step_loses_no_data_and_keeps_no_director_from_going_on() {
    let mut kills = 0;
    // A few at a time, because most of it is waiting.
    for first in (1..).step_by(4) {
        let mut runs = tokio::task::JoinSet::new();
        for step in first..first + 4 {
            runs.spawn(killed_at(step));
        }
        let killed = runs.join_all().await.into_iter().filter(|killed| *killed).count();
        kills += killed;
        if killed < 4 {
            break;
        }
    }
    assert!(kills > 30, "only {kills} steps were killed; the story has more");
}
