//! An agent that is killed at each of its steps in turn, comes back, and is asked again.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_agent_client::Deadlines;
use windlass_durable::sweep::Points;

use crate::machine::{Machine, PATIENCE};
use crate::software::SoftwareBlobs;

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

/// Makes the calls one after the other, each with the blobs that it needs, with a kill at step `machine.kill_at`; says whether
/// there was one.
pub(crate) async fn tell(machine: &mut Machine, blobs: &SoftwareBlobs, calls: &[(&'static str, Value)]) -> bool {
    machine.spawn();
    tell_on(machine, blobs, calls).await
}

/// The same to an agent that was started before.
pub(crate) async fn tell_on(machine: &mut Machine, blobs: &SoftwareBlobs, calls: &[(&'static str, Value)]) -> bool {
    let kill_at = machine.kill_at.unwrap_or_default();
    let mut was_killed = false;
    let patience = Deadlines { silence: Duration::from_millis(200), ..Deadlines::default() };
    let begun = Instant::now();
    let mut position = 0;
    while position < calls.len() {
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
        blobs.hand_over(machine).await;
        let (method, arguments) = &calls[position];
        match director.with_deadlines(patience).call(method, arguments.as_array().unwrap().clone()).await {
            Ok(_) => position += 1,
            // The caller does not know whether it was done, and asks again.
            Err(error) => {
                let deadline = Instant::now() + Duration::from_secs(2);
                while machine.is_running() {
                    assert!(Instant::now() < deadline, "step {kill_at}, {method}: {error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
    was_killed
}

async fn killed_at(kill_at: u64) -> bool {
    let mut machine = Machine::new();
    machine.kill_at = Some(kill_at);
    let calls = story(&machine);
    let was_killed = tell(&mut machine, &SoftwareBlobs::default(), &calls).await;
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

/// Kills at one point after the other until a story ends unkilled; says how many kills there were. A few at a time, because most
/// of it is waiting.
pub(crate) async fn sweep<F: Future<Output = bool> + Send + 'static>(
    mut points: Points,
    killed_at: fn(u64) -> F,
) -> usize {
    let mut kills = 0;
    loop {
        let mut runs = tokio::task::JoinSet::new();
        for point in points.by_ref().take(4) {
            runs.spawn(killed_at(point));
        }
        let killed = runs.join_all().await.into_iter().filter(|killed| *killed).count();
        kills += killed;
        if killed < 4 {
            return kills;
        }
    }
}

#[tokio::test]
async fn a_kill_at_any_step_loses_no_data_and_keeps_no_director_from_going_on() {
    let kills = sweep(Points::one_in(1, 0), killed_at).await;
    assert!(kills > 30, "only {kills} steps were killed; the story has more");
}
