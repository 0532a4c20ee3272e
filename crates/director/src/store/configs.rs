//! Configs: every version is kept; the latest of a type and name that is not deleted is the current one.

use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};

use super::{Store, StoreError};
use crate::clock;

/// One version of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRecord {
    /// Counts up over all configs.
    pub id: i64,
    /// `cloud`, `runtime`, `cpi`, `deploy`, …
    pub kind: String,
    /// `default` unless named.
    pub name: String,
    /// YAML, verbatim.
    pub content: String,
    /// Unix seconds.
    pub created_at: i64,
}

fn read(row: &AnyRow) -> Result<ConfigRecord, StoreError> {
    Ok(ConfigRecord {
        id: row.try_get("id")?,
        kind: row.try_get("type")?,
        name: row.try_get("name")?,
        content: row.try_get("content")?,
        created_at: row.try_get("created_at")?,
    })
}

impl Store {
    /// All versions that are not deleted: by type, then `default` first, then by name, newest first.
    pub async fn configs(&self, kind: Option<&str>, name: Option<&str>) -> Result<Vec<ConfigRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM configs WHERE deleted = 0 AND ($1 = '' OR type = $1) AND ($2 = '' OR name = $2)
             ORDER BY type, CASE WHEN name = 'default' THEN 0 ELSE 1 END, name, id DESC",
        )
        .bind(kind.unwrap_or_default())
        .bind(name.unwrap_or_default())
        .fetch_all(self.database.pool())
        .await?;
        rows.iter().map(read).collect()
    }

    /// The current version of each name of a type.
    pub async fn current_configs(&self, kind: &str) -> Result<Vec<ConfigRecord>, StoreError> {
        let mut configs = self.configs(Some(kind), None).await?;
        configs.dedup_by(|later, first| later.name == first.name);
        Ok(configs)
    }

    /// A version by its id.
    pub async fn config(&self, id: i64) -> Result<Option<ConfigRecord>, StoreError> {
        let row =
            sqlx::query("SELECT * FROM configs WHERE id = $1").bind(id).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(read).transpose()
    }

    /// Adds a version, unless the current one has the same content.
    pub async fn add_config(&self, kind: &str, name: &str, content: &str) -> Result<ConfigRecord, StoreError> {
        let mut transaction = self.database.begin().await?;
        let current =
            sqlx::query("SELECT * FROM configs WHERE deleted = 0 AND type = $1 AND name = $2 ORDER BY id DESC LIMIT 1")
                .bind(kind)
                .bind(name)
                .fetch_optional(transaction.connection())
                .await?;
        if let Some(current) = current.as_ref().map(read).transpose()?.filter(|current| current.content == content) {
            return Ok(current);
        }
        let row =
            sqlx::query("INSERT INTO configs (type, name, content, created_at) VALUES ($1, $2, $3, $4) RETURNING *")
                .bind(kind)
                .bind(name)
                .bind(content)
                .bind(clock::now())
                .fetch_one(transaction.connection())
                .await?;
        let added = read(&row)?;
        transaction.commit().await?;
        Ok(added)
    }
}
