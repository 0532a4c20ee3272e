//! Releases: versions, and the jobs and packages that versions of one release share.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_planning::names::DeploymentName;
use windlass_planning::records::{CompiledPackage, JobRecord, PackageRecord, PackageSource, ReleaseRecord};

use super::{Store, StoreError, from_json, refused, to_json};

/// How many things one query looks for; databases have a limit of their own.
const AT_ONCE: usize = 500;

/// How many bytes the specs of all jobs of some releases may have that are read at once. Those of the largest deployments have
/// three million, and each becomes a tree in memory.
const LARGEST_SPECS: i64 = 8 << 20;
/// And how many values: each takes a hundred bytes, also one that is written with two.
const MOST_IN_SPECS: usize = 400_000;

fn job(row: &AnyRow) -> Result<JobRecord, StoreError> {
    Ok(JobRecord { spec: from_json("release_jobs.spec", row.try_get("spec")?)?, ..job_without_spec(row)? })
}

fn job_without_spec(row: &AnyRow) -> Result<JobRecord, StoreError> {
    Ok(JobRecord {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        fingerprint: row.try_get("fingerprint")?,
        sha1: row.try_get("sha1")?,
        blob: row.try_get("blob")?,
        spec: Value::Null,
    })
}

fn package(row: &AnyRow) -> Result<PackageRecord, StoreError> {
    Ok(PackageRecord {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        fingerprint: row.try_get("fingerprint")?,
        source: source(row)?,
        dependencies: from_json("release_packages.dependencies", row.try_get("dependencies")?)?,
    })
}

/// A package that only compiled releases brought has a blob without a name.
fn source(row: &AnyRow) -> Result<Option<PackageSource>, StoreError> {
    let blob: String = row.try_get("blob")?;
    let sha1 = row.try_get("sha1")?;
    Ok((!blob.is_empty()).then_some(PackageSource { sha1, blob }))
}

impl Store {
    /// All versions of all releases, without the specs of their jobs ([`Self::add_specs`]); their order is the names', and that of their arrival.
    pub(crate) async fn releases(&self) -> Result<Vec<ReleaseRecord>, StoreError> {
        let pool = self.database.pool();
        let rows = sqlx::query("SELECT * FROM release_versions ORDER BY name, id").fetch_all(pool).await?;
        let mut releases = Vec::new();
        for row in &rows {
            releases.push(ReleaseRecord {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                version: row.try_get("version")?,
                commit_hash: row.try_get("commit_hash")?,
                uncommitted_changes: row.try_get::<i64, _>("uncommitted_changes")? != 0,
                jobs: Vec::new(),
                packages: Vec::new(),
                deployments: Vec::new(),
            });
        }
        let position: BTreeMap<i64, usize> =
            releases.iter().enumerate().map(|(at, release)| (release.id, at)).collect();
        let of = |row: &AnyRow| Ok::<_, StoreError>(position.get(&row.try_get("release_version")?).copied());
        let jobs = "SELECT r.release_version, j.id, j.name, j.version, j.fingerprint, j.sha1, j.blob \
            FROM release_version_jobs r JOIN release_jobs j ON j.id = r.job ORDER BY j.name";
        for row in sqlx::query(jobs).fetch_all(pool).await? {
            if let Some(at) = of(&row)? {
                releases[at].jobs.push(job_without_spec(&row)?);
            }
        }
        let packages = "SELECT r.release_version, p.* FROM release_version_packages r JOIN release_packages p \
            ON p.id = r.package ORDER BY p.name";
        for row in sqlx::query(packages).fetch_all(pool).await? {
            if let Some(at) = of(&row)? {
                releases[at].packages.push(package(&row)?);
            }
        }
        let uses = "SELECT deployment, release_version FROM deployment_releases ORDER BY deployment";
        for row in sqlx::query(uses).fetch_all(pool).await? {
            if let Some(at) = of(&row)? {
                releases[at].deployments.push(row.try_get("deployment")?);
            }
        }
        Ok(releases)
    }

