//! Problems that cloud-check found, which instances it leaves alone, and whether the resurrector waits.

use std::collections::BTreeSet;

use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::problems::{OpenProblem, Problem};

use super::{Store, StoreError, from_json, to_json};

const PAUSED: &str = "resurrection_paused";
const YES: &str = "yes";

impl Store {
    /// Puts what a scan found in the place of what earlier ones found: about the whole deployment, or only about these
    /// instances.
    pub(crate) async fn replace_problems(
        &self,
        deployment: &DeploymentName,
        instances: Option<&BTreeSet<InstanceId>>,
        found: &[Problem],
    ) -> Result<Vec<OpenProblem>, StoreError> {
        let mut transaction = self.database.begin().await?;
        match instances {
            None => {
                sqlx::query("DELETE FROM problems WHERE deployment = $1")
                    .bind(deployment.as_str())
                    .execute(transaction.connection())
                    .await?;
            }
            Some(instances) => {
                for instance in instances {
                    sqlx::query("DELETE FROM problems WHERE deployment = $1 AND resource = $2")
                        .bind(deployment.as_str())
                        .bind(instance.as_str())
                        .execute(transaction.connection())
                        .await?;
                }
            }
        }
        let mut open = Vec::new();
        for problem in found {
            let row = sqlx::query(
                "INSERT INTO problems (deployment, resource, problem, found_at) VALUES ($1, $2, $3, $4) RETURNING id",
            )
            .bind(deployment.as_str())
            .bind(problem.resource())
            .bind(to_json("problems.problem", problem)?)
            .bind(clock::now())
            .fetch_one(transaction.connection())
            .await?;
            open.push(OpenProblem { id: row.try_get("id")?, problem: problem.clone() });
        }
        transaction.commit().await?;
        Ok(open)
    }

    /// Problems of a deployment that nobody dealt with yet.
    pub(crate) async fn open_problems(&self, deployment: &DeploymentName) -> Result<Vec<OpenProblem>, StoreError> {
        let rows = sqlx::query("SELECT id, problem FROM problems WHERE deployment = $1 ORDER BY id")
            .bind(deployment.as_str())
            .fetch_all(self.database.pool())
            .await?;
        rows.iter()
            .map(|row| {
                let problem: String = row.try_get("problem")?;
                Ok(OpenProblem { id: row.try_get("id")?, problem: from_json("problems.problem", &problem)? })
            })
            .collect()
    }

    /// Somebody dealt with it; the next scan says whether it helped.
    pub(crate) async fn close_problem(&self, id: i64) -> Result<(), StoreError> {
        let statement = sqlx::query("DELETE FROM problems WHERE id = $1").bind(id);
        self.database.execute(statement).await?;
        Ok(())
    }

    /// Whether nobody touches an instance from now on.
    pub(crate) async fn set_ignored(&self, instance: &InstanceId, ignored: bool) -> Result<(), StoreError> {
        let statement = sqlx::query("UPDATE instances SET ignored = $1 WHERE id = $2")
            .bind(i64::from(ignored))
            .bind(instance.as_str());
        self.database.execute(statement).await?;
        Ok(())
    }

    /// Whether an operator told the resurrector to wait.
    pub(crate) async fn resurrection_is_paused(&self) -> Result<bool, StoreError> {
        let paused: Option<String> = sqlx::query_scalar("SELECT value FROM attributes WHERE name = $1")
            .bind(PAUSED)
            .fetch_optional(self.database.pool())
            .await?;
        Ok(paused.as_deref() == Some(YES))
    }

    /// Tells the resurrector to wait, or to go on.
    pub(crate) async fn pause_resurrection(&self, paused: bool) -> Result<(), StoreError> {
        self.set_attribute(PAUSED, if paused { YES } else { "no" }).await
    }
}
