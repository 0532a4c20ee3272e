//! Blobs that tasks made for operators to fetch.

use std::collections::HashSet;

use windlass_database::sqlx;

use super::{Store, StoreError};

impl Store {
    /// All that records name.
    pub(crate) async fn made_blobs(&self) -> Result<HashSet<String>, StoreError> {
        let made = sqlx::query_scalar("SELECT blob FROM fetched_logs UNION SELECT blob FROM exported_releases")
            .fetch_all(self.database.pool())
            .await?;
        Ok(made.into_iter().collect())
    }

    pub(crate) async fn add_logs(&self, blob: &str, task: i64, created_at: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("INSERT INTO fetched_logs (blob, created_at, task) VALUES ($1, $2, $3)")
            .bind(blob)
            .bind(created_at)
            .bind(task)
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }

    /// The task that fetched logs; none for other blobs, and for logs of earlier versions.
    pub(crate) async fn task_of_logs(&self, blob: &str) -> Result<Option<i64>, StoreError> {
        let task = sqlx::query_scalar::<_, Option<i64>>("SELECT task FROM fetched_logs WHERE blob = $1").bind(blob);
        Ok(task.fetch_optional(self.database.pool()).await?.flatten())
    }

    /// Logs that were fetched for the user of a task, the newest first.
    pub(crate) async fn logs_of_user_of(&self, task: i64) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar(
            "SELECT fetched_logs.blob FROM fetched_logs JOIN tasks ON tasks.id = fetched_logs.task
             WHERE tasks.username = (SELECT username FROM tasks WHERE id = $1) ORDER BY fetched_logs.created_at DESC, fetched_logs.blob",
        )
        .bind(task);
        Ok(found.fetch_all(self.database.pool()).await?)
    }

    /// Logs that were fetched before a time.
    pub(crate) async fn logs_before(&self, time: i64) -> Result<Vec<String>, StoreError> {
        let found = sqlx::query_scalar("SELECT blob FROM fetched_logs WHERE created_at < $1").bind(time);
        Ok(found.fetch_all(self.database.pool()).await?)
    }

    pub(crate) async fn forget_logs(&self, blob: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("DELETE FROM fetched_logs WHERE blob = $1").bind(blob).execute(transaction.connection()).await?;
        Ok(transaction.commit().await?)
    }
}
