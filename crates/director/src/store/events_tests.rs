//! What becomes an event, who reads which, and which go.

use windlass_contract::{DiskCid, MiB, VmCid};
use windlass_operations::ledger::{Ledger, NewDisk};
use windlass_operations::testing::new_instance_record;
use windlass_planning::names::{CpiName, DiskName};
use windlass_planning::records::{DiskRecord, InstanceRecord};

use super::*;
use crate::store::{LockName, NewTask, StoredJob};

async fn store(folder: &std::path::Path) -> Store {
    Store::open(&format!("sqlite:{}", folder.join("director.db").display())).await.unwrap()
}

#[derive(serde::Serialize, serde::Deserialize)]
struct AnyJob;

impl StoredJob for AnyJob {
    fn kind(&self) -> &'static str {
        "any"
    }

    fn description(&self) -> String {
        "any job".to_owned()
    }

    fn deployment(&self) -> Option<&DeploymentName> {
        None
    }
}

fn intent(task: i64, change: Change) -> Intent {
    let (id, cpi) = (RequestId::random(), CpiName::Default);
    Intent { id, task: Some(task), cpi, stemcell_version: None, change, child: None, elsewhere: None, doubt: None }
}

fn instance() -> InstanceRecord {
    InstanceRecord { converged: false, ..new_instance_record("d", "db", "uuid") }
}

/// The events of a disk say who made it, for which instance, and why something failed.
#[tokio::test]
async fn what_is_done_in_a_cloud_has_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    store.add_deployment(&"d".into(), &[]).await.unwrap();
    store.begin_instances(&[instance()], &[]).await.unwrap();
    let task = store.add_task(&NewTask { job: AnyJob, user: "me".into(), context_id: String::new() }).await.unwrap();
    store.take_lock(&LockName::of_deployment(&"d".into()), task, "owner").await.unwrap();

    let disk = NewDisk {
        instance: "uuid".into(),
        name: DiskName::Managed,
        cpi: CpiName::Default,
        size: MiB(1),
        cloud_properties: Object::new(),
    };
    let cid = DiskCid::new("disk-1").unwrap();
    let made = DiskRecord {
        cid: cid.clone(),
        instance: "uuid".into(),
        name: DiskName::Managed,
        cpi: CpiName::Default,
        size: MiB(1),
        cloud_properties: Object::new(),
        active: false,
        vm: None,
        mounted: false,
        hint: None,
    };
    let creation = intent(task, Change::CreateDisk { disk, near: None });
    let ledger: &dyn Ledger = &store;
    let open = ledger.open_intent(creation).await.unwrap();
    open.settle(&Fact::DiskCreated { disk: made }).await.unwrap();
    store.record(&Fact::DiskOrphaned { disk: cid.clone() }).await.unwrap();
    let deletion = intent(task, Change::DeleteVm { cid: VmCid::new("vm-1").unwrap() });
    ledger.open_intent(deletion).await.unwrap().abandon("no power").await.unwrap();
    store.release_locks(task).await.unwrap();

    let events = store.events(&EventFilter::default()).await.unwrap();
    let told: Vec<_> = events
        .iter()
        .rev()
        .map(|EventRecord { parent, event, .. }| {
            let Event { user, action, object_type, object_name, instance, error, .. } = event;
            let words = [object_name.as_deref(), instance.as_deref(), error.as_deref()].map(|word| word.unwrap_or("-"));
            format!("{user} {action} {object_type} {} {}", words.join(" "), parent.unwrap_or(0))
        })
        .collect();
    assert_eq!(
        told,
        [
            "me acquire lock lock:deployment:d - - 0",
            "me create disk - db/uuid - 0",
            "me create disk disk-1 db/uuid - 2",
            "me orphan disk disk-1 db/uuid - 0",
            "me orphan disk disk-1 db/uuid - 4",
            "me delete vm vm-1 - - 0",
            "me delete vm vm-1 - no power 6",
            "me release lock lock:deployment:d - - 0",
        ]
    );
    assert!(events.iter().all(|event| event.event.task == Some(task)));
}

/// Who takes the name of a deployment that is gone would read what happened to it.
#[tokio::test]
async fn a_team_sees_no_events_of_a_deployment_of_others_that_had_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let note = async || {
        let event = Event { deployment: Some("d".to_owned()), ..Event::new("me", "create", "vm", None) };
        store.add_event(&event).await.unwrap()
    };
    let seen_by = async |team: &str| {
        let seen_by = Some(("somebody".to_owned(), vec![team.to_owned()]));
        let events = store.events(&EventFilter { seen_by, ..EventFilter::default() }).await.unwrap();
        events.into_iter().map(|event| event.id).collect::<Vec<_>>()
    };
    store.add_deployment(&"d".into(), &["bank".to_owned()]).await.unwrap();
    let first = note().await;
    assert_eq!(seen_by("bank").await, [first]);
    store.remove_deployment(&"d".into()).await.unwrap();
    let earlier = sqlx::query("UPDATE events SET happened_at = happened_at - 1");
    earlier.execute(store.database.pool()).await.unwrap();
    store.add_deployment(&"d".into(), &["shop".to_owned()]).await.unwrap();
    assert_eq!((seen_by("shop").await, seen_by("bank").await), (vec![], vec![]));
    let second = note().await;
    assert_eq!(seen_by("shop").await, [second]);
}

