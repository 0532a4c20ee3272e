//! What runs on instances, and the packages that were compiled for it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_planning::names::DeploymentName;
use windlass_planning::records::{CompilationKey, CompiledPackage};
use windlass_planning::software::Software;

use super::{Store, StoreError, from_json, to_json};

/// How many bytes all that runs on the instances of a deployment may take in memory, roughly. What one plan brings takes less.
const MOST_SOFTWARE: usize = 160 << 20;

const COMPILED: &str = "SELECT p.release, p.name, p.version, c.os, c.stemcell, c.dependency_key, c.build, c.sha1, c.blob \
    FROM compiled_packages c JOIN release_packages p ON p.id = c.package";

fn compiled(row: &AnyRow) -> Result<CompiledPackage, StoreError> {
    Ok(CompiledPackage {
        key: CompilationKey {
            release: row.try_get("release")?,
            package: row.try_get("name")?,
            version: row.try_get("version")?,
            os: row.try_get("os")?,
            stemcell: row.try_get("stemcell")?,
            dependency_key: row.try_get("dependency_key")?,
        },
        build: row.try_get("build")?,
        sha1: row.try_get("sha1")?,
        blob: row.try_get("blob")?,
    })
}

/// Puts a compiled package on record that a release brought, with the next build number, or gives the one that is there these
/// bytes.
pub(super) async fn take_compiled(transaction: &mut Transaction, package: &CompiledPackage) -> Result<(), StoreError> {
    let CompiledPackage { key, sha1, blob, .. } = package;
    sqlx::query(
        "INSERT INTO compiled_packages (package, os, stemcell, dependency_key, build, sha1, blob) \
         SELECT p.id, $1, $2, $3, (SELECT COALESCE(MAX(c.build), 0) + 1 FROM compiled_packages c \
         WHERE c.package = p.id AND c.os = $1 AND c.stemcell = $2), $4, $5 \
         FROM release_packages p WHERE p.release = $6 AND p.name = $7 AND p.version = $8 \
         ON CONFLICT (package, os, stemcell, dependency_key) DO UPDATE SET sha1 = $4, blob = $5",
    )
    .bind(&key.os)
    .bind(&key.stemcell)
    .bind(&key.dependency_key)
    .bind(sha1)
    .bind(blob)
    .bind(&key.release)
    .bind(&key.package)
    .bind(&key.version)
    .execute(transaction.connection())
    .await?;
    Ok(())
}

/// Keeps what instances are being brought to, in the transaction that notes so.
pub(super) async fn keep(transaction: &mut Transaction, software: &[Software]) -> Result<(), StoreError> {
    for software in software {
        sqlx::query("INSERT INTO software (digest, content) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING")
            .bind(software.digest())
            .bind(to_json("software.content", software)?)
            .execute(transaction.connection())
            .await?;
    }
    Ok(())
}

/// Forgets what no instance is or is brought to any more.
pub(super) async fn forget_unused(transaction: &mut Transaction) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM software WHERE digest NOT IN (SELECT software FROM instances WHERE software IS NOT NULL) \
         AND digest NOT IN (SELECT applied_software FROM instances WHERE applied_software IS NOT NULL)",
    )
    .execute(transaction.connection())
    .await?;
    Ok(())
}

impl Store {
    /// What runs on the instances that have this digest on record.
    pub(crate) async fn software(&self, digest: &str) -> Result<Option<Software>, StoreError> {
        let row = sqlx::query("SELECT content FROM software WHERE digest = $1")
            .bind(digest)
            .fetch_optional(self.database.pool())
            .await?;
        row.map(|row| from_json("software.content", row.try_get("content")?)).transpose()
    }

