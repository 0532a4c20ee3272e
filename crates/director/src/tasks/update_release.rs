//! Takes a release: reads it, keeps its archives, and puts it on record as a whole.

use std::collections::HashSet;
use std::path::Path;

use windlass_durable::{file, kill_point};
use windlass_release::{JobEntry, Package, Release, ReleaseManifest};
use windlass_stemcell::digest::verify as verify_digest;
use windlass_stemcell::download::download;

use super::{TaskError, TaskLog, lock};
use crate::Director;
use crate::store::{JobRecord, PackageRecord, ReleaseRecord};

/// Takes a tarball that was uploaded.
pub(super) async fn run(director: &Director, log: &TaskLog, tarball: &Path, fix: bool) -> Result<String, TaskError> {
    let result = upload(director, log, tarball, fix).await;
    remove(log, file::remove_file(tarball), tarball);
    result
}

/// Fetches a tarball from where the operator says.
pub(super) async fn run_remote(
    director: &Director,
    log: &TaskLog,
    (location, digest): (&str, Option<&str>),
    fix: bool,
) -> Result<String, TaskError> {
    let tarball = director.folders.temporary().join(format!("download-{}", log.task()));
    let result = async {
        let stage = log.stage("Downloading remote release", &[], 1);
        stage.part("Downloading remote release").run(download(location, &tarball)).await?;
        if let Some(digest) = digest {
            let (path, digest) = (tarball.clone(), digest.to_owned());
            let stage = log.stage("Verifying remote release", &[], 1);
            let verifying = blocking(move || Ok(verify_digest(&path, &digest)?));
            stage.part("Verifying remote release").run(verifying).await?;
        }
        upload(director, log, &tarball, fix).await
    }
    .await;
    if tarball.exists() {
        remove(log, file::remove_file(&tarball), &tarball);
    }
    result
}

fn remove(log: &TaskLog, removed: std::io::Result<()>, path: &Path) {
    if let Err(error) = removed {
        log.warning(&format!("cannot remove {}: {error}", path.display()));
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
) -> Result<T, TaskError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| TaskError::Panicked(error.to_string()))?
}

async fn upload(director: &Director, log: &TaskLog, tarball: &Path, fix: bool) -> Result<String, TaskError> {
    let folder = director.folders.temporary().join(format!("release-{}", log.task()));
    let result = take(director, log, tarball, &folder, fix).await;
    remove(log, file::remove_tree(&folder), &folder);
    result
}

/// A stage with one part of the same name, as BOSH shows most of this.
async fn step<T>(log: &TaskLog, name: &str, work: impl Future<Output = Result<T, TaskError>>) -> Result<T, TaskError> {
    log.stage(name, &[], 1).part(name).run(work).await
}

async fn take(
    director: &Director,
    log: &TaskLog,
    tarball: &Path,
    folder: &Path,
    fix: bool,
) -> Result<String, TaskError> {
    let (path, into) = (tarball.to_owned(), folder.to_owned());
    let reading = blocking(move || {
        file::create_private_dir(&into).map_err(|source| TaskError::Blob { path: into.clone(), source })?;
        Ok(windlass_release::read(&path, &into)?)
    });
    let release = step(log, "Extracting release", reading).await?;
    // Reading it has checked all of this.
    step(log, "Verifying manifest", async { Ok(()) }).await?;
    // One at a time: what nobody has on record is removed while this lock is held.
    lock(director, log, "release").await?;
    remove_unknown_blobs(director).await?;
    let known = director.store.releases().await?;
    step(log, "Resolving package dependencies", async { check(&known, &release.manifest) }).await?;
    let record = keep(director, log, release, &known, fix).await?;
    kill_point("before a release is put on record");
    director.store.take_release(&record).await?;
    let name = format!("{}/{}", record.name, record.version);
    log.stage("Release has been created", &[], 1).part(&name).run(async { Ok::<_, TaskError>(()) }).await?;
    // What it had before, if it was uploaded to be mended.
    remove_unknown_blobs(director).await?;
    Ok(format!("Created release '{name}'"))
}