    /// Reads the specs of the jobs of releases with these ids, and of no others: everybody who uploads brings some.
    pub(crate) async fn add_specs(&self, releases: &mut [ReleaseRecord], ids: &[i64]) -> Result<(), StoreError> {
        let pool = self.database.pool();
        let (mut left, mut values) = (LARGEST_SPECS, 0);
        for release in releases.iter_mut().filter(|release| ids.contains(&release.id)) {
            let length = "SELECT CAST(COALESCE(SUM(OCTET_LENGTH(j.spec)), 0) AS BIGINT) FROM release_version_jobs r \
                JOIN release_jobs j ON j.id = r.job WHERE r.release_version = $1";
            left -= sqlx::query_scalar::<_, i64>(length).bind(release.id).fetch_one(pool).await?;
            let too_many = || StoreError::TooManySpecs(format!("{}/{}", release.name, release.version));
            if left < 0 {
                return Err(too_many());
            }
            let specs = "SELECT j.id, j.spec FROM release_version_jobs r JOIN release_jobs j ON j.id = r.job \
                WHERE r.release_version = $1";
            let rows = sqlx::query(specs).bind(release.id).fetch_all(pool).await?;
            let mut by_id = BTreeMap::new();
            for row in &rows {
                let spec: &str = row.try_get("spec")?;
                values += windlass_contract::values_in(spec.as_bytes());
                if values > MOST_IN_SPECS {
                    return Err(too_many());
                }
                by_id.insert(row.try_get::<i64, _>("id")?, from_json("release_jobs.spec", spec)?);
            }
            for job in &mut release.jobs {
                job.spec = by_id.remove(&job.id).unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Names and versions of the releases that each deployment uses.
    pub(crate) async fn releases_in_use(&self) -> Result<BTreeMap<String, Vec<(String, String)>>, StoreError> {
        let rows = sqlx::query(
            "SELECT d.deployment, v.name, v.version FROM deployment_releases d
             JOIN release_versions v ON v.id = d.release_version ORDER BY d.deployment, v.name",
        )
        .fetch_all(self.database.pool())
        .await?;
        let mut used: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for row in &rows {
            let release = (row.try_get("name")?, row.try_get("version")?);
            used.entry(row.try_get("deployment")?).or_default().push(release);
        }
        Ok(used)
    }

    /// Packages of any release by their fingerprints, whose sources can be had without being sent again.
    pub(crate) async fn packages_like(&self, fingerprints: &HashSet<String>) -> Result<Vec<PackageRecord>, StoreError> {
        let fingerprints: Vec<&String> = fingerprints.iter().collect();
        let mut found = Vec::new();
        for some in fingerprints.chunks(AT_ONCE) {
            let places: Vec<String> = (1..=some.len()).map(|place| format!("${place}")).collect();
            let wanted = format!(
                "SELECT * FROM release_packages WHERE blob <> '' AND fingerprint IN ({}) ORDER BY id",
                places.join(", ")
            );
            // Only the number of places is put together here; what is looked for is bound.
            let mut query = sqlx::query(sqlx::AssertSqlSafe(wanted));
            for fingerprint in some {
                query = query.bind(fingerprint.as_str());
            }
            for row in &query.fetch_all(self.database.pool()).await? {
                found.push(package(row)?);
            }
        }
        Ok(found)
    }

    /// The files that jobs and packages are in.
    pub(crate) async fn release_blobs(&self) -> Result<HashSet<String>, StoreError> {
        let rows = sqlx::query("SELECT blob FROM release_jobs UNION SELECT blob FROM release_packages UNION SELECT blob FROM compiled_packages")
            .fetch_all(self.database.pool())
            .await?;
        let named =
            rows.iter().map(|row| row.try_get("blob")).filter(|blob| !blob.as_ref().is_ok_and(String::is_empty));
        Ok(named.collect::<Result<_, sqlx::Error>>()?)
    }

    /// Puts a version on record with all that it has, or nothing of it. What the release had before is shared; a job or package
    /// with another blob gets that one, and so does a compiled package.
    pub(crate) async fn take_release(
        &self,
        release: &ReleaseRecord,
        compiled: &[CompiledPackage],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query(
            "INSERT INTO release_versions (name, version, commit_hash, uncommitted_changes) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name, version) DO NOTHING",
        )
        .bind(&release.name)
        .bind(&release.version)
        .bind(&release.commit_hash)
        .bind(i64::from(release.uncommitted_changes))
        .execute(transaction.connection())
        .await?;
        let version: i64 = sqlx::query_scalar("SELECT id FROM release_versions WHERE name = $1 AND version = $2")
            .bind(&release.name)
            .bind(&release.version)
            .fetch_one(transaction.connection())
            .await?;
        for job in &release.jobs {
            let spec = to_json("release_jobs.spec", &job.spec)?;
            let columns = [&job.name, &job.version, &job.fingerprint, &job.sha1, &job.blob, &spec];
            let id = take(&mut transaction, Kind::Job, &release.name, columns).await?;
            join(&mut transaction, Kind::Job, version, id).await?;
        }
        let no_source = PackageSource { sha1: String::new(), blob: String::new() };
        for package in &release.packages {
            let dependencies = to_json("release_packages.dependencies", &package.dependencies)?;
            let PackageSource { sha1, blob } = package.source.as_ref().unwrap_or(&no_source);
            let columns = [&package.name, &package.version, &package.fingerprint, sha1, blob, &dependencies];
            let id = take(&mut transaction, Kind::Package, &release.name, columns).await?;
            join(&mut transaction, Kind::Package, version, id).await?;
        }
        for package in compiled {
            super::software::take_compiled(&mut transaction, package).await?;
        }
        Ok(transaction.commit().await?)
    }

    /// A job of a release, whichever versions of the release have it.
    pub(crate) async fn job_of_release(
        &self,
        release: &str,
        name: &str,
        version: &str,
    ) -> Result<Option<JobRecord>, StoreError> {
        let row = sqlx::query("SELECT * FROM release_jobs WHERE release = $1 AND name = $2 AND version = $3")
            .bind(release)
            .bind(name)
            .bind(version)
            .fetch_optional(self.database.pool())
            .await?;
        row.as_ref().map(job).transpose()
    }

    /// A package of a release, whichever versions of the release have it.
    pub(crate) async fn package_of_release(
        &self,
        release: &str,
        name: &str,
        version: &str,
    ) -> Result<Option<PackageRecord>, StoreError> {
        let row = sqlx::query("SELECT * FROM release_packages WHERE release = $1 AND name = $2 AND version = $3")
            .bind(release)
            .bind(name)
            .bind(version)
            .fetch_optional(self.database.pool())
            .await?;
        row.as_ref().map(package).transpose()
    }

    /// Notes which versions a deployment uses.
    pub(crate) async fn use_releases(&self, deployment: &DeploymentName, versions: &[i64]) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        sqlx::query("DELETE FROM deployment_releases WHERE deployment = $1")
            .bind(deployment.as_str())
            .execute(transaction.connection())
            .await?;
        use_each(&mut transaction, deployment, versions).await?;
        Ok(transaction.commit().await?)
    }

    /// A deployment uses these from now on, and those that it used before.
    pub(crate) async fn also_use_releases(
        &self,
        deployment: &DeploymentName,
        versions: &[i64],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        use_each(&mut transaction, deployment, versions).await?;
        Ok(transaction.commit().await?)
    }

    /// Forgets a version, and the jobs and packages that no other version has.
    pub(crate) async fn forget_release(&self, version: i64) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        for statement in [
            "DELETE FROM release_version_jobs WHERE release_version = $1",
            "DELETE FROM release_version_packages WHERE release_version = $1",
            "DELETE FROM release_versions WHERE id = $1",
        ] {
            let forgotten = sqlx::query(statement).bind(version).execute(transaction.connection()).await;
            forgotten.map_err(|error| refused(error, StoreError::InUse("release")))?;
        }
        for statement in [
            "DELETE FROM release_jobs WHERE id NOT IN (SELECT job FROM release_version_jobs)",
            "DELETE FROM compiled_packages WHERE package NOT IN (SELECT package FROM release_version_packages)",
            "DELETE FROM release_packages WHERE id NOT IN (SELECT package FROM release_version_packages)",
        ] {
            sqlx::query(statement).execute(transaction.connection()).await?;
        }
        Ok(transaction.commit().await?)
    }
}

async fn use_each(
    transaction: &mut Transaction,
    deployment: &DeploymentName,
    versions: &[i64],
) -> Result<(), StoreError> {
    for version in versions {
        let statement =
            "INSERT INTO deployment_releases (deployment, release_version) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let used =
            sqlx::query(statement).bind(deployment.as_str()).bind(*version).execute(transaction.connection()).await;
        used.map_err(|error| refused(error, StoreError::Gone("release")))?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Job,
    Package,
}

/// The number of a job or package, which is put on record or gets the digest and blob that it has now. What is read from its archive
/// changes with the archive only: an upload that leaves the bytes as they are leaves what others deploy as it is.
async fn take(
    transaction: &mut Transaction,
    kind: Kind,
    release: &str,
    [name, version, fingerprint, sha1, blob, details]: [&String; 6],
) -> Result<i64, StoreError> {
    let (insert, find) = match kind {
        Kind::Job => (
            "INSERT INTO release_jobs (release, name, version, fingerprint, sha1, blob, spec) VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (release, name, version) DO UPDATE SET sha1 = $5, blob = $6,
                spec = CASE WHEN release_jobs.blob = $6 THEN release_jobs.spec ELSE $7 END",
            "SELECT id FROM release_jobs WHERE release = $1 AND name = $2 AND version = $3",
        ),
        Kind::Package => (
            "INSERT INTO release_packages (release, name, version, fingerprint, sha1, blob, dependencies)
             VALUES ($1, $2, $3, $4, $5, $6, $7)
             ON CONFLICT (release, name, version) DO UPDATE SET sha1 = $5, blob = $6,
                dependencies = CASE WHEN release_packages.blob = $6 THEN release_packages.dependencies ELSE $7 END",
            "SELECT id FROM release_packages WHERE release = $1 AND name = $2 AND version = $3",
        ),
    };
    if let Kind::Package = kind {
        // What was compiled from a source that is replaced is of no use.
        sqlx::query(
            "DELETE FROM compiled_packages WHERE package IN
             (SELECT id FROM release_packages WHERE release = $1 AND name = $2 AND version = $3 AND blob <> '' AND blob <> $4)",
        )
        .bind(release)
        .bind(name)
        .bind(version)
        .bind(blob)
        .execute(transaction.connection())
        .await?;
    }
    let mut query = sqlx::query(insert).bind(release);
    for column in [name, version, fingerprint, sha1, blob, details] {
        query = query.bind(column);
    }
    query.execute(transaction.connection()).await?;
    let found = sqlx::query_scalar(find).bind(release).bind(name).bind(version);
    Ok(found.fetch_one(transaction.connection()).await?)
}

async fn join(transaction: &mut Transaction, kind: Kind, version: i64, id: i64) -> Result<(), StoreError> {
    let statement = match kind {
        Kind::Job => "INSERT INTO release_version_jobs (release_version, job) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        Kind::Package => {
            "INSERT INTO release_version_packages (release_version, package) VALUES ($1, $2) ON CONFLICT DO NOTHING"
        }
    };
    sqlx::query(statement).bind(version).bind(id).execute(transaction.connection()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A release of a few hundred KB may have specs that take hundreds of MB in memory, and there may be many.
    #[tokio::test]
    async fn lists_of_releases_have_no_specs_and_who_needs_some_gets_those_alone_within_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&format!("sqlite:{}", folder.path().join("director.db").display())).await.unwrap();
        for (name, size, values) in [
            ("small", 10, 0),
            ("large", LARGEST_SPECS as usize / 2, 0),
            ("larger", LARGEST_SPECS as usize / 2, 0),
            ("many", 0, MOST_IN_SPECS),
        ] {
            let (sha1, blob) = (String::new(), format!("blob-{name}"));
            let spec = json!({"name": "app", "text": "x".repeat(size), "values": vec![1; values]});
            let (version, fingerprint) = ("1".to_owned(), "f".to_owned());
            let job = JobRecord { id: 0, name: "app".into(), version, fingerprint, sha1, blob, spec };
            let release = ReleaseRecord { name: name.into(), version: "1".into(), ..ReleaseRecord::default() };
            store.take_release(&ReleaseRecord { jobs: vec![job], ..release }, &[]).await.unwrap();
        }
        let mut all = store.releases().await.unwrap();
        assert!(all.iter().all(|release| release.jobs[0].spec.is_null()));
        let id = |all: &[ReleaseRecord], name: &str| all.iter().find(|release| release.name == name).unwrap().id;
        let (small, large, larger) = (id(&all, "small"), id(&all, "large"), id(&all, "larger"));
        store.add_specs(&mut all, &[small, large]).await.unwrap();
        let read: Vec<_> = all.iter().filter(|it| !it.jobs[0].spec.is_null()).map(|it| it.name.as_str()).collect();
        assert_eq!(read, ["large", "small"]);
        let refused = store.add_specs(&mut all, &[large, larger]).await.unwrap_err().to_string();
        assert!(refused.contains("8 MiB") && refused.contains("larger/1"), "{refused}");
        let many = id(&all, "many");
        let refused = store.add_specs(&mut all, &[many]).await.unwrap_err().to_string();
        assert!(refused.contains("many/1"), "{refused}");
    }

    #[tokio::test]
    async fn what_is_gone_or_in_use_meanwhile_is_said_instead_of_a_failed_database() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&format!("sqlite:{}", folder.path().join("director.db").display())).await.unwrap();
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        for error in [
            store.use_releases(&"shop".into(), &[7]).await.unwrap_err(),
            store.use_stemcells(&"shop".into(), &[7]).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("was deleted while it was planned"), "{error}");
        }
        let release = ReleaseRecord { name: "web".into(), version: "1".into(), ..ReleaseRecord::default() };
        store.take_release(&release, &[]).await.unwrap();
        let id = store.releases().await.unwrap()[0].id;
        store.use_releases(&"shop".into(), &[id]).await.unwrap();
        let error = store.forget_release(id).await.unwrap_err();
        assert!(matches!(error, StoreError::InUse("release")), "{error}");
    }
}
