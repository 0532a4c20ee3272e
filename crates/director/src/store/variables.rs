//! Values of variables, encrypted, and which of them deployments use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_operations::clock;
use windlass_planning::names::DeploymentName;
use windlass_planning::software::VariableSet;

use super::{Store, StoreError, from_json, to_json};

/// The attribute that says which key values are encrypted with.
const KEY: &str = "variables_key";

/// What is known of the key: enough to tell whether one is the right one, and what it opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyOnRecord {
    pub(crate) fingerprint: String,
    /// The key of the values, encrypted with the operator's.
    pub(crate) data_key: String,
}

/// A value as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealedValue {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) recipe: Option<String>,
}

const VALUE: &str = "SELECT id, name, value, recipe FROM variable_values";

fn read(row: &AnyRow) -> Result<SealedValue, StoreError> {
    Ok(SealedValue {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        value: row.try_get("value")?,
        recipe: row.try_get("recipe")?,
    })
}

impl Store {
    pub(crate) async fn variables_key(&self) -> Result<Option<KeyOnRecord>, StoreError> {
        let found: Option<String> = sqlx::query_scalar("SELECT value FROM attributes WHERE name = $1")
            .bind(KEY)
            .fetch_optional(self.database.pool())
            .await?;
        found.map(|text| from_json("attributes.variables_key", &text)).transpose()
    }

    /// One statement, so that the key and what it opens never differ.
    pub(crate) async fn set_variables_key(&self, key: &KeyOnRecord) -> Result<(), StoreError> {
        self.set_attribute(KEY, &to_json("attributes.variables_key", key)?).await
    }

    /// The versions of a variable, newest first.
    pub(crate) async fn values_named(&self, name: &str) -> Result<Vec<SealedValue>, StoreError> {
        let query = format!("{VALUE} WHERE name = $1 ORDER BY id DESC");
        let rows = sqlx::query(sqlx::AssertSqlSafe(query)).bind(name).fetch_all(self.database.pool()).await?;
        rows.iter().map(read).collect()
    }

    /// How many bytes all versions of a variable have together, as they are kept.
    pub(crate) async fn length_of_values(&self, name: &str) -> Result<i64, StoreError> {
        let sum = "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(value)), 0) AS BIGINT) FROM variable_values WHERE name = $1";
        Ok(sqlx::query_scalar(sum).bind(name).fetch_one(self.database.pool()).await?)
    }

    /// How many bytes all values of a folder of names have, as they are kept, with their names.
    pub(crate) async fn length_of_values_in(&self, folder: &str) -> Result<i64, StoreError> {
        let sum = "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(value) + OCTET_LENGTH(name)), 0) AS BIGINT) FROM variable_values WHERE name LIKE $1 ESCAPE '!'";
        let pattern = folder.replace('!', "!!").replace('%', "!%").replace('_', "!_") + "%";
        Ok(sqlx::query_scalar(sum).bind(pattern).fetch_one(self.database.pool()).await?)
    }

    /// The newest version of a variable.
    pub(crate) async fn current_value(&self, name: &str) -> Result<Option<SealedValue>, StoreError> {
        let query = format!("{VALUE} WHERE name = $1 ORDER BY id DESC LIMIT 1");
        let row = sqlx::query(sqlx::AssertSqlSafe(query)).bind(name).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(read).transpose()
    }

    /// A version by its id.
    pub(crate) async fn value(&self, id: i64) -> Result<Option<SealedValue>, StoreError> {
        let query = format!("{VALUE} WHERE id = $1");
        let row = sqlx::query(sqlx::AssertSqlSafe(query)).bind(id).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(read).transpose()
    }

    /// The names of all variables.
    pub(crate) async fn names_of_values(&self) -> Result<Vec<String>, StoreError> {
        let names = sqlx::query_scalar("SELECT DISTINCT name FROM variable_values ORDER BY name");
        Ok(names.fetch_all(self.database.pool()).await?)
    }

