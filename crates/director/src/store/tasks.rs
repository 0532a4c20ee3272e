//! Tasks: what was asked for, who works on it, how it ended.

use std::collections::{BTreeMap, HashSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use windlass_contract::shortened;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_operations::clock;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::Plan;

use super::insist::insist;
use super::{Busy, LOOK_UP, Lane, Store, StoreError, from_json, locks, to_json, to_long_json};
use crate::users;

/// How many bytes are kept of what a task is called, which may have names that nobody has looked for yet.
const LONGEST_DESCRIPTION: usize = 1000;

/// How many letters of a task's result a list has: a list may have a thousand of them, and a failure much to say.
const LONGEST_LISTED: usize = 2000;
/// How many bytes of a task's result are kept. VMs and CPIs say why something failed; all of it is in the task's outputs.
const LONGEST_RESULT: usize = 8 << 10;
/// The tasks with the newest plan of each deployment, and with that of its last deploy, which tells what was not reached.
const NEWEST_PLANS: &str =
    "SELECT MAX(plans.task) FROM plans JOIN deployments ON deployments.name = plans.deployment GROUP BY plans.deployment
     UNION SELECT MAX(plans.task) FROM plans JOIN deployments ON deployments.name = plans.deployment JOIN tasks ON tasks.id = plans.task
        WHERE tasks.type = 'update_deployment' GROUP BY plans.deployment";
/// How many tasks of each type a deployment keeps, however many others have.
const TASKS_OF_A_DEPLOYMENT: i64 = 20;

#[derive(Debug, Clone)]
pub(crate) struct TaskRecord {
    /// Counts up.
    pub id: i64,
    /// How far it is.
    pub state: TaskState,
    /// Shown to people.
    pub description: String,
    pub user: String,
    pub deployment: Option<String>,
    /// From the request's header.
    pub context_id: String,
    /// Once it ended.
    pub result: Option<String>,
    /// Unix seconds.
    pub started_at: Option<i64>,
    /// Unix seconds.
    pub finished_at: Option<i64>,
    /// How often it was begun.
    pub tries: i64,
}

/// What a task is to do, as far as the records care.
pub(crate) trait StoredJob: Serialize + DeserializeOwned {
    /// The type, as lists of tasks filter by it.
    fn kind(&self) -> &'static str;
    /// For people, in the words that clients look for.
    fn description(&self) -> String;
    /// The deployment that it is about.
    fn deployment(&self) -> Option<&DeploymentName>;
}

/// A task that is to be carried out now, or was when its director was killed.
#[derive(Debug)]
pub(crate) struct ClaimedTask<J> {
    pub record: TaskRecord,
    /// What to do; an error if another version of the director wrote it, or if it is damaged.
    pub job: Result<J, StoreError>,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TaskState {
    /// Nobody works on it yet.
    Queued,
    Processing,
    /// Somebody does, and was asked to stop.
    Cancelling,
    /// It was stopped.
    Cancelled,
    /// It ended well.
    Done,
    Error,
}

impl TaskState {
    /// The word on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Cancelling => "cancelling",
            Self::Cancelled => "cancelled",
            Self::Done => "done",
            Self::Error => "error",
        }
    }

    /// Nobody works on a task whose state is not known here, so that it counts as failed.
    fn parse(word: &str) -> Self {
        let all = [Self::Queued, Self::Processing, Self::Cancelling, Self::Cancelled, Self::Done];
        all.into_iter().find(|state| state.as_str() == word).unwrap_or(Self::Error)
    }
}

/// A task to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewTask<J> {
    pub job: J,
    pub user: String,
    /// From the request's header.
    pub context_id: String,
}

/// Which tasks; those fields that are empty say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskFilter {
    /// In one of these states.
    pub states: Vec<String>,
    /// Of one of these types.
    pub kinds: Vec<String>,
    pub deployment: Option<String>,
    /// From the request's header.
    pub context_id: Option<String>,
    /// About deployments of one of these teams; none for all tasks.
    pub teams: Option<Vec<String>>,
    /// So many at most.
    pub limit: i64,
}