    /// What runs on the instances of a deployment, by its digest, as far as there is room for it in memory, and whether that is all: each
    /// instance may have been left with what another deploy brought.
    pub(crate) async fn software_of(
        &self,
        deployment: &DeploymentName,
    ) -> Result<(BTreeMap<String, Software>, bool), StoreError> {
        let (mut found, mut room) = (BTreeMap::new(), MOST_SOFTWARE);
        for digest in self.digests_of(deployment).await? {
            let content =
                sqlx::query_scalar::<_, String>("SELECT content FROM software WHERE digest = $1").bind(&digest);
            let Some(content) = content.fetch_optional(self.database.pool()).await? else { continue };
            let bytes = content.len() + 64 * windlass_contract::values_in(content.as_bytes());
            let Some(left) = room.checked_sub(bytes) else { return Ok((found, false)) };
            room = left;
            found.insert(digest, from_json("software.content", &content)?);
        }
        Ok((found, true))
    }

    async fn digests_of(&self, deployment: &DeploymentName) -> Result<Vec<String>, StoreError> {
        let digests = sqlx::query_scalar(
            "SELECT DISTINCT software FROM instances WHERE deployment = $1 AND software IS NOT NULL ORDER BY software",
        );
        Ok(digests.bind(deployment.as_str()).fetch_all(self.database.pool()).await?)
    }

    /// The release, name and version of each job that instances of a deployment have. What runs on one group after the other is read:
    /// all together may be large.
    pub(crate) async fn jobs_of(
        &self,
        deployment: &DeploymentName,
    ) -> Result<BTreeSet<(String, String, String)>, StoreError> {
        #[derive(Deserialize)]
        struct Brief {
            jobs: Vec<BriefJob>,
        }
        #[derive(Deserialize)]
        struct BriefJob {
            name: String,
            release: String,
            version: String,
        }
        let mut jobs = BTreeSet::new();
        for digest in self.digests_of(deployment).await? {
            let content =
                sqlx::query_scalar::<_, String>("SELECT content FROM software WHERE digest = $1").bind(digest);
            let Some(content) = content.fetch_optional(self.database.pool()).await? else { continue };
            let brief: Brief = from_json("software.content", &content)?;
            jobs.extend(brief.jobs.into_iter().map(|job| (job.release, job.name, job.version)));
        }
        Ok(jobs)
    }

    /// All packages that were compiled.
    pub(crate) async fn compiled_keys(&self) -> Result<BTreeSet<CompilationKey>, StoreError> {
        let rows = sqlx::query(COMPILED).fetch_all(self.database.pool()).await?;
        rows.iter().map(|row| Ok(compiled(row)?.key)).collect()
    }

    /// All compiled packages of any release, in the order in which they came, with the fingerprints of what they were compiled from.
    pub(crate) async fn compiled_packages(&self) -> Result<Vec<(String, CompiledPackage)>, StoreError> {
        let query = format!("{} ORDER BY c.id", COMPILED.replace("SELECT ", "SELECT p.fingerprint, "));
        let rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(self.database.pool()).await?;
        rows.iter().map(|row| Ok((row.try_get("fingerprint")?, compiled(row)?))).collect()
    }

    /// Forgets compiled packages. Files that no record names are collected later.
    pub(crate) async fn forget_compiled_packages(&self, keys: &[CompilationKey]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for key in keys {
            sqlx::query(
                "DELETE FROM compiled_packages WHERE os = $1 AND stemcell = $2 AND dependency_key = $3 AND package IN \
                 (SELECT id FROM release_packages WHERE release = $4 AND name = $5 AND version = $6)",
            )
            .bind(&key.os)
            .bind(&key.stemcell)
            .bind(&key.dependency_key)
            .bind(&key.release)
            .bind(&key.package)
            .bind(&key.version)
            .execute(transaction.connection())
            .await?;
        }
        Ok(transaction.commit().await?)
    }