/// A version that is there already must be the same.
fn check(known: &[ReleaseRecord], manifest: &ReleaseManifest) -> Result<(), TaskError> {
    if !manifest.compiled_packages.is_empty() {
        let reason = "this director does not take compiled releases yet; upload the release with its sources";
        return Err(TaskError::refused(30001, reason));
    }
    let same = known.iter().find(|release| release.name == manifest.name && release.version == manifest.version);
    let Some(release) = same else { return Ok(()) };
    let name = format!("{}/{}", release.name, release.version);
    let (hash, uncommitted) = commit(manifest);
    if release.commit_hash != hash || release.uncommitted_changes != uncommitted {
        let reason = format!(
            "release '{name}' has already been uploaded with commit_hash as '{}' and uncommitted_changes as '{}'",
            release.commit_hash, release.uncommitted_changes
        );
        return Err(TaskError::refused(30014, reason));
    }
    for job in &manifest.jobs {
        let other = release.jobs.iter().find(|known| known.name == job.name && known.fingerprint != job.fingerprint);
        if other.is_some() {
            let reason =
                format!("job '{}' had different fingerprint in previously uploaded release '{name}'", job.name);
            return Err(TaskError::refused(30013, reason));
        }
    }
    for package in &manifest.packages {
        let is_other = |known: &&PackageRecord| known.name == package.name && known.fingerprint != package.fingerprint;
        if release.packages.iter().any(|known| is_other(&known)) {
            let name = format!("'{}' had different fingerprint in previously uploaded release '{name}'", package.name);
            return Err(TaskError::refused(30012, format!("package {name}")));
        }
    }
    Ok(())
}

fn commit(manifest: &ReleaseManifest) -> (String, bool) {
    (manifest.commit_hash.clone().unwrap_or_else(|| "unknown".to_owned()), manifest.uncommitted_changes)
}

/// Keeps the archives that are new; says what is to be put on record.
async fn keep(
    director: &Director,
    log: &TaskLog,
    release: Release,
    known: &[ReleaseRecord],
    fix: bool,
) -> Result<ReleaseRecord, TaskError> {
    let series: Vec<&ReleaseRecord> = known.iter().filter(|known| known.name == release.manifest.name).collect();
    let packages = keep_packages(director, log, &release, &series, fix).await?;
    let jobs = keep_jobs(director, log, &release, &series, fix).await?;
    let (commit_hash, uncommitted_changes) = commit(&release.manifest);
    let ReleaseManifest { name, version, .. } = release.manifest;
    Ok(ReleaseRecord {
        id: 0,
        name,
        version,
        commit_hash,
        uncommitted_changes,
        jobs,
        packages,
        deployments: Vec::new(),
    })
}

async fn keep_packages(
    director: &Director,
    log: &TaskLog,
    release: &Release,
    series: &[&ReleaseRecord],
    fix: bool,
) -> Result<Vec<PackageRecord>, TaskError> {
    let listed = &release.manifest.packages;
    let fingerprints: HashSet<String> = listed.iter().map(|package| package.fingerprint.clone()).collect();
    let lenders = director.store.packages_like(&fingerprints).await?;
    let all: Vec<&PackageRecord> = series.iter().flat_map(|release| &release.packages).collect();
    let kept = |package: &Package| {
        all.iter().copied().find(|kept| kept.name == package.name && kept.version == package.version)
    };
    let new = listed.iter().filter(|package| kept(package).is_none()).count();
    let stage = (new > 0).then(|| log.stage("Creating new packages", &[], new));
    let mut packages = Vec::new();
    for package in listed {
        let archive = release.packages.get(&package.name);
        let kept = kept(package);
        let lender = kept.or_else(|| lenders.iter().find(|lender| lender.fingerprint == package.fingerprint));
        let keeping = async {
            match (archive, lender) {
                (Some(archive), _) if kept.is_none() || fix => {
                    Ok((keep_blob(director, archive).await?, package.sha1.clone()))
                }
                (_, Some(lender)) => Ok((lender.blob.clone(), lender.sha1.clone())),
                _ => Err(missing(package)),
            }
        };
        let (blob, sha1) = match (&stage, kept) {
            (Some(stage), None) => stage.part(&format!("{}/{}", package.name, package.version)).run(keeping).await?,
            _ => keeping.await?,
        };
        let Package { name, version, fingerprint, dependencies, .. } = package.clone();
        packages.push(PackageRecord { id: 0, name, version, fingerprint, sha1, blob, dependencies });
    }
    tell_of_existing(log, "package", listed.len() - new).await?;
    Ok(packages)
}

