//! A director that was killed while fourteen tasks waited for the simulated cloud, each in another kind of change, beside a
//! deployment that was at rest.

use std::collections::BTreeMap;
use std::fs;

use windlass_rigs::earlier_states::of_every_version;

use super::opened::Opened;

/// Deployments whose first deploy was killed.
const BEGUN: [&str; 5] = ["create-vm", "set-vm-metadata", "create-disk", "attach-disk", "set-disk-metadata"];

/// What is on every disk of the cloud, and in every snapshot.
fn data(opened: &Opened, shelf: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(opened.state_dir().join("sim").join(shelf)).unwrap().map(|entry| entry.unwrap());
    let with_data = entries.filter_map(|entry| {
        let content = fs::read_to_string(entry.path().join("content/precious")).ok()?;
        Some((entry.file_name().into_string().unwrap(), content))
    });
    with_data.collect()
}

fn tasks(opened: &Opened, state: &str) -> Vec<String> {
    opened.query(&format!("SELECT CAST(id AS TEXT) FROM tasks WHERE state = '{state}'"))
}

/// Changes of which nobody knows the end, by the ids of their requests.
fn open_changes(opened: &Opened) -> Vec<String> {
    opened.query("SELECT id FROM intents WHERE doubt IS NULL")
}

/// VMs by the names of their instances.
fn vms(opened: &Opened, deployment: &str) -> BTreeMap<String, String> {
    let rows = opened.rows(&["-d", deployment, "vms"]);
    for row in &rows {
        // Nothing is to run on them; an agent that does not answer would be named here.
        assert_eq!(row["process_state"], "", "{row:?}\n{}", opened.log());
    }
    rows.iter().map(|row| (row["instance"].clone(), row["vm_cid"].clone())).collect()
}

#[test]
fn a_director_that_was_killed_in_every_kind_of_change_is_opened_settled_and_finished() {
    for kept in of_every_version("simulated") {
        let mut opened = Opened::unpack(&kept, "127.251.1");
        let (killed, queued) = (tasks(&opened, "processing"), tasks(&opened, "queued"));
        assert_eq!((killed.len(), queued.len()), (14, 1));
        let (disks, snapshots) = (data(&opened, "disks"), data(&opened, "snapshots"));
        let events = opened.query("SELECT CAST(id AS TEXT) FROM events").len();
        let open = open_changes(&opened);
        assert_eq!(open.len(), 14);
        opened.start("127.251.1.2:25777");
        // The task that was queued may have begun others.
        let left: Vec<_> = open_changes(&opened).into_iter().filter(|id| open.contains(id)).collect();
        assert!(left.is_empty(), "{left:?}\n{}", opened.log());
        settled(&opened, &killed, &queued);
        at_rest(&opened);
        finished(&opened);

        let mut left = disks;
        left.retain(|_, content| !content.ends_with(" in erased\n"));
        assert_eq!(data(&opened, "disks"), left, "what was on the disks, except for the one that was being deleted");
        let mut left = snapshots;
        left.retain(|_, content| !content.ends_with(" in delete-snapshot\n"));
        let now = data(&opened, "snapshots");
        assert!(left.iter().all(|(cid, content)| now.get(cid) == Some(content)), "{left:?} {now:?}");
        assert!(opened.query("SELECT CAST(id AS TEXT) FROM events").len() > events);
    }
}

