//! Takes a release: reads it, keeps its archives, and puts it on record as a whole.

use std::path::Path;

use windlass_download::Download;
use windlass_durable::{file, kill_point};
use windlass_planning::records::{CompiledPackage, JobRecord, PackageRecord, ReleaseRecord};
use windlass_release::{JobEntry, Package, Release, ReleaseManifest, Version};
use windlass_stemcell::digest::verify as verify_digest;

use super::release_packages::{self, TakenPackages};
use super::{TaskError, TaskLog, lock};
use crate::Director;
use crate::blobs::{self, RELEASES};
use crate::software::ruby_needs::{self, NotKnownYet, WaitForRubyNeeds};
use crate::store::LockName;

/// How many jobs and packages a release may have that somebody brings who is no admin, and how many all versions of all releases may have
/// with it: a list of 30 KB has ten thousand, without an archive, and each plan and list reads all that are here.
const MOST_IN_A_VERSION: usize = 2_000;
const MOST_IN_ALL: usize = 50_000;
/// So many dependencies of packages count as one of those: a list of four megabytes has two hundred thousand.
const DEPENDENCIES: usize = 5;
/// So many letters of a name and a fingerprint count as one more. Usual ones have 90.
const LONG: usize = 128;

/// How a release is taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReleaseUpload {
    /// Its archives are stored again even if they are there.
    pub(super) fix: bool,
    /// It gets the next version that is free.
    pub(super) rebase: bool,
    /// The user may change what deployments of all teams use.
    pub(super) replaces: bool,
}

impl ReleaseUpload {
    /// Whether an archive that is here is stored again. Admins say so. Who may only upload mends what is gone or damaged: what is stored again is
    /// compiled again for all who deploy it.
    pub(super) async fn mends(self, director: &Director, (blob, digest): (&str, &str)) -> Result<bool, TaskError> {
        if !self.fix || self.replaces {
            return Ok(self.fix);
        }
        let Ok(found) = director.blobs.file(RELEASES, blob, Some(digest)).await else { return Ok(true) };
        let digest = digest.to_owned();
        blocking(move || Ok(verify_digest(found.as_ref(), &digest).is_err())).await
    }
}

/// Takes a tarball.
pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    tarball: &Path,
    how: ReleaseUpload,
) -> Result<String, TaskError> {
    let folder = director.folders.temporary().join(format!("release-{}", log.task()));
    let result = take(director, log, tarball, &folder, how).await;
    remove(log, file::remove_tree, &folder);
    result
}

/// Fetches a tarball from where the operator says.
pub(super) async fn run_remote(
    director: &Director,
    log: &TaskLog,
    (location, digest): (&str, Option<&str>),
    how: ReleaseUpload,
) -> Result<String, TaskError> {
    let tarball = director.folders.temporary().join(format!("download-{}", log.task()));
    let result = async {
        let stage = log.stage("Downloading remote release", &[], 1);
        let download = Download::of("release");
        let fetching = log.unless_cancelled(download.fetch(location, &tarball));
        stage.part("Downloading remote release").run(fetching).await?;
        if let Some(digest) = digest {
            let (path, digest) = (tarball.clone(), digest.to_owned());
            let stage = log.stage("Verifying remote release", &[], 1);
            let verifying = blocking(move || Ok(verify_digest(&path, &digest)?));
            stage.part("Verifying remote release").run(verifying).await?;
        }
        run(director, log, &tarball, how).await
    }
    .await;
    if tarball.exists() {
        remove(log, file::remove_file, &tarball);
    }
    result
}

