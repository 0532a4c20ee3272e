//! What the webhook has not been told yet, and how much it will never be told.

use windlass_database::Transaction;
use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;

use super::{Store, StoreError};

/// How many notices were given up for want of room since the webhook heard of that.
const DROPPED: &str = "notices_dropped";

/// Something that the webhook is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoticeRecord {
    pub(crate) id: i64,
    /// A JSON object.
    pub(crate) body: String,
}

async fn count_dropped(transaction: &mut Transaction, dropped: u64) -> Result<(), StoreError> {
    if dropped == 0 {
        return Ok(());
    }
    let before: Option<String> = sqlx::query_scalar("SELECT value FROM attributes WHERE name = $1")
        .bind(DROPPED)
        .fetch_optional(transaction.connection())
        .await?;
    let before: u64 = before.and_then(|count| count.parse().ok()).unwrap_or_default();
    sqlx::query("INSERT INTO attributes (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2")
        .bind(DROPPED)
        .bind((before + dropped).to_string())
        .execute(transaction.connection())
        .await?;
    Ok(())
}

impl Store {
    /// Keeps a notice about a deployment, or about none. Of more than `most`, the oldest of the deployment that has most goes, and is
    /// counted: one with very many does not send those of others away.
    pub(crate) async fn add_notice(&self, deployment: &str, body: &str, most: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("INSERT INTO notices (body, created_at, deployment) VALUES ($1, $2, $3)")
            .bind(body)
            .bind(clock::now())
            .bind(deployment)
            .execute(transaction.connection())
            .await?;
        let dropped = sqlx::query(
            "DELETE FROM notices WHERE (SELECT COUNT(*) FROM notices) > $1 AND id = (SELECT MIN(id) FROM notices WHERE deployment =
               (SELECT deployment FROM notices GROUP BY deployment ORDER BY COUNT(*) DESC, MIN(id) LIMIT 1))",
        )
        .bind(most)
        .execute(transaction.connection())
        .await?
        .rows_affected();
        count_dropped(&mut transaction, dropped).await?;
        Ok(transaction.commit().await?)
    }

    /// Gives up the oldest notice, and counts it as dropped.
    pub(crate) async fn give_up_notice(&self) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let dropped = sqlx::query("DELETE FROM notices WHERE id IN (SELECT MIN(id) FROM notices)")
            .execute(transaction.connection())
            .await?
            .rows_affected();
        count_dropped(&mut transaction, dropped).await?;
        Ok(transaction.commit().await?)
    }

    /// The oldest notice, and how many were dropped before it.
    pub(crate) async fn next_notice(&self) -> Result<Option<(NoticeRecord, u64)>, StoreError> {
        let row = sqlx::query("SELECT id, body FROM notices ORDER BY id LIMIT 1")
            .fetch_optional(self.database.pool())
            .await?;
        let Some(row) = row else { return Ok(None) };
        let dropped: Option<String> = sqlx::query_scalar("SELECT value FROM attributes WHERE name = $1")
            .bind(DROPPED)
            .fetch_optional(self.database.pool())
            .await?;
        let dropped = dropped.and_then(|count| count.parse().ok()).unwrap_or_default();
        Ok(Some((NoticeRecord { id: row.try_get("id")?, body: row.try_get("body")? }, dropped)))
    }

    /// Forgets a notice that was delivered, and that so many had been dropped, which it told.
    pub(crate) async fn delivered(&self, notice: i64, dropped: u64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("DELETE FROM notices WHERE id = $1").bind(notice).execute(transaction.connection()).await?;
        // If more were dropped meanwhile, the next notice tells them all.
        sqlx::query("DELETE FROM attributes WHERE name = $1 AND value = $2")
            .bind(DROPPED)
            .bind(dropped.to_string())
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }
}