/// What the start alone did.
fn settled(opened: &Opened, killed: &[String], queued: &[String]) {
    opened.wait_until("the end of the task that was queued", || tasks(opened, "done").contains(&queued[0]));
    for task in killed {
        let ended = opened.query(&format!("SELECT state || ': ' || result FROM tasks WHERE id = {task}"));
        assert!(ended[0].starts_with("error: ") && ended[0].contains("Run the command again"), "{ended:?}");
    }
    assert!(tasks(opened, "processing").is_empty());
    opened.wait_until("the end of locks", || opened.rows(&["locks"]).is_empty());

    // The one VM that an operator had the director forget, although the cloud has it: once as a doubt, once as what is there.
    let forgotten = opened.query("SELECT change_json FROM intents WHERE doubt IS NOT NULL");
    let forgotten: serde_json::Value = serde_json::from_str(&forgotten[0]).unwrap();
    let forgotten = forgotten["cid"].as_str().unwrap();
    let leaks = opened.rows(&["leaks"]);
    assert_eq!(leaks.len(), 2, "{leaks:?}");
    assert!(leaks.iter().all(|leak| leak["subject"].ends_with(forgotten)), "{leaks:?}");

    let stemcells = opened.rows(&["stemcells"]);
    let stemcells: Vec<_> =
        stemcells.iter().map(|row| format!("{}/{}", row["name"], row["version"].trim_end_matches('*'))).collect();
    assert!(stemcells.contains(&"new/2".to_owned()), "one that was being uploaded is there: {stemcells:?}");
    assert!(!stemcells.contains(&"new/0".to_owned()), "one that was being deleted is not: {stemcells:?}");
    let orphans: Vec<_> =
        opened.rows(&["disks", "--orphaned"]).into_iter().map(|row| row["deployment"].clone()).collect();
    assert!(orphans.contains(&"gone".to_owned()) && !orphans.contains(&"erased".to_owned()), "{orphans:?}");
    assert_eq!(opened.rows(&["-d", "snapshot-disk", "snapshots"]).len(), 1, "the one that was being taken");
    assert!(opened.rows(&["-d", "delete-snapshot", "snapshots"]).is_empty(), "the one that was being deleted");
}

/// The deployment to which nothing happened.
fn at_rest(opened: &Opened) {
    opened.plans_nothing("steady");
    opened.ok(&["-d", "steady", "cloud-check", "--report"]);
    let rows = opened.rows(&["-d", "steady", "instances", "--details"]);
    let mut resting: Vec<_> = rows
        .iter()
        .filter(|row| row["instance"].starts_with("resting/"))
        .map(|row| (row["state"].as_str(), row["ignore"].as_str(), !row["vm_cid"].is_empty()))
        .collect();
    resting.sort_unstable();
    assert_eq!(resting, [("detached", "false", false), ("started", "true", true), ("stopped", "false", true)]);
    let old: Vec<_> = rows.iter().filter(|row| row["instance"].starts_with("old/")).collect();
    let settings = opened.ok(&[
        "sim",
        "settings",
        &old[0]["vm_cid"],
        "--config",
        opened.state_dir().join("cpi/sim.json").to_str().unwrap(),
    ]);
    assert!(settings.contains("127.251.1.2:25777"), "it has its settings from the registry: {settings}");
    assert_eq!(old[0]["process_state"], "", "its agent answers");
    let orphaned: Vec<_> = opened.rows(&["orphaned-vms"]).into_iter().map(|row| row["instance"].clone()).collect();
    assert!(orphaned.iter().any(|instance| instance.starts_with("swapped/")), "{orphaned:?}");

    let mut kinds: Vec<_> = opened.rows(&["configs"]).into_iter().map(|row| row["type"].clone()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["cloud", "cpi", "notes", "resurrection", "runtime"]);
}

/// The operator repeats what was interrupted, and there is nothing left to do.
fn finished(opened: &Opened) {
    for deployment in BEGUN.into_iter().chain(["resize-disk"]) {
        opened.deploy(deployment);
    }
    opened.ok(&["-n", "-d", "delete-vm", "delete-deployment"]);
    opened.ok(&["-n", "-d", "detach-disk", "recreate"]);
    for deployment in BEGUN.into_iter().chain([
        "steady",
        "reboot-vm",
        "detach-disk",
        "resize-disk",
        "snapshot-disk",
        "delete-snapshot",
    ]) {
        opened.plans_nothing(deployment);
        opened.ok(&["-d", deployment, "cloud-check", "--report"]);
    }
    for deployment in ["reboot-vm", "detach-disk", "resize-disk", "snapshot-disk", "delete-snapshot"] {
        for (instance, vm) in vms(opened, deployment) {
            let store = opened.state_dir().join("sim/vms").join(vm).join("base/store/precious");
            assert_eq!(fs::read_to_string(store).unwrap(), format!("of {instance} in {deployment}\n"));
        }
    }
    // A VM of version 1 can be replaced, too.
    opened.ok(&["-n", "-d", "steady", "recreate", "old"]);
    opened.plans_nothing("steady");
    assert_eq!(opened.rows(&["leaks"]).len(), 2, "no new ones: {:?}", opened.rows(&["leaks"]));
}