fn remove(log: &TaskLog, remove: fn(&Path) -> std::io::Result<()>, path: &Path) {
    if log.is_of_another_director() {
        return;
    }
    if let Err(error) = remove(path) {
        log.warning(&format!("cannot remove {}: {error}", path.display()));
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TaskError> + Send + 'static,
) -> Result<T, TaskError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| TaskError::Panicked(error.to_string()))?
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
    how: ReleaseUpload,
) -> Result<String, TaskError> {
    let turn = async { Ok::<_, TaskError>(director.limits.upload(log.user()).await) };
    let _turn = log.unless_cancelled(turn).await?;
    let (path, into) = (tarball.to_owned(), folder.to_owned());
    let reading = blocking(move || {
        file::create_private_dir(&into).map_err(|source| TaskError::Folder { path: into.clone(), source })?;
        Ok(windlass_release::read(&path, &into)?)
    });
    let mut release = step(log, "Extracting release", reading).await?;
    // Reading it has checked all of this.
    step(log, "Verifying manifest", async { Ok(()) }).await?;
    // Before others wait for the lock: reading templates takes a while.
    let needs_ruby = jobs_that_need_ruby(director, &release).await;
    // One at a time: what nobody has on record is removed while this lock is held.
    lock(director, log, &LockName::of_releases()).await?;
    remove_unknown_blobs(director).await?;
    let known = director.store.releases().await?;
    check_size(&known, &release.manifest, how)?;
    if how.rebase {
        release.manifest.version = rebased(&known, &release.manifest)?;
    }
    step(log, "Resolving package dependencies", async { check(&known, &release.manifest, how) }).await?;
    let created = match release.manifest.is_compiled {
        true => "Compiled Release has been created",
        false => "Release has been created",
    };
    let (record, compiled) = keep(director, log, release, &known, how).await?;
    kill_point("before a release is put on record");
    director.store.take_release(&record, &compiled).await?;
    let name = format!("{}/{}", record.name, record.version);
    log.stage(created, &[], 1).part(&name).run(async { Ok::<_, TaskError>(()) }).await?;
    needs_ruby.iter().for_each(|warning| log.warning(warning));
    // What it had before, if it was uploaded to be mended.
    remove_unknown_blobs(director).await?;
    Ok(format!("Created release '{name}'"))
}

/// For how many a job or package counts: one, unless it is called something very long.
fn weight(name: &str, fingerprint: &str) -> usize {
    1 + (name.len() + fingerprint.len()) / LONG
}

/// Refuses what would take the memory of all who list releases or plan.
fn check_size(known: &[ReleaseRecord], manifest: &ReleaseManifest, how: ReleaseUpload) -> Result<(), TaskError> {
    if how.replaces {
        return Ok(());
    }
    let dependencies = manifest.all_packages().map(|package| package.dependencies.len()).sum::<usize>();
    let of_jobs = manifest.jobs.iter().map(|job| weight(&job.name, &job.fingerprint));
    let of_packages = manifest.all_packages().map(|package| weight(&package.name, &package.fingerprint));
    let own = of_jobs.chain(of_packages).sum::<usize>() + dependencies / DEPENDENCIES;
    let of_release = |release: &ReleaseRecord| {
        let dependencies = release.packages.iter().map(|package| package.dependencies.len()).sum::<usize>();
        let of_jobs = release.jobs.iter().map(|job| weight(&job.name, &job.fingerprint));
        let of_packages = release.packages.iter().map(|package| weight(&package.name, &package.fingerprint));
        // Each version costs something, also one with nothing in it.
        1 + of_jobs.chain(of_packages).sum::<usize>() + dependencies / DEPENDENCIES
    };
    let here: usize = known.iter().map(of_release).sum();
    let is_here = known.iter().any(|release| release.name == manifest.name && release.version == manifest.version);
    let reason = if own > MOST_IN_A_VERSION {
        format!(
            "the release has {own} jobs and packages, with every fifth dependency of those; {MOST_IN_A_VERSION} are the most for who is no admin"
        )
    } else if !is_here && here + own >= MOST_IN_ALL {
        format!(
            "all releases here have {here} versions, jobs and packages together, and with this one more than {MOST_IN_ALL}; an admin can \
             upload it, or delete some with 'clean-up'"
        )
    } else {
        return Ok(());
    };
    Err(TaskError::refused(600000, reason))
}

async fn jobs_that_need_ruby(director: &Director, release: &Release) -> Vec<String> {
    let (mut warnings, mut late, wait) = (Vec::new(), 0, WaitForRubyNeeds::begin());
    for (entry, archive) in release.manifest.jobs.iter().zip(&release.jobs) {
        if wait.is_over() {
            late += 1;
        } else if let Some(why) = ruby_needs::look(&director.limits, &archive.job).await {
            warnings.push(format!("job '{}' is rendered by Ruby: {why}", entry.name));
        }
    }
    if late > 0 {
        warnings.push(format!("whether {late} more jobs are rendered by Ruby is {NotKnownYet}"));
    }
    warnings
}

