//! Locks between tasks. A lock is held by its task alone, and as long as that has not ended: one that ended, however its end was
//! written, holds nothing, and a clock that jumps takes nothing from one that runs. What a director that died held stays with its
//! tasks, which the next start takes up again or ends.

use windlass_database::Transaction;
use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;
use windlass_planning::names::DeploymentName;
use windlass_planning::software::CompilationKey;

use super::{Store, StoreError, events};

/// Until when a lock is said to live, in seconds from now. Clients show it; nothing is decided by it.
const LEASE: i64 = 60;

/// What a lock protects. On record and for clients it is a text, such as `deployment:redis`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockName(String);

const DEPLOYMENT: &str = "deployment:";

impl LockName {
    pub(crate) fn of_deployment(name: &DeploymentName) -> Self {
        Self(format!("{DEPLOYMENT}{name}"))
    }

    /// One lock for all releases.
    pub(crate) fn of_releases() -> Self {
        Self("release".to_owned())
    }

    pub(crate) fn of_compilation(key: &CompilationKey) -> Self {
        let CompilationKey { release, package, version, os, stemcell, .. } = key;
        Self(format!("compile:{release}/{package}/{version}:{os}/{stemcell}"))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the deployment, if it is the lock of one.
    pub(crate) fn deployment(&self) -> Option<&str> {
        self.0.strip_prefix(DEPLOYMENT)
    }
}

/// As it is on record, or as a client names it.
impl From<String> for LockName {
    fn from(name: String) -> Self {
        Self(name)
    }
}

impl std::fmt::Display for LockName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockRecord {
    pub name: LockName,
    /// The task that holds it.
    pub task: i64,
    /// Unix seconds.
    pub expires_at: i64,
}

/// why a lock was not got
#[derive(Debug, thiserror::Error)]
pub(crate) enum LockError {
    /// another task holds it
    #[error("task {task} holds the lock '{name}': wait for it, or cancel it")]
    Held {
        name: LockName,
        /// Its holder.
        task: i64,
    },
    /// the records cannot be read
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Takes a lock for a task of this director; one that goes on after a kill may have it already.
    pub(crate) async fn take_lock(&self, name: &LockName, task: i64, owner: &str) -> Result<(), LockError> {
        let mut transaction = self.database.begin().await.map_err(StoreError::from)?;
        let taken = sqlx::query(
            "INSERT INTO locks (name, task, owner, expires_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO UPDATE SET task = $2, owner = $3, expires_at = $4
             WHERE locks.task = $2 OR NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = locks.task
                AND tasks.state IN ('queued', 'processing', 'cancelling'))",
        )
        .bind(name.as_str())
        .bind(task)
        .bind(owner)
        .bind(clock::now() + LEASE)
        .execute(transaction.connection())
        .await
        .map_err(StoreError::from)?
        .rows_affected();
        if taken == 1 {
            events::locks_change(&mut transaction, "acquire", task, Some(name.as_str())).await?;
            transaction.commit().await.map_err(StoreError::from)?;
            return Ok(());
        }
        let holder: i64 = sqlx::query_scalar("SELECT task FROM locks WHERE name = $1")
            .bind(name.as_str())
            .fetch_one(transaction.connection())
            .await
            .map_err(StoreError::from)?;
        Err(LockError::Held { name: name.clone(), task: holder })
    }

    /// Renews all locks of this director whose tasks have not ended.
    pub(crate) async fn renew_locks(&self, owner: &str) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "UPDATE locks SET expires_at = $1 WHERE owner = $2 AND EXISTS (SELECT 1 FROM tasks
                WHERE tasks.id = locks.task AND tasks.state IN ('queued', 'processing', 'cancelling'))",
        )
        .bind(clock::now() + LEASE)
        .bind(owner);
        self.database.execute(statement).await?;
        Ok(())
    }

    /// Releases all locks of a task.
    #[cfg(test)]
    pub(crate) async fn release_locks(&self, task: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        release(&mut transaction, task).await?;
        Ok(transaction.commit().await?)
    }

    /// Removes locks whose tasks have ended.
    pub(crate) async fn forget_ended_locks(&self) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query(
            "DELETE FROM locks WHERE NOT EXISTS (SELECT 1 FROM tasks
                WHERE tasks.id = locks.task AND tasks.state IN ('queued', 'processing', 'cancelling'))",
        )
        .execute(transaction.connection())
        .await?;
        Ok(transaction.commit().await?)
    }

    /// The task that a lock is on record for, whether or not it has ended.
    pub(crate) async fn holder(&self, lock: &LockName) -> Result<Option<i64>, StoreError> {
        let holder = sqlx::query_scalar("SELECT task FROM locks WHERE name = $1").bind(lock.as_str());
        Ok(holder.fetch_optional(self.database.pool()).await?)
    }

    /// Removes a lock of a task.
    pub(crate) async fn unlock(&self, lock: &LockName, task: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        events::locks_change(&mut transaction, "release", task, Some(lock.as_str())).await?;
        sqlx::query("DELETE FROM locks WHERE name = $1 AND task = $2")
            .bind(lock.as_str())
            .bind(task)
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }

    /// Locks that are held.
    pub(crate) async fn locks(&self) -> Result<Vec<LockRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT locks.* FROM locks JOIN tasks ON tasks.id = locks.task
             WHERE tasks.state IN ('queued', 'processing', 'cancelling') ORDER BY locks.name",
        )
        .fetch_all(self.database.pool())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(LockRecord {
                    name: row.try_get::<String, _>("name")?.into(),
                    task: row.try_get("task")?,
                    expires_at: row.try_get("expires_at")?,
                })
            })
            .collect()
    }
}

