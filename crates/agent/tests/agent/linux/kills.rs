//! An agent that is killed at each of its steps in turn, alone or with its machine, and is asked again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use windlass_agent_client::Deadlines;
use windlass_durable::sweep::Points;

use super::own_machine::{MIB, OwnMachine};
use super::private::{LoopDisk, in_namespaces};

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disks {
    Devices,
    Folders,
}

/// What ends with the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    Alone,
    WithTheMachine,
}

struct Story {
    own: OwnMachine,
    hints: [String; 2],
    disks: Vec<Arc<LoopDisk>>,
}

impl Story {
    fn new(disks: Disks) -> Self {
        match disks {
            Disks::Devices => {
                let own = OwnMachine::new(json!({}));
                let disks = vec![own.disk("old", 32 * MIB), own.disk("new", 48 * MIB)];
                Self { own, hints: [disks[0].path(), disks[1].path()], disks }
            }
            Disks::Folders => {
                let options = json!({"BindMountPersistentDisk": true, "UsePreformattedPersistentDisk": true, "UseDefaultTmpDir": true});
                let own = OwnMachine::new(options).without_programs();
                let hints = ["/disks/old", "/disks/new"].map(str::to_owned);
                for hint in &hints {
                    std::fs::create_dir_all(own.at(hint)).unwrap();
                }
                Self { own, hints, disks: Vec::new() }
            }
        }
    }

    /// A disk comes, is filled, and its data moves to another one. In the end the agent tells which it has.
    fn messages(&self) -> Vec<(&'static str, Value)> {
        let [old, new] = &self.hints;
        vec![
            ("add_persistent_disk", json!(["old", old])),
            ("mount_disk", json!(["old"])),
            ("add_persistent_disk", json!(["new", new])),
            ("mount_disk", json!(["new"])),
            ("migrate_disk", json!(["old", "new"])),
            ("unmount_disk", json!(["old"])),
            ("remove_persistent_disk", json!(["old"])),
            ("list_disk", json!([])),
        ]
    }

    /// What a job does as soon as the first disk is there.
    fn fill(&self) {
        let folder = self.own.base("store/db");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("data"), "precious").unwrap();
        let same = self.own.base("store/same");
        if !same.exists() {
            std::fs::hard_link(folder.join("data"), same).unwrap();
        }
    }

    fn is_on_store(&self, disk: usize) -> bool {
        let identity = |path: PathBuf| path.metadata().map(|found| std::os::unix::fs::MetadataExt::ino(&found)).ok();
        match self.disks.get(disk) {
            Some(disk) => self.own.mounted("store").is_some_and(|mount| mount.2 == format!("{}p1", disk.path())),
            None => {
                self.own.mounted("store").is_some()
                    && identity(self.own.base("store")) == identity(self.own.at(&self.hints[disk]))
            }
        }
    }
}