/// All of a record but what the task is to do: that has a manifest, and only the worker reads it.
const RECORD: &str = "tasks.id, tasks.state, tasks.description, tasks.username, tasks.deployment, tasks.context_id, tasks.result, \
    tasks.started_at, tasks.finished_at, tasks.tries";

fn read(row: &AnyRow) -> Result<TaskRecord, StoreError> {
    Ok(TaskRecord {
        id: row.try_get("id")?,
        state: TaskState::parse(row.try_get("state")?),
        description: row.try_get("description")?,
        user: row.try_get("username")?,
        deployment: row.try_get("deployment")?,
        context_id: row.try_get("context_id")?,
        result: row.try_get("result")?,
        started_at: row.try_get("started_at")?,
        finished_at: row.try_get("finished_at")?,
        tries: row.try_get("tries")?,
    })
}

fn read_with_job<J: StoredJob>(row: &AnyRow) -> Result<ClaimedTask<J>, StoreError> {
    Ok(ClaimedTask { record: read(row)?, job: from_json("tasks.job", row.try_get("job")?) })
}

impl Store {
    /// Queues a task.
    pub(crate) async fn add_task<J: StoredJob>(&self, task: &NewTask<J>) -> Result<i64, StoreError> {
        let mut transaction = self.database.begin().await?;
        let row = sqlx::query(
            "INSERT INTO tasks (state, type, description, username, deployment, context_id, job, created_at)
             VALUES ('queued', $1, $2, $3, $4, $5, $6, $7) RETURNING id",
        )
        .bind(task.job.kind())
        .bind(shortened(task.job.description(), LONGEST_DESCRIPTION))
        .bind(task.user.as_str())
        .bind(task.job.deployment().map(DeploymentName::as_str))
        .bind(task.context_id.as_str())
        .bind(to_json("tasks.job", &task.job)?)
        .bind(clock::now())
        .fetch_one(transaction.connection())
        .await?;
        let id: i64 = row.try_get("id")?;
        // Kept with the task, because it outlives its deployment.
        sqlx::query("INSERT INTO task_teams (task, team) SELECT $1, team FROM deployment_teams WHERE deployment = $2")
            .bind(id)
            .bind(task.job.deployment().map(DeploymentName::as_str))
            .execute(transaction.connection())
            .await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// The teams of the deployment that a task was about when it was queued, by name.
    pub(crate) async fn teams_of_task(&self, id: i64) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar("SELECT team FROM task_teams WHERE task = $1 ORDER BY team")
            .bind(id)
            .fetch_all(self.database.pool())
            .await?)
    }

    /// Claims the oldest queued task of a lane for this director, but none of those who have enough under way.
    pub(crate) async fn claim_task<J: StoredJob>(
        &self,
        owner: &str,
        lane: Lane,
        busy: &Busy<'_>,
    ) -> Result<Option<ClaimedTask<J>>, StoreError> {
        let mut transaction = self.database.begin().await?;
        let Busy { users, teams, admins } = busy;
        let mut next = 5;
        let mut listed = |words: &[&str]| {
            let numbers: Vec<String> = (next..next + words.len()).map(|number| format!("${number}")).collect();
            next += words.len();
            numbers.join(", ")
        };
        let mut others = String::new();
        if !users.is_empty() {
            let (users, nobody) = (listed(users), listed(&users::NOBODY));
            others.push_str(&format!(
                " AND (username NOT IN ({users})
                    OR (username IN ({nobody}) AND EXISTS (SELECT 1 FROM task_teams WHERE task_teams.task = tasks.id)))"
            ));
        }
        if !teams.is_empty() {
            let (admins, teams) = (listed(admins), listed(teams));
            others.push_str(&format!(
                " AND (username IN ({admins}) OR NOT EXISTS (SELECT 1 FROM task_teams WHERE task_teams.task = tasks.id AND team IN ({teams})))"
            ));
        }
        let statement = format!(
            "UPDATE tasks SET state = 'processing', owner = $1, started_at = COALESCE(started_at, $2), tries = tries + 1
             WHERE id = (SELECT id FROM tasks WHERE state = 'queued' AND (type = $3) = ($4 = 1){others} ORDER BY id LIMIT 1)
                AND state = 'queued' RETURNING *"
        );
        let mut claim = sqlx::query(AssertSqlSafe(statement))
            .bind(owner)
            .bind(clock::now())
            .bind(LOOK_UP)
            .bind(i64::from(lane == Lane::LookUps));
        let of_users = if users.is_empty() { Vec::new() } else { [users.as_slice(), &users::NOBODY].concat() };
        let of_teams = if teams.is_empty() { Vec::new() } else { [admins.as_slice(), teams.as_slice()].concat() };
        for name in of_users.iter().chain(&of_teams) {
            claim = claim.bind(*name);
        }
        let row = claim.fetch_optional(transaction.connection()).await?;
        transaction.commit().await?;
        row.as_ref().map(read_with_job).transpose()
    }

    /// Puts a task that an earlier run worked on back into the queue; it keeps its locks. False if it is to stop.
    pub(crate) async fn resume_task(&self, id: i64) -> Result<bool, StoreError> {
        let mut transaction = self.database.begin().await?;
        let resumed =
            sqlx::query("UPDATE tasks SET state = 'queued', owner = NULL WHERE id = $1 AND state = 'processing'")
                .bind(id)
                .execute(transaction.connection())
                .await?;
        transaction.commit().await?;
        Ok(resumed.rows_affected() == 1)
    }

    /// What a task is to do from its next try on.
    pub(crate) async fn replace_job<J: StoredJob>(&self, id: i64, job: &J) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("UPDATE tasks SET job = $1 WHERE id = $2")
            .bind(to_json("tasks.job", job)?)
            .bind(id)
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }

    /// How a task ended, and with it the end of its locks. Returns once it is written, however long the disk is full.
    pub(crate) async fn finish_task(&self, id: i64, state: TaskState, result: &str) -> Result<(), StoreError> {
        match insist("the end of a task", || self.write_end(id, state, result)).await {
            Ok(()) => Ok(()),
            // A task that never ended would keep its locks: rather an end without words.
            Err(error) => {
                tracing::error!(
                    task = id,
                    error = windlass_contract::explain(&error),
                    "what a task says cannot be written"
                );
                insist("the end of a task", || self.write_end(id, state, "what it said cannot be written")).await
            }
        }
    }

    async fn write_end(&self, id: i64, state: TaskState, result: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        locks::release(&mut transaction, id).await?;
        // What it was to do is of no use any more, may be large, and may hold secrets.
        sqlx::query("UPDATE tasks SET state = $1, result = $2, finished_at = $3, owner = NULL, job = '' WHERE id = $4")
            .bind(state.as_str())
            .bind(shortened(result.to_owned(), LONGEST_RESULT))
            .bind(clock::now())
            .bind(id)
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }

    /// Asks a task to stop; false when it ended already. One that nobody works on is cancelled at once.
    pub(crate) async fn cancel_task(&self, id: i64) -> Result<bool, StoreError> {
        let statement = sqlx::query(
            "UPDATE tasks SET state = CASE state WHEN 'queued' THEN 'cancelled' ELSE 'cancelling' END,
                finished_at = CASE state WHEN 'queued' THEN $2 ELSE finished_at END,
                job = CASE state WHEN 'queued' THEN '' ELSE job END
             WHERE id = $1 AND state IN ('queued', 'processing')",
        )
        .bind(id)
        .bind(clock::now());
        let changed = self.database.execute(statement).await?;
        Ok(changed == 1)
    }

    pub(crate) async fn task(&self, id: i64) -> Result<Option<TaskRecord>, StoreError> {
        let statement = format!("SELECT {RECORD} FROM tasks WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(statement)).bind(id).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(read).transpose()
    }

    /// Tasks that pass a filter, newest first, with the beginnings of their results.
    pub(crate) async fn tasks(&self, filter: &TaskFilter) -> Result<Vec<TaskRecord>, StoreError> {
        let Some(teams) = &filter.teams else { return self.tasks_of(filter, None).await };
        let mut found = Vec::new();
        for team in teams {
            found.extend(self.tasks_of(filter, Some(team)).await?);
        }
        found.sort_by_key(|task| std::cmp::Reverse(task.id));
        found.dedup_by_key(|task| task.id);
        found.truncate(usize::try_from(filter.limit).unwrap_or(usize::MAX));
        Ok(found)
    }

    async fn tasks_of(&self, filter: &TaskFilter, team: Option<&str>) -> Result<Vec<TaskRecord>, StoreError> {
        self.rows_of(filter, team).await?.iter().map(read).collect()
    }

    async fn rows_of(&self, filter: &TaskFilter, team: Option<&str>) -> Result<Vec<AnyRow>, StoreError> {
        // Lists of words are compared as text between commas, so that one statement serves them all.
        let listed = |words: &[String]| words.iter().map(|word| format!(",{word},")).collect::<String>();
        let record = RECORD.replace("tasks.result", &format!("SUBSTR(tasks.result, 1, {LONGEST_LISTED}) AS result"));
        let statement = format!(
            "SELECT {record} FROM tasks WHERE ($1 = '' OR $1 LIKE '%,' || state || ',%') AND ($2 = '' OR $2 LIKE '%,' || type || ',%')
                AND ($3 = '' OR deployment = $3) AND ($4 = '' OR context_id = $4)
                AND ($5 = '' OR id IN (SELECT task FROM task_teams WHERE team = $5)) ORDER BY id DESC LIMIT $6"
        );
        let rows = sqlx::query(AssertSqlSafe(statement))
            .bind(listed(&filter.states))
            .bind(listed(&filter.kinds))
            .bind(filter.deployment.as_deref().unwrap_or_default())
            .bind(filter.context_id.as_deref().unwrap_or_default())
            .bind(team.unwrap_or_default())
            .bind(filter.limit)
            .fetch_all(self.database.pool())
            .await?;
        Ok(rows)
    }

    /// Tasks that are being worked on. Asked at a director's start, when it works on none itself: an earlier run did.
    pub(crate) async fn interrupted_tasks<J: StoredJob>(&self) -> Result<Vec<ClaimedTask<J>>, StoreError> {
        let rows = sqlx::query("SELECT * FROM tasks WHERE state IN ('processing', 'cancelling') ORDER BY id")
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(read_with_job).collect()
    }

    /// What uploads that have not ended are to do; those that cannot be read are left out. Of other tasks each may have megabytes of
    /// manifest, and there may be hundreds.
    pub(crate) async fn unfinished_uploads<J: StoredJob>(&self) -> Result<Vec<J>, StoreError> {
        let jobs: Vec<String> = sqlx::query_scalar(
            "SELECT job FROM tasks WHERE state IN ('queued', 'processing', 'cancelling') AND type IN ('update_release', 'update_stemcell')",
        )
        .fetch_all(self.database.pool())
        .await?;
        Ok(jobs.iter().filter_map(|job| from_json("tasks.job", job).ok()).collect())
    }

    /// Whether a task of this type, about this deployment, waits or runs.
    pub(crate) async fn has_unfinished_task(
        &self,
        kind: &str,
        deployment: Option<&DeploymentName>,
    ) -> Result<bool, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM tasks WHERE state IN ('queued', 'processing', 'cancelling') AND type = $1
                AND ($2 = '' OR deployment = $2)",
        )
        .bind(kind)
        .bind(deployment.map_or("", DeploymentName::as_str))
        .fetch_one(self.database.pool())
        .await?;
        Ok(count > 0)
    }

    /// The ids of all tasks.
    pub(crate) async fn task_ids(&self) -> Result<HashSet<i64>, StoreError> {
        let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM tasks").fetch_all(self.database.pool()).await?;
        Ok(ids.into_iter().collect())
    }

    /// The ids and users of all tasks that ended, the newest first.
    pub(crate) async fn ended_tasks(&self) -> Result<Vec<(i64, String)>, StoreError> {
        let ended = "SELECT id, username FROM tasks WHERE state IN ('done', 'error', 'cancelled') ORDER BY id DESC";
        Ok(sqlx::query_as(ended).fetch_all(self.database.pool()).await?)
    }

    /// Forgets tasks that ended, but for the newest of each type, some of each type of every deployment that is there, and those
    /// whose plan is the newest of a deployment that is there.
    pub(crate) async fn forget_tasks(&self, keep: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let old: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT id FROM (SELECT id, deployment, ROW_NUMBER() OVER (PARTITION BY type ORDER BY id DESC) AS place,
                    ROW_NUMBER() OVER (PARTITION BY type, deployment ORDER BY id DESC) AS place_in_deployment
                FROM tasks WHERE state IN ('done', 'error', 'cancelled')) AS ended
             WHERE place > $1 AND id NOT IN ({NEWEST_PLANS})
                AND (place_in_deployment > $2 OR NOT EXISTS (SELECT 1 FROM deployments WHERE name = ended.deployment))
             ORDER BY id"
        )))
        .bind(keep)
        .bind(keep.min(TASKS_OF_A_DEPLOYMENT))
        .fetch_all(transaction.connection())
        .await?;
        // Earlier versions kept what tasks were to do beyond their end.
        sqlx::query("UPDATE tasks SET job = '' WHERE state IN ('done', 'error', 'cancelled') AND job <> ''")
            .execute(transaction.connection())
            .await?;
        for id in &old {
            sqlx::query("DELETE FROM plans WHERE task = $1").bind(*id).execute(transaction.connection()).await?;
            sqlx::query("DELETE FROM task_teams WHERE task = $1").bind(*id).execute(transaction.connection()).await?;
            sqlx::query("DELETE FROM tasks WHERE id = $1").bind(*id).execute(transaction.connection()).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Keeps the plan that a task carries out, unless nothing is to be done: plans are most of what a database holds. Says how many bytes
    /// it has.
    pub(crate) async fn save_plan(&self, task: i64, plan: &Plan) -> Result<u64, StoreError> {
        let mut transaction = self.database.begin().await?;
        if plan.is_empty() {
            sqlx::query("DELETE FROM plans WHERE task = $1").bind(task).execute(transaction.connection()).await?;
            transaction.commit().await?;
            return Ok(0);
        }
        let text = to_long_json("plans.plan", plan)?;
        let length = text.len() as u64;
        // A task may plan again before it begins.
        let save =
            "INSERT INTO plans (task, deployment, plan) VALUES ($1, $2, $3) ON CONFLICT (task) DO UPDATE SET plan = $3";
        sqlx::query(save)
            .bind(task)
            .bind(plan.deployment.as_str())
            .bind(text)
            .execute(transaction.connection())
            .await?;
        transaction.commit().await?;
        Ok(length)
    }

    /// Forgets the oldest plans of users who have more than so many bytes of them. The newest of each deployment stays: it tells what a
    /// failed deploy has not come to.
    pub(crate) async fn forget_plans(&self, most: i64) -> Result<(), StoreError> {
        let statement = format!(
            "SELECT plans.task, tasks.username, CAST(OCTET_LENGTH(plans.plan) AS BIGINT) AS length FROM plans JOIN tasks ON tasks.id = plans.task
             WHERE tasks.state IN ('done', 'error', 'cancelled') AND plans.task NOT IN ({NEWEST_PLANS}) ORDER BY plans.task DESC"
        );
        let rows = sqlx::query(AssertSqlSafe(statement)).fetch_all(self.database.pool()).await?;
        let mut taken: BTreeMap<String, i64> = BTreeMap::new();
        for row in &rows {
            let taken = taken.entry(row.try_get("username")?).or_default();
            *taken += row.try_get::<i64, _>("length")?;
            if *taken > most {
                let forget = sqlx::query("DELETE FROM plans WHERE task = $1").bind(row.try_get::<i64, _>("task")?);
                self.database.execute(forget).await?;
            }
        }
        Ok(())
    }

    /// The tasks that carried out plans for a deployment, newest first, and how many letters each plan has.
    pub(crate) async fn plans_of(
        &self,
        deployment: &DeploymentName,
        most: u32,
    ) -> Result<Vec<(TaskRecord, i64)>, StoreError> {
        let statement = format!(
            "SELECT {RECORD}, CAST(OCTET_LENGTH(plans.plan) AS BIGINT) AS length FROM plans JOIN tasks ON tasks.id = plans.task
             WHERE plans.deployment = $1 ORDER BY plans.task DESC LIMIT $2"
        );
        let query = sqlx::query(AssertSqlSafe(statement)).bind(deployment.as_str()).bind(i64::from(most));
        let rows = query.fetch_all(self.database.pool()).await?;
        rows.iter().map(|row| Ok((read(row)?, row.try_get("length")?))).collect()
    }

    /// The plan of the newest deploy that had something to do, unless that deploy ended well.
    pub(crate) async fn plan_of_unfinished_deploy(
        &self,
        deployment: &DeploymentName,
    ) -> Result<Option<String>, StoreError> {
        let newest = sqlx::query(
            "SELECT tasks.id, tasks.state FROM plans JOIN tasks ON tasks.id = plans.task
             WHERE plans.deployment = $1 AND tasks.type = 'update_deployment' ORDER BY plans.task DESC LIMIT 1",
        );
        let newest = newest.bind(deployment.as_str()).fetch_optional(self.database.pool()).await?;
        match newest {
            Some(row) if row.try_get::<String, _>("state")? != "done" => self.plan_of_task(row.try_get("id")?).await,
            _ => Ok(None),
        }
    }

    /// One of them, as it is kept. A plan has what each of thousands of instances is to be, so nobody has many in memory.
    pub(crate) async fn plan_of_task(&self, task: i64) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar("SELECT plan FROM plans WHERE task = $1").bind(task);
        Ok(query.fetch_optional(self.database.pool()).await?)
    }
}