/// The version that comes after those that are there.
fn rebased(known: &[ReleaseRecord], manifest: &ReleaseManifest) -> Result<String, TaskError> {
    let refused = |reason: String| TaskError::refused(100, format!("Failed to Rebase - {reason}"));
    let version = Version::parse(&manifest.version).map_err(|error| refused(error.to_string()))?;
    let series = known.iter().filter(|release| release.name == manifest.name);
    let versions: Vec<Version> = series.filter_map(|release| Version::parse(&release.version).ok()).collect();
    let next = version.rebased(&versions).ok_or_else(|| {
        refused(format!("Invalid Version: '{version}' has no part after a '+'; upload it without --rebase"))
    })?;
    Ok(next.map_err(|error| refused(error.to_string()))?.to_string())
}

/// A version that is there already must be the same. Others deploy it, so only admins add to it.
fn check(known: &[ReleaseRecord], manifest: &ReleaseManifest, how: ReleaseUpload) -> Result<(), TaskError> {
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
    for package in manifest.all_packages() {
        let is_other = |known: &&PackageRecord| known.name == package.name && known.fingerprint != package.fingerprint;
        if release.packages.iter().any(|known| is_other(&known)) {
            let name = format!("'{}' had different fingerprint in previously uploaded release '{name}'", package.name);
            return Err(TaskError::refused(30012, format!("package {name}")));
        }
    }
    let is_new_job = |job: &&JobEntry| !release.jobs.iter().any(|known| known.name == job.name);
    let is_new = |package: &&Package| !release.packages.iter().any(|known| known.name == package.name);
    let new_job = manifest.jobs.iter().find(is_new_job).map(|job| format!("job '{}'", job.name));
    let new = new_job.or_else(|| manifest.all_packages().find(is_new).map(|it| format!("package '{}'", it.name)));
    match new.filter(|_| !how.replaces) {
        Some(new) => {
            let reason = format!("release '{name}' is here without the {new}; only an admin may add to it");
            Err(TaskError::refused(600000, reason))
        }
        None => Ok(()),
    }
}

fn commit(manifest: &ReleaseManifest) -> (String, bool) {
    (manifest.commit_hash.clone().unwrap_or_else(|| "unknown".to_owned()), manifest.uncommitted_changes)
}

/// Keeps the archives that are new; says what is to be put on record.
async fn keep(
    director: &Director,
    log: &TaskLog,
    mut release: Release,
    known: &[ReleaseRecord],
    how: ReleaseUpload,
) -> Result<(ReleaseRecord, Vec<CompiledPackage>), TaskError> {
    let series: Vec<&ReleaseRecord> = known.iter().filter(|known| known.name == release.manifest.name).collect();
    let TakenPackages { packages, compiled } = release_packages::keep(director, log, &release, &series, how).await?;
    let jobs = keep_jobs(director, log, &mut release, &series, how).await?;
    let (commit_hash, uncommitted_changes) = commit(&release.manifest);
    let ReleaseManifest { name, version, .. } = release.manifest;
    let record = ReleaseRecord {
        id: 0,
        name,
        version,
        commit_hash,
        uncommitted_changes,
        jobs,
        packages,
        deployments: Vec::new(),
    };
    Ok((record, compiled))
}

