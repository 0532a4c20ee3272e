//! Events: who did what to what, and how it ended. What takes time has two, and the second names the first as its parent.
//!
//! Those of clouds are written together with their intents and facts (see [`intent_begins`]), those of locks with the
//! locks; so no code path can forget one, and no kill can leave one behind.

use serde_json::json;
use windlass_contract::{Object, RequestId};
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_operations::clock;
use windlass_operations::ledger::{Change, Fact, Intent};
use windlass_planning::names::{DeploymentName, InstanceId, InstanceName};

use super::{Store, StoreError, from_json, to_json};

/// The user of events that no user asked for.
const DIRECTOR: &str = "_director";
/// How many events a list has.
const MOST: i64 = 200;
/// How many letters of an event's error a list has; all of them has the event alone.
const LONGEST_ERROR: usize = 2000;
/// How many letters of context an event may have to be listed with it; a longer one has the event alone.
const LONGEST_CONTEXT: usize = 16_000;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EventRecord {
    /// Counts up.
    pub id: i64,
    /// The event whose end this is.
    pub parent: Option<i64>,
    /// Unix seconds.
    pub happened_at: i64,
    /// All else.
    pub event: Event,
}

/// Something that happens.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Event {
    pub user: String,
    /// Such as `create`.
    pub action: String,
    /// Such as `vm`.
    pub object_type: String,
    /// Its cid or name.
    pub object_name: Option<String>,
    /// The task that did it.
    pub task: Option<i64>,
    /// The deployment that it was about.
    pub deployment: Option<String>,
    /// The instance that it was about.
    pub instance: Option<InstanceName>,
    /// Why it failed.
    pub error: Option<String>,
    /// More about it.
    pub context: Object,
}

impl Event {
    /// A user does something.
    pub(crate) fn new(user: &str, action: &str, object_type: &str, object_name: Option<&str>) -> Self {
        Self {
            user: user.to_owned(),
            action: action.to_owned(),
            object_type: object_type.to_owned(),
            object_name: object_name.map(str::to_owned),
            ..Self::default()
        }
    }

    pub(crate) fn director_starts(name: &str) -> Self {
        let mut event = Self::new(DIRECTOR, "start", "director", Some(name));
        event.context.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
        event
    }
}

/// Which events; those fields that are empty say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    /// Older than this one.
    pub before_id: Option<i64>,
    /// Before this second.
    pub before: Option<i64>,
    /// After this second.
    pub after: Option<i64>,
    pub task: Option<i64>,
    pub deployment: Option<String>,
    pub instance: Option<InstanceName>,
    pub user: Option<String>,
    /// Of a kind.
    pub action: Option<String>,
    /// To a kind of thing.
    pub object_type: Option<String>,
    /// To a thing.
    pub object_name: Option<String>,
    /// What a user did, or what happened to deployments of these teams; none for all events.
    pub seen_by: Option<(String, Vec<String>)>,
}

fn read(row: &AnyRow) -> Result<EventRecord, StoreError> {
    Ok(EventRecord {
        id: row.try_get("id")?,
        parent: row.try_get("parent")?,
        happened_at: row.try_get("happened_at")?,
        event: Event {
            user: row.try_get("username")?,
            action: row.try_get("action")?,
            object_type: row.try_get("object_type")?,
            object_name: row.try_get("object_name")?,
            task: row.try_get("task")?,
            deployment: row.try_get("deployment")?,
            instance: row.try_get::<Option<String>, _>("instance")?.map(Into::into),
            error: row.try_get("error")?,
            context: from_json("events.context", &row.try_get::<String, _>("context")?)?,
        },
    })
}

pub(super) const END_EVENTS_OF: &str =
    "INSERT INTO events (parent, happened_at, username, action, object_type, object_name, task, deployment, instance, error, context)
     SELECT id, $2, username, action, object_type, object_name, task, deployment, instance, CAST($3 AS TEXT), '{}'
     FROM events WHERE task = $1 AND parent IS NULL AND object_type IN ('deployment', 'instance')
        AND id NOT IN (SELECT parent FROM events WHERE task = $1 AND parent IS NOT NULL) ORDER BY id DESC";