    /// Whether there are values of variables whose names begin like this.
    pub(crate) async fn has_values_under(&self, beginning: &str) -> Result<bool, StoreError> {
        let count = "SELECT COUNT(*) FROM variable_values WHERE SUBSTR(name, 1, LENGTH($1)) = $1";
        let count = sqlx::query_scalar::<_, i64>(count).bind(beginning);
        Ok(count.fetch_one(self.database.pool()).await? > 0)
    }

    /// Adds a version. `seal` encrypts it for its id, which is known only then.
    pub(crate) async fn add_value<E: From<StoreError>>(
        &self,
        name: &str,
        recipe: Option<&str>,
        seal: impl FnOnce(i64) -> Result<String, E>,
    ) -> Result<i64, E> {
        let failed = |error: sqlx::Error| E::from(error.into());
        let mut transaction = self.database.begin().await.map_err(failed)?;
        let insert = sqlx::query(
            "INSERT INTO variable_values (name, value, recipe, created_at) VALUES ($1, '', $2, $3) RETURNING id",
        );
        let insert = insert.bind(name).bind(recipe).bind(clock::now());
        let row = insert.fetch_one(transaction.connection()).await.map_err(failed)?;
        let id: i64 = row.try_get("id").map_err(failed)?;
        let update = sqlx::query("UPDATE variable_values SET value = $1 WHERE id = $2").bind(seal(id)?).bind(id);
        update.execute(transaction.connection()).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(id)
    }

    /// Forgets all versions of a variable; how many there were.
    pub(crate) async fn remove_values(&self, name: &str) -> Result<u64, StoreError> {
        let statement = sqlx::query("DELETE FROM variable_values WHERE name = $1").bind(name);
        Ok(self.database.execute(statement).await?)
    }