async fn keep_jobs(
    director: &Director,
    log: &TaskLog,
    release: &mut Release,
    series: &[&ReleaseRecord],
    how: ReleaseUpload,
) -> Result<Vec<JobRecord>, TaskError> {
    let listed = &release.manifest.jobs;
    let all: Vec<&JobRecord> = series.iter().flat_map(|release| &release.jobs).collect();
    let kept = |job: &JobEntry| all.iter().copied().find(|kept| kept.name == job.name && kept.version == job.version);
    let new = listed.iter().filter(|job| kept(job).is_none()).count();
    let stage = (new > 0).then(|| log.stage("Creating new jobs", &[], new));
    let mut jobs = Vec::new();
    for (entry, archive) in listed.iter().zip(&mut release.jobs) {
        let kept = kept(entry);
        let is_replaced = match kept.filter(|kept| kept.sha1 != entry.sha1) {
            Some(kept) => {
                let here = Here { what: format!("job '{}/{}'", entry.name, entry.version), sha1: &kept.sha1 };
                here.makes_room(log, how, is_used(series, |release| release.jobs.iter().any(|job| job.id == kept.id)))?
            }
            None => false,
        };
        let is_mended = match kept {
            Some(kept) => is_replaced || how.mends(director, (&kept.blob, &kept.sha1)).await?,
            None => false,
        };
        let keeping = async {
            match kept.filter(|_| !is_mended) {
                Some(kept) => Ok::<_, TaskError>((kept.blob.clone(), kept.sha1.clone())),
                None => Ok((keep_blob(director, &archive.archive).await?, entry.sha1.clone())),
            }
        };
        let (blob, sha1) = match (&stage, kept) {
            (Some(stage), None) => stage.part(&format!("{}/{}", entry.name, entry.version)).run(keeping).await?,
            _ => keeping.await?,
        };
        let JobEntry { name, version, fingerprint, .. } = entry.clone();
        jobs.push(JobRecord { id: 0, name, version, fingerprint, sha1, blob, spec: archive.job.spec.raw.take() });
    }
    tell_of_existing(log, "job", listed.len() - new).await?;
    Ok(jobs)
}

/// Whether a deployment uses a version of a release with something.
pub(super) fn is_used(series: &[&ReleaseRecord], has: impl Fn(&ReleaseRecord) -> bool) -> bool {
    series.iter().any(|release| !release.deployments.is_empty() && has(release))
}

/// Something that is here under the same name and version with other bytes. The uploader chooses the versions and
/// fingerprints in a release, and could name those of others.
pub(super) struct Here<'a> {
    pub(super) what: String,
    pub(super) sha1: &'a str,
}

impl Here<'_> {
    /// Whether what came takes its place. What deployments run stays, and that is said; to mend it is for admins. What nobody runs may have
    /// been brought by somebody who knew what an admin would upload: the admin's counts.
    pub(super) fn makes_room(&self, log: &TaskLog, how: ReleaseUpload, is_used: bool) -> Result<bool, TaskError> {
        let Self { what, sha1 } = self;
        match how {
            ReleaseUpload { fix: false, replaces: true, .. } if !is_used => {
                log.warning(&format!(
                    "{what} was here from another upload ({sha1}), no deployment uses it, and it is replaced"
                ));
                Ok(true)
            }
            ReleaseUpload { fix: false, .. } => {
                log.warning(&format!(
                    "{what} is here with other bytes ({sha1}), which stay; an admin can replace them with --fix"
                ));
                Ok(false)
            }
            ReleaseUpload { replaces: true, .. } => Ok(true),
            _ => {
                let reason = format!(
                    "{what} is here with other bytes ({sha1}), which others may run; only an admin may replace them with --fix"
                );
                Err(TaskError::refused(600000, reason))
            }
        }
    }
}

pub(super) async fn tell_of_existing(log: &TaskLog, what: &str, count: usize) -> Result<(), TaskError> {
    match count {
        0 => Ok(()),
        1 => step(log, &format!("Processing 1 existing {what}"), async { Ok(()) }).await,
        more => step(log, &format!("Processing {more} existing {what}s"), async { Ok(()) }).await,
    }
}

/// Moves an archive to where releases are kept; returns its name there.
pub(super) async fn keep_blob(director: &Director, archive: &Path) -> Result<String, TaskError> {
    let name = uuid::Uuid::new_v4().to_string();
    director.blobs.keep(RELEASES, &name, archive).await?;
    Ok(name)
}

/// Removes files that no release has: of uploads that were killed, and of releases that were deleted. The caller has the lock.
pub(super) async fn remove_unknown_blobs(director: &Director) -> Result<(), TaskError> {
    Ok(blobs::remove_unknown_of_releases(director).await.map(drop)?)
}

#[cfg(test)]
pub(super) mod tests;