#[cfg(test)]
mod tests {
    use windlass_database::sqlx::Column;

    use super::*;
    use crate::tasks::{DeployOptions, Job};
    use crate::testing::TestDirector;

    /// Plans were most of the database, and most of them did nothing.
    #[tokio::test]
    async fn a_plan_that_does_nothing_is_not_kept() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        let new = NewTask { job: Job::DeleteOrphanedVms, user: "me".into(), context_id: String::new() };
        let task = store.add_task(&new).await.unwrap();
        let instance = serde_json::json!({"id": "i", "group": "g", "index": 0, "az": null, "bootstrap": true, "state": "started",
            "spec": null, "actions": []});
        let plan = |removed: &[serde_json::Value]| {
            let plan = serde_json::json!({"deployment": "shop", "removed": removed, "groups": []});
            serde_json::from_value::<Plan>(plan).unwrap()
        };
        let (nothing, something) = (plan(&[]), plan(&[instance]));
        for (plan, is_kept) in [(&something, true), (&nothing, false), (&something, true)] {
            let length = store.save_plan(task, plan).await.unwrap();
            assert_eq!((length > 0, store.plan_of_task(task).await.unwrap().is_some()), (is_kept, is_kept));
        }
    }

    /// A manifest has up to 2 MiB, a list a thousand tasks, and either may name passwords.
    #[tokio::test]
    async fn lists_of_tasks_read_no_manifest_and_what_ended_keeps_none() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        let queue = async || {
            let (deployment, manifest) = ("shop".into(), "name: shop".to_owned());
            let job = Job::UpdateDeployment { deployment, manifest, options: DeployOptions::default() };
            store.add_task(&NewTask { job, user: "me".into(), context_id: String::new() }).await.unwrap()
        };
        let (done, cancelled) = (queue().await, queue().await);
        let rows = store.rows_of(&TaskFilter { limit: 10, ..TaskFilter::default() }, None).await.unwrap();
        let columns: Vec<&str> = rows[0].columns().iter().map(|column| column.name()).collect();
        assert!(rows.len() == 2 && columns.contains(&"description") && !columns.contains(&"job"), "{columns:?}");

        assert!(store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap().job.is_ok());
        store.finish_task(done, TaskState::Done, "").await.unwrap();
        store.cancel_task(cancelled).await.unwrap();
        let jobs = async || {
            let jobs = sqlx::query_scalar::<_, String>("SELECT job FROM tasks");
            jobs.fetch_all(store.database.pool()).await.unwrap()
        };
        assert_eq!(jobs().await, ["", ""]);
        store.tamper("UPDATE tasks SET job = 'of an earlier version'").await;
        store.forget_tasks(10).await.unwrap();
        assert_eq!(jobs().await, ["", ""]);
    }
}
