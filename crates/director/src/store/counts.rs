//! How much there is of everything.

use std::collections::BTreeMap;

use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;

use super::{Store, StoreError};

/// How much there is of everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tasks by state.
    pub tasks: BTreeMap<String, i64>,
    pub deployments: i64,
    pub vms: i64,
    /// Disks of instances.
    pub disks: i64,
    /// Disks of nobody.
    pub orphan_disks: i64,
    /// Open problems.
    pub problems: i64,
    /// Changes of which nobody knows whether they happened.
    pub doubts: i64,
}

impl Store {
    pub(crate) async fn counts(&self) -> Result<Counts, StoreError> {
        let pool = self.database.pool();
        let rows = sqlx::query("SELECT state, COUNT(*) AS number FROM tasks GROUP BY state").fetch_all(pool).await?;
        let mut counts = Counts::default();
        for row in rows {
            counts.tasks.insert(row.try_get("state")?, row.try_get("number")?);
        }
        for (count, query) in [
            (&mut counts.deployments, "SELECT COUNT(*) FROM deployments"),
            (&mut counts.vms, "SELECT COUNT(*) FROM vms"),
            (&mut counts.disks, "SELECT COUNT(*) FROM disks"),
            (&mut counts.orphan_disks, "SELECT COUNT(*) FROM orphan_disks"),
            (&mut counts.problems, "SELECT COUNT(*) FROM problems"),
            (&mut counts.doubts, "SELECT COUNT(*) FROM intents WHERE doubt IS NOT NULL"),
        ] {
            *count = sqlx::query_scalar(query).fetch_one(pool).await?;
        }
        Ok(counts)
    }

    /// Whether the database takes what is written: one that is full still answers.
    pub(crate) async fn try_writing(&self) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        sqlx::query("INSERT INTO attributes (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2")
            .bind("health_written_at")
            .bind(clock::now().to_string())
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }
}
