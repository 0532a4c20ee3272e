//! What errands ran on when they last succeeded.

use windlass_database::sqlx;
use windlass_planning::names::DeploymentName;

use super::{Store, StoreError};

impl Store {
    /// What an errand ran on when it last succeeded everywhere, if nothing else happened since.
    pub(crate) async fn errand_success(
        &self,
        deployment: &DeploymentName,
        errand: &str,
    ) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar("SELECT succeeded_on FROM errand_runs WHERE deployment = $1 AND errand = $2")
            .bind(deployment.as_str())
            .bind(errand)
            .fetch_optional(self.database.pool())
            .await?)
    }

    /// Notes what an errand succeeded on.
    pub(crate) async fn note_errand_success(
        &self,
        deployment: &DeploymentName,
        errand: &str,
        state: &str,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO errand_runs (deployment, errand, succeeded_on) VALUES ($1, $2, $3) \
             ON CONFLICT (deployment, errand) DO UPDATE SET succeeded_on = $3",
        )
        .bind(deployment.as_str())
        .bind(errand)
        .bind(state);
        self.database.execute(statement).await?;
        Ok(())
    }

    /// An errand is about to run: what it did before says nothing any more.
    pub(crate) async fn forget_errand_success(
        &self,
        deployment: &DeploymentName,
        errand: &str,
    ) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM errand_runs WHERE deployment = $1 AND errand = $2");
        self.database.execute(statement.bind(deployment.as_str()).bind(errand)).await?;
        Ok(())
    }
}