fn missing(Package { name, version, .. }: &Package) -> TaskError {
    let reason = format!(
        "the release lists the package '{name}/{version}', but its tarball has no packages/{name}.tgz, and no release here has \
         it; upload the whole release"
    );
    TaskError::refused(30011, reason)
}

async fn keep_jobs(
    director: &Director,
    log: &TaskLog,
    release: &Release,
    series: &[&ReleaseRecord],
    fix: bool,
) -> Result<Vec<JobRecord>, TaskError> {
    let listed = &release.manifest.jobs;
    let all: Vec<&JobRecord> = series.iter().flat_map(|release| &release.jobs).collect();
    let kept = |job: &JobEntry| all.iter().copied().find(|kept| kept.name == job.name && kept.version == job.version);
    let new = listed.iter().filter(|job| kept(job).is_none()).count();
    let stage = (new > 0).then(|| log.stage("Creating new jobs", &[], new));
    let mut jobs = Vec::new();
    for (entry, archive) in listed.iter().zip(&release.jobs) {
        let kept = kept(entry);
        let keeping = async {
            match kept.filter(|_| !fix) {
                Some(kept) => Ok::<_, TaskError>((kept.blob.clone(), kept.sha1.clone())),
                None => Ok((keep_blob(director, &archive.archive).await?, entry.sha1.clone())),
            }
        };
        let (blob, sha1) = match (&stage, kept) {
            (Some(stage), None) => stage.part(&format!("{}/{}", entry.name, entry.version)).run(keeping).await?,
            _ => keeping.await?,
        };
        let JobEntry { name, version, fingerprint, .. } = entry.clone();
        jobs.push(JobRecord { id: 0, name, version, fingerprint, sha1, blob, spec: archive.job.spec.raw.clone() });
    }
    tell_of_existing(log, "job", listed.len() - new).await?;
    Ok(jobs)
}

async fn tell_of_existing(log: &TaskLog, what: &str, count: usize) -> Result<(), TaskError> {
    match count {
        0 => Ok(()),
        1 => step(log, &format!("Processing 1 existing {what}"), async { Ok(()) }).await,
        more => step(log, &format!("Processing {more} existing {what}s"), async { Ok(()) }).await,
    }
}

/// Moves an archive to where releases are kept; returns its name there.
async fn keep_blob(director: &Director, archive: &Path) -> Result<String, TaskError> {
    let name = uuid::Uuid::new_v4().to_string();
    let (from, to) = (archive.to_owned(), director.folders.releases().join(&name));
    blocking(move || {
        let kept = std::fs::File::open(&from).and_then(|file| file.sync_all()).and_then(|()| file::rename(&from, &to));
        kept.map_err(|source| TaskError::Blob { path: to, source })
    })
    .await?;
    Ok(name)
}

/// Removes files that no release has: of uploads that were killed, and of releases that were deleted. The caller has the lock.
pub(super) async fn remove_unknown_blobs(director: &Director) -> Result<(), TaskError> {
    let known = director.store.release_blobs().await?;
    let folder = director.folders.releases();
    blocking(move || {
        let failed = |source| TaskError::Blob { path: folder.clone(), source };
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !entry.file_name().to_str().is_some_and(|name| known.contains(name)) {
                file::remove_file(&entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    })
    .await
}