impl Store {
    /// Notes that something happens, and gives its id.
    pub(crate) async fn add_event(&self, event: &Event) -> Result<i64, StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        let row = sqlx::query(
            "INSERT INTO events (happened_at, username, action, object_type, object_name, task, deployment, instance, error, context)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
        )
        .bind(clock::now())
        .bind(event.user.as_str())
        .bind(event.action.as_str())
        .bind(event.object_type.as_str())
        .bind(event.object_name.as_deref())
        .bind(event.task)
        .bind(event.deployment.as_deref())
        .bind(event.instance.as_deref())
        .bind(event.error.as_deref())
        .bind(to_json("events.context", &event.context)?)
        .fetch_one(transaction.connection())
        .await?;
        transaction.commit().await?;
        Ok(row.try_get("id")?)
    }

    /// Notes that a task does something to an instance.
    pub(crate) async fn begin_instance_event(
        &self,
        task: i64,
        action: &str,
        deployment: &DeploymentName,
        instance: &InstanceName,
    ) -> Result<i64, StoreError> {
        let user: Option<String> = sqlx::query_scalar("SELECT username FROM tasks WHERE id = $1")
            .bind(task)
            .fetch_optional(self.database.pool())
            .await?;
        let event = Event {
            task: Some(task),
            deployment: Some(deployment.to_string()),
            instance: Some(instance.clone()),
            ..Event::new(user.as_deref().unwrap_or(DIRECTOR), action, "instance", Some(instance))
        };
        self.add_event(&event).await
    }

    /// Notes how something ended.
    pub(crate) async fn end_event(&self, beginning: i64, error: Option<&str>) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        ends(&mut transaction, beginning, error, &Object::new()).await?;
        Ok(transaction.commit().await?)
    }

    /// Notes that something ended, and what came of it.
    pub(crate) async fn end_event_with(&self, beginning: i64, context: &Object) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        ends(&mut transaction, beginning, None, context).await?;
        Ok(transaction.commit().await?)
    }

    /// Notes that what a task had begun ended with it, for want of any other end. What was done in clouds is not among it: that
    /// ends with its intents.
    pub(crate) async fn end_events_of(&self, task: i64, error: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        sqlx::query(END_EVENTS_OF).bind(task).bind(clock::now()).bind(error).execute(transaction.connection()).await?;
        Ok(transaction.commit().await?)
    }

    /// Forgets all but the newest. Alerts are counted apart: VMs raise as many as they like, and would have forgotten who did what.
    pub(crate) async fn forget_events(&self, keep: i64) -> Result<(), StoreError> {
        for kind in ["object_type = 'alert'", "object_type <> 'alert'"] {
            let statement = format!(
                "DELETE FROM events WHERE {kind} AND id < (SELECT MIN(id) FROM
                   (SELECT id FROM events WHERE {kind} ORDER BY id DESC LIMIT $1) AS kept)"
            );
            self.database.execute(sqlx::query(AssertSqlSafe(statement)).bind(keep)).await?;
        }
        Ok(())
    }

    pub(crate) async fn event(&self, id: i64) -> Result<Option<EventRecord>, StoreError> {
        let row =
            sqlx::query("SELECT * FROM events WHERE id = $1").bind(id).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(read).transpose()
    }

    /// Events that pass a filter, newest first, with the beginnings of their errors.
    pub(crate) async fn events(&self, filter: &EventFilter) -> Result<Vec<EventRecord>, StoreError> {
        let Some((user, teams)) = &filter.seen_by else { return self.events_of(filter, ("", "")).await };
        let mut found = self.events_of(filter, (user, "")).await?;
        for team in teams {
            found.extend(self.events_of(filter, ("", team)).await?);
        }
        found.sort_by_key(|event| std::cmp::Reverse(event.id));
        found.dedup_by_key(|event| event.id);
        found.truncate(usize::try_from(MOST).unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Those of a user, or of a team's deployments, or all.
    async fn events_of(
        &self,
        filter: &EventFilter,
        (user, team): (&str, &str),
    ) -> Result<Vec<EventRecord>, StoreError> {
        let word = |word: &Option<String>| word.clone().unwrap_or_default();
        let statement = format!(
            "SELECT id, parent, happened_at, username, action, object_type, object_name, task, deployment, instance,
               SUBSTR(error, 1, {LONGEST_ERROR}) AS error,
               CASE WHEN LENGTH(context) > {LONGEST_CONTEXT} THEN '{{}}' ELSE context END AS context FROM events WHERE id < $1 AND happened_at < $2 AND happened_at > $3 AND ($4 = -1 OR task = $4)
               AND ($5 = '' OR deployment = $5) AND ($6 = '' OR instance = $6) AND ($7 = '' OR username = $7)
               AND ($8 = '' OR action = $8) AND ($9 = '' OR object_type = $9) AND ($10 = '' OR object_name = $10)
               AND ($11 = '' OR username = $11)
               AND ($12 = '' OR EXISTS (SELECT 1 FROM deployments d JOIN deployment_teams t ON t.deployment = d.name
                 WHERE d.name = events.deployment AND t.team = $12 AND d.created_at <= events.happened_at))
             ORDER BY id DESC LIMIT $13"
        );
        let rows = sqlx::query(AssertSqlSafe(statement))
            .bind(filter.before_id.unwrap_or(i64::MAX))
            .bind(filter.before.unwrap_or(i64::MAX))
            .bind(filter.after.unwrap_or(-1))
            .bind(filter.task.unwrap_or(-1))
            .bind(word(&filter.deployment))
            .bind(filter.instance.as_deref().unwrap_or_default())
            .bind(word(&filter.user))
            .bind(word(&filter.action))
            .bind(word(&filter.object_type))
            .bind(word(&filter.object_name))
            .bind(user)
            .bind(team)
            .bind(MOST)
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(read).collect()
    }
}

/// What a change does, to what, and of which instance. None for changes that nobody asks about.
enum ChangeOwner<'c> {
    Instance(&'c InstanceId),
    OfVm(&'c str),
    OfDisk(&'c str),
    Nobody,
}

fn words(change: &Change) -> Option<(&'static str, &'static str, Option<String>, ChangeOwner<'_>)> {
    Some(match change {
        Change::CreateStemcell { stemcell, .. } => {
            ("create", "stemcell", Some(format!("{}/{}", stemcell.name, stemcell.version)), ChangeOwner::Nobody)
        }
        Change::DeleteStemcell { cid, .. } => ("delete", "stemcell", Some(cid.to_string()), ChangeOwner::Nobody),
        Change::CreateVm { vm } => ("create", "vm", None, ChangeOwner::Instance(&vm.instance)),
        Change::DeleteVm { cid } => ("delete", "vm", Some(cid.to_string()), ChangeOwner::OfVm(cid.as_str())),
        Change::CreateDisk { disk, .. } => ("create", "disk", None, ChangeOwner::Instance(&disk.instance)),
        Change::DeleteDisk { cid } => ("delete", "disk", Some(cid.to_string()), ChangeOwner::OfDisk(cid.as_str())),
        Change::SnapshotDisk { disk, .. } => ("create", "snapshot", None, ChangeOwner::OfDisk(disk.as_str())),
        Change::DeleteSnapshot { cid } => ("delete", "snapshot", Some(cid.to_string()), ChangeOwner::Nobody),
        _ => return None,
    })
}

/// Notes, with an intent, that a change begins.
pub(super) async fn intent_begins(transaction: &mut Transaction, intent: &Intent) -> Result<(), StoreError> {
    let Some((action, object_type, name, owner)) = words(&intent.change) else { return Ok(()) };
    let (of_instance, of_vm, of_disk) = match owner {
        ChangeOwner::Instance(id) => (id.as_str(), "", ""),
        ChangeOwner::OfVm(cid) => ("", cid, ""),
        ChangeOwner::OfDisk(cid) => ("", "", cid),
        ChangeOwner::Nobody => ("", "", ""),
    };
    let instance = sqlx::query(
        "SELECT deployment, instance_group || '/' || id AS name FROM instances WHERE id = $1
            OR id = (SELECT instance FROM vms WHERE cid = $2) OR id = (SELECT instance FROM disks WHERE cid = $3)",
    )
    .bind(of_instance)
    .bind(of_vm)
    .bind(of_disk)
    .fetch_optional(transaction.connection())
    .await?;
    let (mut deployment, mut instance_name): (Option<String>, Option<String>) = (None, None);
    if let Some(row) = instance {
        (deployment, instance_name) = (row.try_get("deployment")?, row.try_get("name")?);
    }
    let row = sqlx::query(
        "INSERT INTO events (happened_at, username, action, object_type, object_name, task, deployment, instance, context)
         VALUES ($1, COALESCE((SELECT username FROM tasks WHERE id = $5), $8), $2, $3, $4, $5, $6, $7, '{}') RETURNING id",
    )
    .bind(clock::now())
    .bind(action)
    .bind(object_type)
    .bind(name)
    .bind(intent.task)
    .bind(deployment)
    .bind(instance_name)
    .bind(DIRECTOR)
    .fetch_one(transaction.connection())
    .await?;
    sqlx::query("UPDATE intents SET event = $1 WHERE id = $2")
        .bind(row.try_get::<i64, _>("id")?)
        .bind(intent.id.as_str())
        .execute(transaction.connection())
        .await?;
    Ok(())
}

/// Notes, with the end of an intent, how the change ended.
pub(super) async fn intent_ends(
    transaction: &mut Transaction,
    id: &RequestId,
    made: Option<&str>,
    error: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO events (parent, happened_at, username, action, object_type, object_name, task, deployment, instance, error, context)
         SELECT e.id, $2, e.username, e.action, e.object_type, COALESCE(CAST($3 AS TEXT), e.object_name), e.task, e.deployment,
            e.instance, CAST($4 AS TEXT), '{}'
         FROM events e JOIN intents i ON i.event = e.id WHERE i.id = $1",
    )
    .bind(id.as_str())
    .bind(clock::now())
    .bind(made)
    .bind(error)
    .execute(transaction.connection())
    .await?;
    Ok(())
}

/// The cid that a fact tells of, where it was not known before.
pub(super) fn made(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::StemcellCreated { cid, .. } => Some(cid.as_str()),
        Fact::VmCreated { vm } => Some(vm.cid.as_str()),
        Fact::DiskCreated { disk } => Some(disk.cid.as_str()),
        Fact::SnapshotTaken { snapshot } => Some(snapshot.cid.as_str()),
        _ => None,
    }
}

/// Notes that a disk, which still has its record, is given up by the task that has the lock of its deployment. It begins and
/// ends at once; the original writes two events all the same.
pub(super) async fn disk_is_orphaned(transaction: &mut Transaction, cid: &str) -> Result<(), StoreError> {
    let beginning = sqlx::query_scalar::<_, i64>(
        "INSERT INTO events (happened_at, username, action, object_type, object_name, task, deployment, instance, context)
         SELECT $2, COALESCE(t.username, $3), 'orphan', 'disk', d.cid, t.id, i.deployment, i.instance_group || '/' || i.id, '{}'
         FROM disks d JOIN instances i ON i.id = d.instance LEFT JOIN locks l ON l.name = 'deployment:' || i.deployment
            LEFT JOIN tasks t ON t.id = l.task WHERE d.cid = $1 RETURNING id",
    )
    .bind(cid)
    .bind(clock::now())
    .bind(DIRECTOR)
    .fetch_optional(transaction.connection())
    .await?;
    match beginning {
        Some(beginning) => ends(transaction, beginning, None, &Object::new()).await,
        None => Ok(()),
    }
}

/// Notes how something ended.
async fn ends(
    transaction: &mut Transaction,
    beginning: i64,
    error: Option<&str>,
    context: &Object,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO events (parent, happened_at, username, action, object_type, object_name, task, deployment, instance, error, context)
         SELECT id, $2, username, action, object_type, object_name, task, deployment, instance, CAST($3 AS TEXT), CAST($4 AS TEXT)
         FROM events WHERE id = $1",
    )
    .bind(beginning)
    .bind(clock::now())
    .bind(error)
    .bind(to_json("events.context", context)?)
    .execute(transaction.connection())
    .await?;
    Ok(())
}