/// Five thousand commands in a VM had forgotten what everybody else did.
#[tokio::test]
async fn a_user_who_does_very_much_has_nothing_forgotten_that_others_did() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let quiet = store.add_event(&Event::new("admin", "delete", "vm", Some("v"))).await.unwrap();
    for number in 0..6 {
        store.add_event(&Event::new("eve", "exec", "instance", Some(&number.to_string()))).await.unwrap();
    }
    store.forget_events(3).await.unwrap();
    assert!(store.event(quiet).await.unwrap().is_some());
    let left = store.events(&EventFilter::default()).await.unwrap();
    let of_eve = left.iter().filter(|it| it.event.user == "eve").count();
    assert_eq!((left.len(), of_eve), (4, 3));
}

/// A VM with 64 KB to say each time that its team came in wrote gigabytes an hour to the director's database.
#[tokio::test]
async fn what_a_team_has_its_vms_say_does_not_fill_the_disk_before_old_events_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let begun = store.add_event(&Event::new("eve", "exec", "instance", Some("i"))).await.unwrap();
    store.end_event(begun, Some(&"\u{a0}".repeat(32 << 10))).await.unwrap();
    let ended = store.event(begun + 1).await.unwrap().unwrap();
    assert!(ended.event.error.unwrap().len() < LONGEST_KEPT + 100);

    store
        .tamper(
            "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 12000)
             INSERT INTO events (happened_at, username, action, object_type, context)
             SELECT 0, 'eve', 'exec', 'instance', '{}' FROM number",
        )
        .await;
    for _ in 0..UNSEEN {
        store.add_event(&Event::new("eve", "exec", "instance", Some("i"))).await.unwrap();
    }
    let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM events").fetch_one(store.database.pool()).await.unwrap();
    assert!(left <= KEPT + 2, "{left}");
}

/// An event that a killed director began must not look as if it still went on.
/// A VM that raised alerts for a day had all else forgotten; one with long ones had a list take gigabytes.
#[tokio::test]
async fn alerts_of_vms_send_no_other_events_away_and_lists_leave_long_contexts_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let who = store.add_event(&Event::new("admin", "delete", "vm", Some("v"))).await.unwrap();
    let mut alert = Event::new("resurrector", "create", "alert", Some("a"));
    for words in [10, 10, 10, LONGEST_CONTEXT + 1] {
        alert.context.insert("message".into(), json!("x".repeat(words)));
        store.add_event(&alert).await.unwrap();
    }
    store.forget_events(2).await.unwrap();
    let left = store.events(&EventFilter::default()).await.unwrap();
    let left: Vec<_> = left.iter().map(|it| (it.event.object_type.as_str(), it.event.context.len())).collect();
    assert_eq!(left, [("alert", 0), ("alert", 1), ("vm", 0)]);
    assert_eq!(store.event(who + 4).await.unwrap().unwrap().event.context.len(), 1, "all of it has the event alone");
    for _ in 0..2 {
        store.add_event(&Event::new("admin", "create", "vm", Some("w"))).await.unwrap();
    }
    store.forget_events(2).await.unwrap();
    assert_eq!(store.event(who).await.unwrap(), None);
    assert_eq!(store.events(&EventFilter::default()).await.unwrap().len(), 4);
}

#[tokio::test]
async fn what_a_task_left_without_an_end_ends_with_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path()).await;
    let task = store.add_task(&NewTask { job: AnyJob, user: "me".into(), context_id: String::new() }).await.unwrap();
    let deployment = Event { task: Some(task), ..Event::new("me", "update", "deployment", Some("d")) };
    let begun = store.add_event(&deployment).await.unwrap();
    let ended = store.begin_instance_event(task, "create", &"d".into(), &"db/1".into()).await.unwrap();
    store.end_event(ended, None).await.unwrap();
    let open = store.begin_instance_event(task, "create", &"d".into(), &"db/2".into()).await.unwrap();
    let of_another = store.begin_instance_event(task + 1, "create", &"d".into(), &"db/3".into()).await.unwrap();
    for _ in 0..2 {
        store.end_events_of(task, "killed").await.unwrap();
    }
    let events = store.events(&EventFilter::default()).await.unwrap();
    let ends: Vec<_> = events
        .iter()
        .rev()
        .filter(|event| event.id > of_another)
        .map(|event| (event.parent, event.event.error.as_deref()))
        .collect();
    assert_eq!(ends, [(Some(open), Some("killed")), (Some(begun), Some("killed"))]);
}
