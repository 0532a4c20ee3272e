//! Releases that were exported, until the next clean-up.

use windlass_database::sqlx;
use windlass_operations::clock;

use super::{Store, StoreError};

impl Store {
    /// Notes a blob before it is there, so that it is found again whatever happens meanwhile.
    pub(crate) async fn note_exported_release(&self, blob: &str, sha1: &str) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO exported_releases (blob, sha1, created_at) VALUES ($1, $2, $3)
             ON CONFLICT (blob) DO UPDATE SET sha1 = $2, created_at = $3",
        )
        .bind(blob)
        .bind(sha1)
        .bind(clock::now());
        self.database.execute(statement).await?;
        Ok(())
    }

    /// The blobs of exported releases, the oldest first.
    pub(crate) async fn exported_releases(&self) -> Result<Vec<String>, StoreError> {
        let blobs = sqlx::query_scalar("SELECT blob FROM exported_releases ORDER BY created_at, blob");
        Ok(blobs.fetch_all(self.database.pool()).await?)
    }

    /// Forgets a blob that is gone.
    pub(crate) async fn forget_exported_release(&self, blob: &str) -> Result<(), StoreError> {
        self.database.execute(sqlx::query("DELETE FROM exported_releases WHERE blob = $1").bind(blob)).await?;
        Ok(())
    }
}