/// Notes that a task takes or gives back locks: the one named, or all of its.
pub(super) async fn locks_change(
    transaction: &mut Transaction,
    action: &str,
    task: i64,
    name: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO events (happened_at, username, action, object_type, object_name, task, deployment, context)
         SELECT $1, COALESCE(t.username, $5), $2, 'lock', 'lock:' || l.name, l.task,
            CASE WHEN l.name LIKE 'deployment:%' THEN SUBSTR(l.name, 12) ELSE t.deployment END, '{}'
         FROM locks l LEFT JOIN tasks t ON t.id = l.task WHERE l.task = $3 AND ($4 = '' OR l.name = $4)",
    )
    .bind(clock::now())
    .bind(action)
    .bind(task)
    .bind(name.unwrap_or_default())
    .bind(DIRECTOR)
    .execute(transaction.connection())
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
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
        let task =
            store.add_task(&NewTask { job: AnyJob, user: "me".into(), context_id: String::new() }).await.unwrap();
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
                let words =
                    [object_name.as_deref(), instance.as_deref(), error.as_deref()].map(|word| word.unwrap_or("-"));
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
        assert_eq!(
            store.event(who + 4).await.unwrap().unwrap().event.context.len(),
            1,
            "all of it has the event alone"
        );
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
        let task =
            store.add_task(&NewTask { job: AnyJob, user: "me".into(), context_id: String::new() }).await.unwrap();
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
}
