//! Locks between tasks, with a lease that their holder renews, so that a director that died does not hold them for ever.

use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;

use super::{Store, StoreError, events};

/// How long a lock lives without being renewed, in seconds.
pub(crate) const LEASE: i64 = 60;

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRecord {
    /// Such as `deployment:redis`.
    pub name: String,
    /// The task that holds it.
    pub task: i64,
    /// Unix seconds.
    pub expires_at: i64,
}

/// why a lock was not got
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// another task holds it
    #[error("task {task} holds the lock '{name}': wait for it, or cancel it")]
    Held {
        /// The lock.
        name: String,
        /// Its holder.
        task: i64,
    },
    /// the records cannot be read
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Takes a lock for a task of this director.
    pub async fn take_lock(&self, name: &str, task: i64, owner: &str) -> Result<(), LockError> {
        let now = clock::now();
        let mut transaction = self.database.begin().await.map_err(StoreError::from)?;
        let taken = sqlx::query(
            "INSERT INTO locks (name, task, owner, expires_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO UPDATE SET task = $2, owner = $3, expires_at = $4 WHERE locks.expires_at < $5",
        )
        .bind(name)
        .bind(task)
        .bind(owner)
        .bind(now + LEASE)
        .bind(now)
        .execute(transaction.connection())
        .await
        .map_err(StoreError::from)?
        .rows_affected();
        if taken == 1 {
            events::locks_change(&mut transaction, "acquire", task, Some(name)).await?;
            transaction.commit().await.map_err(StoreError::from)?;
            return Ok(());
        }
        let holder: i64 = sqlx::query_scalar("SELECT task FROM locks WHERE name = $1")
            .bind(name)
            .fetch_one(transaction.connection())
            .await
            .map_err(StoreError::from)?;
        Err(LockError::Held { name: name.to_owned(), task: holder })
    }

    /// Renews all locks of this director.
    pub async fn renew_locks(&self, owner: &str) -> Result<(), StoreError> {
        sqlx::query("UPDATE locks SET expires_at = $1 WHERE owner = $2")
            .bind(clock::now() + LEASE)
            .bind(owner)
            .execute(self.database.pool())
            .await?;
        Ok(())
    }

    /// Releases all locks of a task.
    pub async fn release_locks(&self, task: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        events::locks_change(&mut transaction, "release", task, None).await?;
        sqlx::query("DELETE FROM locks WHERE task = $1").bind(task).execute(transaction.connection()).await?;
        Ok(transaction.commit().await?)
    }

    /// Locks that are held.
    pub async fn locks(&self) -> Result<Vec<LockRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM locks WHERE expires_at >= $1 ORDER BY name")
            .bind(clock::now())
            .fetch_all(self.database.pool())
            .await?;
        rows.iter()
            .map(|row| {
                Ok(LockRecord {
                    name: row.try_get("name")?,
                    task: row.try_get("task")?,
                    expires_at: row.try_get("expires_at")?,
                })
            })
            .collect()
    }
}
