//! Deployments.

use windlass_database::Transaction;
use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;
use windlass_planning::names::DeploymentName;
use windlass_planning::software::VariableSet;

use super::{Store, StoreError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeploymentRecord {
    /// Unique.
    pub name: DeploymentName,
    /// The text of the last deploy that succeeded.
    pub manifest: Option<String>,
}

pub(super) const DEPLOYMENT: &str = "SELECT name, manifest FROM deployments WHERE name = $1";

impl Store {
    /// The names of all, without their manifests, each of which may have megabytes.
    pub(crate) async fn deployment_names(&self) -> Result<Vec<DeploymentName>, StoreError> {
        let names = sqlx::query_scalar::<_, String>("SELECT name FROM deployments ORDER BY name");
        Ok(names.fetch_all(self.database.pool()).await?.into_iter().map(DeploymentName::from).collect())
    }

    pub(crate) async fn deployment(&self, name: &DeploymentName) -> Result<Option<DeploymentRecord>, StoreError> {
        let row = sqlx::query(DEPLOYMENT).bind(name.as_str()).fetch_optional(self.database.pool()).await?;
        row.map(|row| {
            Ok(DeploymentRecord { name: row.try_get::<String, _>("name")?.into(), manifest: row.try_get("manifest")? })
        })
        .transpose()
    }

    /// Makes a deployment of some teams, if there is none of that name.
    pub(crate) async fn add_deployment(&self, name: &DeploymentName, teams: &[String]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let made =
            sqlx::query("INSERT INTO deployments (name, created_at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
                .bind(name.as_str())
                .bind(clock::now())
                .execute(transaction.connection())
                .await?;
        if made.rows_affected() == 1 {
            for team in teams {
                sqlx::query("INSERT INTO deployment_teams (deployment, team) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                    .bind(name.as_str())
                    .bind(team.as_str())
                    .execute(transaction.connection())
                    .await?;
            }
            forget_former(&mut transaction, name).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The teams of a deployment, by name; none if there is no such deployment.
    pub(crate) async fn teams_of(&self, deployment: &DeploymentName) -> Result<Option<Vec<String>>, StoreError> {
        let rows: Vec<Option<String>> = sqlx::query_scalar(
            "SELECT t.team FROM deployments d LEFT JOIN deployment_teams t ON t.deployment = d.name
             WHERE d.name = $1 ORDER BY t.team",
        )
        .bind(deployment.as_str())
        .fetch_all(self.database.pool())
        .await?;
        Ok((!rows.is_empty()).then(|| rows.into_iter().flatten().collect()))
    }

    /// The teams of a deployment that is gone, by name; none if there was no such deployment.
    pub(crate) async fn former_teams(
        &self,
        deployment: &DeploymentName,
        ignores_case: bool,
    ) -> Result<Option<Vec<String>>, StoreError> {
        let statement = match ignores_case {
            true => "SELECT team FROM former_deployments WHERE LOWER(deployment) = LOWER($1) ORDER BY team",
            false => "SELECT team FROM former_deployments WHERE deployment = $1 ORDER BY team",
        };
        let teams = sqlx::query_scalar::<_, String>(statement).bind(deployment.as_str());
        let teams = teams.fetch_all(self.database.pool()).await?;
        Ok((!teams.is_empty()).then(|| teams.into_iter().filter(|team| !team.is_empty()).collect()))
    }

    /// Forgets whose a deployment was that is gone.
    pub(crate) async fn forget_former(&self, deployment: &DeploymentName) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        forget_former(&mut transaction, deployment).await?;
        Ok(transaction.commit().await?)
    }

    /// How many deployments a team has.
    pub(crate) async fn deployments_of_team(&self, team: &str) -> Result<usize, StoreError> {
        let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM deployment_teams WHERE team = $1").bind(team);
        Ok(usize::try_from(count.fetch_one(self.database.pool()).await?).unwrap_or_default())
    }

    /// How many instances the deployments of a team have, but for one of them.
    pub(crate) async fn instances_of_team(&self, team: &str, but: &DeploymentName) -> Result<usize, StoreError> {
        let count = sqlx::query_scalar::<_, i64>(
            "SELECT COUNT(*) FROM instances i JOIN deployment_teams t ON t.deployment = i.deployment
             WHERE t.team = $1 AND i.deployment <> $2",
        );
        let count = count.bind(team).bind(but.as_str()).fetch_one(self.database.pool()).await?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// How many bytes are on record of what a team has: of its instances, their VMs and disks, and of the disks that they left.
    pub(crate) async fn bytes_of_team(&self, team: &str) -> Result<u64, StoreError> {
        let bytes = sqlx::query_scalar::<_, i64>(
            "WITH own AS (SELECT i.id, i.spec, i.applied FROM instances i JOIN deployment_teams t ON t.deployment = i.deployment
                WHERE t.team = $1)
             SELECT CAST(
                (SELECT COALESCE(SUM(COALESCE(OCTET_LENGTH(spec), 0) + COALESCE(OCTET_LENGTH(applied), 0)), 0) FROM own)
                + (SELECT COALESCE(SUM(OCTET_LENGTH(v.record)), 0) FROM vms v JOIN own ON own.id = v.instance)
                + (SELECT COALESCE(SUM(OCTET_LENGTH(d.cloud_properties)), 0) FROM disks d JOIN own ON own.id = d.instance)
                + (SELECT COALESCE(SUM(OCTET_LENGTH(o.cloud_properties)), 0) FROM orphan_disks o
                    JOIN orphan_disk_teams t ON t.disk = o.cid WHERE t.team = $1) AS BIGINT)",
        );
        Ok(bytes.bind(team).fetch_one(self.database.pool()).await?.unsigned_abs())
    }

    /// Notes what a successful deploy used.
    pub(crate) async fn finish_deployment(
        &self,
        name: &DeploymentName,
        manifest: &str,
        configs: &[i64],
        variables: Option<VariableSet>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("UPDATE deployments SET manifest = $1 WHERE name = $2")
            .bind(manifest)
            .bind(name.as_str())
            .execute(transaction.connection())
            .await?;
        sqlx::query("DELETE FROM deployment_configs WHERE deployment = $1")
            .bind(name.as_str())
            .execute(transaction.connection())
            .await?;
        for config in configs {
            sqlx::query("INSERT INTO deployment_configs (deployment, config) VALUES ($1, $2)")
                .bind(name.as_str())
                .bind(*config)
                .execute(transaction.connection())
                .await?;
        }
        super::links::forget_stale(&mut transaction, name).await?;
        super::variables::finish_deploy(&mut transaction, name, variables).await?;
        Ok(transaction.commit().await?)
    }

    /// The configs that the last successful deploy used.
    pub(crate) async fn configs_of(&self, deployment: &DeploymentName) -> Result<Vec<i64>, StoreError> {
        Ok(sqlx::query_scalar("SELECT config FROM deployment_configs WHERE deployment = $1 ORDER BY config")
            .bind(deployment.as_str())
            .fetch_all(self.database.pool())
            .await?)
    }

    /// Removes a deployment that has no instances any more.
    pub(crate) async fn remove_deployment(&self, name: &DeploymentName) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        note_former(&mut transaction, name).await?;
        super::links::forget_all(&mut transaction, name).await?;
        super::dns_groups::forget_all(&mut transaction, name).await?;
        super::variables::forget_all(&mut transaction, name).await?;
        for statement in [
            "DELETE FROM deployment_configs WHERE deployment = $1",
            "DELETE FROM deployment_teams WHERE deployment = $1",
            "DELETE FROM errand_runs WHERE deployment = $1",
            "DELETE FROM deployment_stemcells WHERE deployment = $1",
            "DELETE FROM deployment_releases WHERE deployment = $1",
            "DELETE FROM problems WHERE deployment = $1",
            "DELETE FROM deployments WHERE name = $1",
        ] {
            sqlx::query(statement).bind(name.as_str()).execute(transaction.connection()).await?;
        }
        super::software::forget_unused(&mut transaction).await?;
        Ok(transaction.commit().await?)
    }
}

/// Notes whose a deployment was, before it goes.
async fn note_former(transaction: &mut Transaction, name: &DeploymentName) -> Result<(), StoreError> {
    let note = "INSERT INTO former_deployments (deployment, team)
         SELECT d.name, COALESCE(t.team, '') FROM deployments d LEFT JOIN deployment_teams t ON t.deployment = d.name
         WHERE d.name = $1 ON CONFLICT DO NOTHING";
    sqlx::query(note).bind(name.as_str()).execute(transaction.connection()).await?;
    Ok(())
}

async fn forget_former(transaction: &mut Transaction, name: &DeploymentName) -> Result<(), StoreError> {
    let forget = sqlx::query("DELETE FROM former_deployments WHERE deployment = $1").bind(name.as_str());
    forget.execute(transaction.connection()).await?;
    Ok(())
}