/// Releases all locks of a task.
pub(super) async fn release(transaction: &mut Transaction, task: i64) -> Result<(), StoreError> {
    events::locks_change(transaction, "release", task, None).await?;
    sqlx::query("DELETE FROM locks WHERE task = $1").bind(task).execute(transaction.connection()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Busy, Lane, NewTask};
    use crate::tasks::Job;
    use crate::testing::TestDirector;

    async fn task(store: &Store) -> i64 {
        let job = Job::DeleteOrphanedVms;
        let task = store.add_task(&NewTask { job, user: "me".into(), context_id: String::new() }).await.unwrap();
        store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap();
        task
    }

    /// Its end may have been written while its locks could not be removed.
    /// Clients and databases of earlier versions have these texts.
    #[test]
    fn the_names_of_locks_stay_as_they_are_on_record() {
        let key = ["r", "p", "1", "os", "2", "[]"].map(str::to_owned);
        let [release, package, version, os, stemcell, dependency_key] = key;
        let key = CompilationKey { release, package, version, os, stemcell, dependency_key };
        let deployment = LockName::of_deployment(&"shop".into());
        let names = [deployment.clone(), LockName::of_releases(), LockName::of_compilation(&key)];
        assert_eq!(names.map(|name| name.to_string()), ["deployment:shop", "release", "compile:r/p/1:os/2"]);
        assert_eq!((deployment.deployment(), LockName::of_releases().deployment()), (Some("shop"), None));
    }

    #[tokio::test]
    async fn the_lock_of_a_task_that_ended_is_neither_renewed_nor_in_the_way() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        let (first, second) = (task(store).await, task(store).await);
        store.take_lock(&LockName::of_deployment(&"d".into()), first, "me").await.unwrap();
        let refused = store.take_lock(&LockName::of_deployment(&"d".into()), second, "me").await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("task {first} holds the lock 'deployment:d': wait for it, or cancel it")
        );
        store.tamper("UPDATE tasks SET state = 'done' WHERE id = 1").await;
        let before: i64 =
            sqlx::query_scalar("SELECT expires_at FROM locks").fetch_one(store.database.pool()).await.unwrap();
        store.tamper("UPDATE locks SET expires_at = expires_at - 5").await;
        store.renew_locks("me").await.unwrap();
        let after: i64 =
            sqlx::query_scalar("SELECT expires_at FROM locks").fetch_one(store.database.pool()).await.unwrap();
        assert_eq!(after, before - 5);
        assert_eq!(store.locks().await.unwrap(), []);
        store.take_lock(&LockName::of_deployment(&"d".into()), second, "me").await.unwrap();
        assert_eq!(store.locks().await.unwrap()[0].task, second);
    }

    /// A clock that jumps, or a machine that slept, would let two deploys of one deployment run side by side.
    #[tokio::test]
    async fn a_lock_is_held_as_long_as_its_task_runs_whatever_the_clock_says() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        let (first, second) = (task(store).await, task(store).await);
        store.take_lock(&LockName::of_deployment(&"d".into()), first, "me").await.unwrap();
        store.tamper("UPDATE locks SET expires_at = 0").await;
        assert!(
            matches!(store.take_lock(&LockName::of_deployment(&"d".into()), second, "me").await, Err(LockError::Held { task, .. }) if task == first)
        );
        assert_eq!(store.locks().await.unwrap()[0].task, first, "and it is shown");
    }

    #[tokio::test]
    async fn the_end_of_a_task_and_of_its_locks_are_one() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        let first = task(store).await;
        store.take_lock(&LockName::of_deployment(&"d".into()), first, "me").await.unwrap();
        store.finish_task(first, crate::store::TaskState::Error, "it broke").await.unwrap();
        assert_eq!(store.holder(&LockName::of_deployment(&"d".into())).await.unwrap(), None);
        store.tamper("INSERT INTO locks (name, task, owner, expires_at) VALUES ('x', 1, 'me', 9999999999)").await;
        store.forget_ended_locks().await.unwrap();
        assert_eq!(store.holder(&"x".to_owned().into()).await.unwrap(), None);
    }
}
