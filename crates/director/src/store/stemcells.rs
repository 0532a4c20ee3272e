//! Stemcells: one record per name, version and CPI.

use windlass_contract::{ApiVersion, StemcellCid};
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_planning::names::DeploymentName;
use windlass_planning::records::StemcellRecord;

use super::{Store, StoreError, refused};

fn read(row: &AnyRow) -> Result<StemcellRecord, StoreError> {
    let cid: String = row.try_get("cid")?;
    Ok(StemcellRecord {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        operating_system: row.try_get("operating_system")?,
        cpi: row.try_get::<String, _>("cpi")?.into(),
        cid: StemcellCid::new(cid).map_err(|error| sqlx::Error::Decode(error.into()))?,
        api_version: row.try_get::<Option<i64>, _>("api_version")?.map(|version| ApiVersion(version as u32)),
        deployments: Vec::new(),
    })
}

impl Store {
    /// All stemcells, with the deployments that use them.
    pub(crate) async fn stemcells(&self) -> Result<Vec<StemcellRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM stemcells ORDER BY name, id").fetch_all(self.database.pool()).await?;
        let mut stemcells = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let uses = sqlx::query("SELECT deployment, stemcell FROM deployment_stemcells ORDER BY deployment")
            .fetch_all(self.database.pool())
            .await?;
        for row in uses {
            let id: i64 = row.try_get("stemcell")?;
            if let Some(stemcell) = stemcells.iter_mut().find(|stemcell| stemcell.id == id) {
                stemcell.deployments.push(row.try_get("deployment")?);
            }
        }
        Ok(stemcells)
    }

    /// The operating system of a stemcell, whichever clouds have it.
    pub(crate) async fn operating_system(&self, name: &str, version: &str) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar("SELECT operating_system FROM stemcells WHERE name = $1 AND version = $2 LIMIT 1")
            .bind(name)
            .bind(version)
            .fetch_optional(self.database.pool())
            .await?)
    }

    /// Notes which stemcells a deployment uses; from then on they cannot be deleted.
    pub(crate) async fn use_stemcells(&self, deployment: &DeploymentName, stemcells: &[i64]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("DELETE FROM deployment_stemcells WHERE deployment = $1")
            .bind(deployment.as_str())
            .execute(transaction.connection())
            .await?;
        use_each(&mut transaction, deployment, stemcells).await?;
        Ok(transaction.commit().await?)
    }

    /// A deployment uses these from now on, and those that it used before.
    pub(crate) async fn also_use_stemcells(
        &self,
        deployment: &DeploymentName,
        stemcells: &[i64],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        use_each(&mut transaction, deployment, stemcells).await?;
        Ok(transaction.commit().await?)
    }
}

async fn use_each(
    transaction: &mut Transaction,
    deployment: &DeploymentName,
    stemcells: &[i64],
) -> Result<(), StoreError> {
    for stemcell in stemcells {
        let statement =
            "INSERT INTO deployment_stemcells (deployment, stemcell) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let used =
            sqlx::query(statement).bind(deployment.as_str()).bind(*stemcell).execute(transaction.connection()).await;
        used.map_err(|error| refused(error, StoreError::Gone("stemcell")))?;
    }
    Ok(())
}
