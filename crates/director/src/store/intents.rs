//! Intents: what was about to be done in a cloud.

use windlass_contract::{ApiVersion, RequestId, explain};
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_durable::process::ProcessIdentity;
use windlass_operations::clock;
use windlass_operations::ledger::{Intent, NotOneIntent};

use super::{Store, StoreError, events, from_json, optional_json, to_json};

fn read(row: &AnyRow) -> Result<Intent, StoreError> {
    let change: String = row.try_get("change_json")?;
    let id = RequestId::new(row.try_get::<String, _>("id")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Intent {
        id,
        task: row.try_get("task")?,
        cpi: row.try_get("cpi")?,
        stemcell_version: row.try_get::<Option<i64>, _>("stemcell_version")?.map(|version| ApiVersion(version as u32)),
        change: from_json("intents.change_json", &change)?,
        child: optional_json(row, "child")?,
        doubt: row.try_get("doubt")?,
    })
}

/// Ends an intent; whoever called rolls back if it was not there.
pub(super) async fn remove(transaction: &mut Transaction, id: &RequestId) -> Result<(), StoreError> {
    let removed =
        sqlx::query("DELETE FROM intents WHERE id = $1").bind(id.as_str()).execute(transaction.connection()).await?;
    Ok(NotOneIntent::unless_one(id, removed.rows_affected())?)
}

/// A change in a cloud that was begun, and of which nothing else is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadableIntent {
    /// The id of the request.
    pub id: String,
    /// The CPI's name.
    pub cpi: String,
    /// Why its record cannot be read.
    pub why: String,
}

impl Store {
    pub(super) async fn insert_intent(&self, intent: &Intent) -> Result<(), StoreError> {
        let mut transaction = match intent.change.is_light() {
            true => self.database.begin_unflushed().await?,
            false => self.database.begin().await?,
        };
        sqlx::query(
            "INSERT INTO intents (id, task, cpi, stemcell_version, change_json, opened_at) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(intent.id.as_str())
        .bind(intent.task)
        .bind(intent.cpi.as_str())
        .bind(intent.stemcell_version.map(|version| i64::from(version.0)))
        .bind(to_json("intents.change_json", &intent.change)?)
        // Read for their order alone. Older directors wrote seconds, which are less.
        .bind(clock::now_in_microseconds())
        .execute(transaction.connection())
        .await?;
        events::intent_begins(&mut transaction, intent).await?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn set_intent_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), StoreError> {
        // A loss of power ends the process, too.
        let mut transaction = self.database.begin_unflushed().await?;
        let changed = sqlx::query("UPDATE intents SET child = $1 WHERE id = $2")
            .bind(to_json("intents.child", &child)?)
            .bind(id.as_str())
            .execute(transaction.connection())
            .await?;
        NotOneIntent::unless_one(id, changed.rows_affected())?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn set_intent_doubt(&self, id: &RequestId, why: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let changed = sqlx::query("UPDATE intents SET doubt = $1 WHERE id = $2")
            .bind(why)
            .bind(id.as_str())
            .execute(transaction.connection())
            .await?;
        NotOneIntent::unless_one(id, changed.rows_affected())?;
        events::intent_ends(&mut transaction, id, None, Some(why)).await?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn delete_intent(&self, id: &RequestId, why: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        events::intent_ends(&mut transaction, id, None, Some(why)).await?;
        remove(&mut transaction, id).await?;
        Ok(transaction.commit().await?)
    }

    async fn intent_rows(&self) -> Result<Vec<AnyRow>, sqlx::Error> {
        sqlx::query("SELECT * FROM intents ORDER BY opened_at, id").fetch_all(self.database.pool()).await
    }

    /// All that can be read; the others are [unreadable](Self::unreadable_intents).
    pub(super) async fn all_intents(&self) -> Result<Vec<Intent>, StoreError> {
        Ok(self.intent_rows().await?.iter().filter_map(|row| read(row).ok()).collect())
    }

    /// Changes that another version of the director began, or whose records are damaged. They stay on record: the cloud may
    /// hold what they made.
    pub(crate) async fn unreadable_intents(&self) -> Result<Vec<UnreadableIntent>, StoreError> {
        let mut unreadable = Vec::new();
        for row in self.intent_rows().await? {
            if let Err(error) = read(&row) {
                unreadable.push(UnreadableIntent {
                    id: row.try_get("id")?,
                    cpi: row.try_get("cpi")?,
                    why: explain(&error),
                });
            }
        }
        Ok(unreadable)
    }
}