    /// What was compiled of the packages of a release, in the order of the stemcells.
    pub(crate) async fn compiled_packages_of(&self, release: &str) -> Result<Vec<CompiledPackage>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("{COMPILED} WHERE p.release = $1")))
            .bind(release)
            .fetch_all(self.database.pool())
            .await?;
        let mut packages = rows.iter().map(compiled).collect::<Result<Vec<_>, _>>()?;
        packages.sort();
        Ok(packages)
    }

    /// A package, if it was compiled for this stemcell with these dependencies.
    pub(crate) async fn compiled_package(&self, key: &CompilationKey) -> Result<Option<CompiledPackage>, StoreError> {
        let row = sqlx::query(sqlx::AssertSqlSafe(format!(
            "{COMPILED} WHERE p.release = $1 AND p.name = $2 AND p.version = $3 AND c.os = $4 AND c.stemcell = $5 \
             AND c.dependency_key = $6"
        )))
        .bind(&key.release)
        .bind(&key.package)
        .bind(&key.version)
        .bind(&key.os)
        .bind(&key.stemcell)
        .bind(&key.dependency_key)
        .fetch_optional(self.database.pool())
        .await?;
        row.as_ref().map(compiled).transpose()
    }

    /// The number of the next compilation of a package for a stemcell.
    pub(crate) async fn next_build(&self, key: &CompilationKey) -> Result<i64, StoreError> {
        let last: Option<i64> = sqlx::query_scalar(
            "SELECT MAX(c.build) FROM compiled_packages c JOIN release_packages p ON p.id = c.package \
             WHERE p.release = $1 AND p.name = $2 AND p.version = $3 AND c.os = $4 AND c.stemcell = $5",
        )
        .bind(&key.release)
        .bind(&key.package)
        .bind(&key.version)
        .bind(&key.os)
        .bind(&key.stemcell)
        .fetch_one(self.database.pool())
        .await?;
        Ok(last.unwrap_or(0) + 1)
    }

    /// Puts a compiled package on record. One that is there already stays.
    pub(crate) async fn add_compiled_package(&self, package: &CompiledPackage) -> Result<(), StoreError> {
        let CompiledPackage { key, build, sha1, blob } = package;
        let mut transaction = self.database.begin().await?;
        sqlx::query(
            "INSERT INTO compiled_packages (package, os, stemcell, dependency_key, build, sha1, blob) \
             SELECT id, $1, $2, $3, $4, $5, $6 FROM release_packages WHERE release = $7 AND name = $8 AND version = $9 \
             ON CONFLICT (package, os, stemcell, dependency_key) DO NOTHING",
        )
        .bind(&key.os)
        .bind(&key.stemcell)
        .bind(&key.dependency_key)
        .bind(*build)
        .bind(sha1)
        .bind(blob)
        .bind(&key.release)
        .bind(&key.package)
        .bind(&key.version)
        .execute(transaction.connection())
        .await?;
        Ok(transaction.commit().await?)
    }
}

#[cfg(test)]
mod tests {
    use windlass_operations::testing::new_instance_record;

    use crate::testing::TestDirector;

    /// Each of a hundred instances may be left with what another deploy brought, of which each has thirty megabytes in memory.
    #[tokio::test]
    async fn what_runs_on_a_deployment_is_read_as_far_as_there_is_room() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        let instances = ["a", "b"].map(|id| new_instance_record("shop", id, id));
        store.begin_instances(&instances, &[]).await.unwrap();
        // Nobody reads the second: so many values are counted before.
        for change in [
            "INSERT INTO software (digest, content) VALUES ('1', '{\"jobs\":[],\"packages\":[]}')",
            "INSERT INTO software (digest, content) VALUES ('2', replace(hex(zeroblob(1400000)), '0', ','))",
            "UPDATE instances SET software = '1' WHERE id = 'a'",
            "UPDATE instances SET software = '2' WHERE id = 'b'",
        ] {
            store.tamper(change).await;
        }
        let (found, is_all) = store.software_of(&"shop".into()).await.unwrap();
        assert_eq!((found.len(), is_all), (1, false));
        store.tamper("UPDATE instances SET software = '1'").await;
        assert!(store.software_of(&"shop".into()).await.unwrap().1);
    }
}
