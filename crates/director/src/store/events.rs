//! Events: who did what to what, and how it ended. What takes time has two, and the second names the first as its parent.
//!
//! Those of clouds are written together with their intents and facts (see [`intent_begins`]), those of locks with the
//! locks; so no code path can forget one, and no kill can leave one behind.

use std::sync::atomic::Ordering;

use serde_json::json;
use windlass_contract::{Object, RequestId, shortened};
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_operations::clock;
use windlass_operations::ledger::{Change, Fact, Intent};
use windlass_planning::names::{DeploymentName, InstanceId, InstanceName};

use super::{Store, StoreError, from_json, to_json};
use crate::users::DIRECTOR;

/// How many events a list has.
const MOST: i64 = 200;
/// How many letters of an event's error a list has; all of them has the event alone.
const LONGEST_ERROR: usize = 2000;
/// How many events are kept.
const KEPT: i64 = 10_000;
/// How many events of each user are kept, however many others have.
const OF_A_USER: i64 = 1000;
/// After so many the old ones are forgotten: users of a team, and their VMs, cause more in an hour than the disk has.
const UNSEEN: usize = 1000;
/// How many bytes of an error are kept. VMs say why something in them failed, and as often as somebody asks.
const LONGEST_KEPT: usize = 8 * 1024;
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

fn kept(error: Option<&str>) -> Option<String> {
    error.map(|error| shortened(error.to_owned(), LONGEST_KEPT))
}

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
        .bind(kept(event.error.as_deref()))
        .bind(to_json("events.context", &event.context)?)
        .fetch_one(transaction.connection())
        .await?;
        transaction.commit().await?;
        let is_time = self.unseen_events.fetch_add(1, Ordering::Relaxed) % UNSEEN == UNSEEN - 1;
        if is_time && let Err(error) = self.forget_old_events().await {
            tracing::warn!(error = windlass_contract::explain(&error), "old events cannot be forgotten");
        }
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
        sqlx::query(END_EVENTS_OF)
            .bind(task)
            .bind(clock::now())
            .bind(kept(Some(error)))
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }

    pub(crate) async fn forget_old_events(&self) -> Result<(), StoreError> {
        self.forget_events(KEPT).await
    }

    /// Forgets all but the newest, and the newest of each user: one who does very many things would have forgotten what others did. Alerts
    /// are counted apart, because VMs raise as many as they like.
    async fn forget_events(&self, keep: i64) -> Result<(), StoreError> {
        for kind in ["object_type = 'alert'", "object_type <> 'alert'"] {
            let statement = format!(
                "DELETE FROM events WHERE id IN (SELECT id FROM
                   (SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC) AS place,
                      ROW_NUMBER() OVER (PARTITION BY username ORDER BY id DESC) AS place_of_user
                    FROM events WHERE {kind}) AS numbered
                 WHERE place > $1 AND place_of_user > $2)"
            );
            let statement = sqlx::query(AssertSqlSafe(statement)).bind(keep).bind(keep.min(OF_A_USER));
            self.database.execute(statement).await?;
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
               CASE WHEN OCTET_LENGTH(context) > {LONGEST_CONTEXT} THEN '{{}}' ELSE context END AS context FROM events WHERE id < $1 AND happened_at < $2 AND happened_at > $3 AND ($4 = -1 OR task = $4)
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
    .bind(kept(error))
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
    .bind(kept(error))
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
#[path = "events_tests.rs"]
mod tests;