    /// The set of a deploy; one that goes on after a kill has it already.
    pub(crate) async fn begin_variable_set(
        &self,
        deployment: &DeploymentName,
        task: i64,
    ) -> Result<VariableSet, StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query(
            "INSERT INTO variable_sets (deployment, task, created_at) VALUES ($1, $2, $3) ON CONFLICT (deployment, task) DO NOTHING",
        )
        .bind(deployment.as_str())
        .bind(task)
        .bind(clock::now())
        .execute(transaction.connection())
        .await?;
        let row = sqlx::query("SELECT id FROM variable_sets WHERE deployment = $1 AND task = $2")
            .bind(deployment.as_str())
            .bind(task)
            .fetch_one(transaction.connection())
            .await?;
        transaction.commit().await?;
        Ok(VariableSet(row.try_get("id")?))
    }

    /// The newest set of a deployment.
    pub(crate) async fn last_variable_set(
        &self,
        deployment: &DeploymentName,
    ) -> Result<Option<VariableSet>, StoreError> {
        let id: Option<i64> =
            sqlx::query_scalar("SELECT id FROM variable_sets WHERE deployment = $1 ORDER BY id DESC LIMIT 1")
                .bind(deployment.as_str())
                .fetch_optional(self.database.pool())
                .await?;
        Ok(id.map(VariableSet))
    }

    /// The set of the last deploy that succeeded.
    pub(crate) async fn deployed_variable_set(
        &self,
        deployment: &DeploymentName,
    ) -> Result<Option<VariableSet>, StoreError> {
        let id: Option<i64> = sqlx::query_scalar(
            "SELECT id FROM variable_sets WHERE deployment = $1 AND deployed = 1 ORDER BY id DESC LIMIT 1",
        )
        .bind(deployment.as_str())
        .fetch_optional(self.database.pool())
        .await?;
        Ok(id.map(VariableSet))
    }

    /// The versions of a set, by name.
    pub(crate) async fn versions_of(&self, set: VariableSet) -> Result<BTreeMap<String, String>, StoreError> {
        let rows = sqlx::query("SELECT name, version FROM variables WHERE variable_set = $1")
            .bind(set.0)
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(|row| Ok((row.try_get("name")?, row.try_get("version")?))).collect()
    }

    /// Adds versions to a set. What is in it stays.
    pub(crate) async fn note_versions(
        &self,
        set: VariableSet,
        versions: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for (name, version) in versions {
            sqlx::query(
                "INSERT INTO variables (variable_set, name, version) VALUES ($1, $2, $3) ON CONFLICT (variable_set, name) DO NOTHING",
            )
            .bind(set.0)
            .bind(name)
            .bind(version)
            .execute(transaction.connection())
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// The deployments that were deployed with a variable, each with the version, by name.
    pub(crate) async fn deployments_with(&self, name: &str) -> Result<Vec<(DeploymentName, String)>, StoreError> {
        let rows = sqlx::query(
            "SELECT s.deployment, v.version FROM variables v JOIN variable_sets s ON s.id = v.variable_set \
             WHERE v.name = $1 AND s.id IN (SELECT MAX(id) FROM variable_sets WHERE deployed = 1 GROUP BY deployment) \
             ORDER BY s.deployment",
        )
        .bind(name)
        .fetch_all(self.database.pool())
        .await?;
        rows.iter().map(|row| Ok((row.try_get::<String, _>("deployment")?.into(), row.try_get("version")?))).collect()
    }

    /// What all sets of a deployment that are kept use: version and name.
    pub(crate) async fn variables_of(&self, deployment: &DeploymentName) -> Result<Vec<(String, String)>, StoreError> {
        let rows = sqlx::query(
            "SELECT DISTINCT v.version, v.name FROM variables v JOIN variable_sets s ON s.id = v.variable_set \
             WHERE s.deployment = $1 ORDER BY v.name, v.version",
        )
        .bind(deployment.as_str())
        .fetch_all(self.database.pool())
        .await?;
        rows.iter().map(|row| Ok((row.try_get("version")?, row.try_get("name")?))).collect()
    }
}

/// The deploy succeeded, and every instance has what it should: its set is the deployment's, and those go that no instance has any more.
pub(super) async fn finish_deploy(
    transaction: &mut Transaction,
    deployment: &DeploymentName,
    set: Option<VariableSet>,
) -> Result<(), StoreError> {
    if let Some(set) = set {
        let deployed = sqlx::query("UPDATE variable_sets SET deployed = 1 WHERE id = $1").bind(set.0);
        deployed.execute(transaction.connection()).await?;
    }
    let unused = "SELECT s.id FROM variable_sets s WHERE s.deployment = $1 \
        AND s.id < (SELECT MAX(d.id) FROM variable_sets d WHERE d.deployment = $1 AND d.deployed = 1) \
        AND s.id NOT IN (SELECT i.variable_set FROM instances i WHERE i.variable_set IS NOT NULL)";
    forget(transaction, unused, deployment).await
}

/// Forgets the sets of a deployment. Values stay: others may use them, and the deployment may come back.
pub(super) async fn forget_all(transaction: &mut Transaction, deployment: &DeploymentName) -> Result<(), StoreError> {
    forget(transaction, "SELECT s.id FROM variable_sets s WHERE s.deployment = $1", deployment).await
}

async fn forget(
    transaction: &mut Transaction,
    which: &'static str,
    deployment: &DeploymentName,
) -> Result<(), StoreError> {
    for statement in [
        format!("DELETE FROM variables WHERE variable_set IN ({which})"),
        format!("DELETE FROM variable_sets WHERE id IN ({which})"),
    ] {
        let statement = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(deployment.as_str());
        statement.execute(transaction.connection()).await?;
    }
    Ok(())
}

/// The fingerprint of the key in the database at `url`, which may be of another version.
pub(crate) async fn key_fingerprint_in(url: &str) -> Result<Option<String>, sqlx::Error> {
    use sqlx::Connection as _;
    let mut connection = sqlx::AnyConnection::connect(url).await?;
    let key = sqlx::query_scalar("SELECT value FROM attributes WHERE name = $1").bind(KEY);
    let key: Option<String> = key.fetch_optional(&mut connection).await?;
    connection.close().await?;
    Ok(key.and_then(|text| serde_json::from_str::<KeyOnRecord>(&text).ok()).map(|key| key.fingerprint))
}