/// The whole story with a kill at step `kill_at`; says whether there was one.
async fn killed_at(disks: Disks, death: Death, kill_at: u64) -> bool {
    let mut story = Story::new(disks);
    if disks == Disks::Devices {
        // What happens at a first boot is the same for both, and folders are quicker.
        story.own.machine.start().await;
        story.own.machine.kill();
    }
    story.own.machine.kill_at = Some(kill_at);
    let messages = story.messages();
    story.own.machine.spawn();
    let (mut was_killed, mut position, mut answer) = (false, 0, Value::Null);
    let patience = Deadlines { silence: Duration::from_millis(300), ..Deadlines::default() };
    let begun = Instant::now();
    while position < messages.len() {
        let told = |story: &Story| format!("{disks:?}, {death:?}, step {kill_at}: {}", story.own.machine.console());
        assert!(begun.elapsed() < PATIENCE, "no end: {}", told(&story));
        if !story.own.machine.is_running() {
            was_killed = true;
            story.own.machine.kill_at = None;
            match death {
                Death::Alone => story.own.machine.kill(),
                Death::WithTheMachine => story.own.reboot(),
            }
            story.own.machine.start().await;
            // After a kill in a migration, the old data is there, or all of it on the new disk.
            if position == 2 {
                assert!(story.is_on_store(0), "{}", told(&story));
            }
        }
        let director = story.own.machine.director();
        if director.wait_until_ready(Duration::from_secs(1)).await.is_err() {
            continue;
        }
        let (method, arguments) = &messages[position];
        match director.with_deadlines(patience).call(method, arguments.as_array().unwrap().clone()).await {
            Ok(answered) => {
                answer = answered;
                if *method == "mount_disk" && position == 1 {
                    story.fill();
                }
                position += 1;
            }
            // The caller does not know whether it was done, and asks again.
            Err(error) => {
                let deadline = Instant::now() + Duration::from_secs(5);
                while story.own.machine.is_running() {
                    assert!(Instant::now() < deadline, "{method}: {error}; {}", told(&story));
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
    let after = format!("{disks:?}, {death:?}, step {kill_at}: {}", story.own.machine.console());
    assert_eq!(answer, json!(["new"]), "{after}");
    check(&story, &after);
    was_killed
}

fn check(story: &Story, after: &str) {
    assert!(story.is_on_store(1), "{after}");
    assert!(story.own.mounted("store_migration_target").is_none(), "{after}");
    check_data(&story.own.base("store"), after);
    // Nobody has touched the old disk's data.
    let elsewhere = tempfile::tempdir().unwrap();
    match story.disks.first() {
        Some(old) => {
            let node = story.own.at(format!("{}p1", old.path()));
            super::private::run(
                "mount",
                ["-o".as_ref(), "ro".as_ref(), node.as_os_str(), elsewhere.path().as_os_str()],
            );
            check_data(elsewhere.path(), after);
            super::private::run("umount", [elsewhere.path()]);
        }
        None => check_data(&story.own.at(&story.hints[0]), after),
    }
}

fn check_data(folder: &Path, after: &str) {
    for name in ["db/data", "same"] {
        assert_eq!(std::fs::read_to_string(folder.join(name)).unwrap_or_default(), "precious", "{after}");
    }
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.retain(|name| name != "lost+found");
    names.sort();
    assert_eq!(names, ["db", "same"], "{after}");
}

const ONE_IN: u64 = 5;

/// Kills at one step after the other until a run survives.
async fn sweep(disks: Disks, death: Death) {
    const AT_ONCE: usize = 3;
    let mut points = Points::sampled(ONE_IN);
    let (mut kills, mut last) = (0, 0);
    loop {
        let mut runs = tokio::task::JoinSet::new();
        for point in points.by_ref().take(AT_ONCE) {
            runs.spawn(killed_at(disks, death, point));
            last = point;
        }
        let killed = runs.join_all().await.into_iter().filter(|killed| *killed).count();
        kills += killed;
        if killed < AT_ONCE {
            break;
        }
    }
    println!("{disks:?}, {death:?}: {kills} kills at points up to {last}");
    assert!(last > 30, "it survived at point {last} already; the story has more");
}

#[test]
fn a_killed_agent_loses_no_data_of_devices() {
    in_namespaces("linux::kills::a_killed_agent_loses_no_data_of_devices", async || {
        sweep(Disks::Devices, Death::Alone).await;
    });
}

#[test]
fn a_machine_that_dies_at_any_step_loses_no_data_of_devices() {
    in_namespaces("linux::kills::a_machine_that_dies_at_any_step_loses_no_data_of_devices", async || {
        sweep(Disks::Devices, Death::WithTheMachine).await;
    });
}

#[test]
fn a_killed_container_loses_no_data_of_folders() {
    in_namespaces("linux::kills::a_killed_container_loses_no_data_of_folders", async || {
        sweep(Disks::Folders, Death::Alone).await;
        sweep(Disks::Folders, Death::WithTheMachine).await;
    });
}
