//! Takes a release: reads it, keeps its archives, and puts it on record as a whole.

use std::path::Path;

use windlass_download::Download;
use windlass_durable::{file, kill_point};
use windlass_planning::records::{CompiledPackage, JobRecord, PackageRecord, ReleaseRecord};
use windlass_release::{JobEntry, Release, ReleaseManifest, Version};
use windlass_stemcell::digest::verify as verify_digest;

use super::release_packages::{self, TakenPackages};
use super::{TaskError, TaskLog, lock};
use crate::Director;
use crate::blobs::{self, RELEASES};

/// How a release is taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct How {
    /// Its archives are kept anew even if they are there.
    pub(super) fix: bool,
    /// It gets the next version that is free.
    pub(super) rebase: bool,
}

/// Takes a tarball.
pub(super) async fn run(director: &Director, log: &TaskLog, tarball: &Path, how: How) -> Result<String, TaskError> {
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
    how: How,
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
    how: How,
) -> Result<String, TaskError> {
    let (path, into) = (tarball.to_owned(), folder.to_owned());
    let reading = blocking(move || {
        file::create_private_dir(&into).map_err(|source| TaskError::Folder { path: into.clone(), source })?;
        Ok(windlass_release::read(&path, &into)?)
    });
    let mut release = step(log, "Extracting release", reading).await?;
    // Reading it has checked all of this.
    step(log, "Verifying manifest", async { Ok(()) }).await?;
    // Before others wait for the lock: templates are read in turn with everybody's documents.
    let needs_ruby = jobs_that_need_ruby(director, &release).await;
    // One at a time: what nobody has on record is removed while this lock is held.
    lock(director, log, "release").await?;
    remove_unknown_blobs(director).await?;
    let known = director.store.releases().await?;
    if how.rebase {
        release.manifest.version = rebased(&known, &release.manifest)?;
    }
    step(log, "Resolving package dependencies", async { check(&known, &release.manifest) }).await?;
    let created = match release.manifest.is_compiled {
        true => "Compiled Release has been created",
        false => "Release has been created",
    };
    let (record, compiled) = keep(director, log, release, &known, how.fix).await?;
    kill_point("before a release is put on record");
    director.store.take_release(&record, &compiled).await?;
    let name = format!("{}/{}", record.name, record.version);
    log.stage(created, &[], 1).part(&name).run(async { Ok::<_, TaskError>(()) }).await?;
    needs_ruby.iter().for_each(|warning| log.warning(warning));
    // What it had before, if it was uploaded to be mended.
    remove_unknown_blobs(director).await?;
    Ok(format!("Created release '{name}'"))
}

async fn jobs_that_need_ruby(director: &Director, release: &Release) -> Vec<String> {
    let mut warnings = Vec::new();
    for (entry, archive) in release.manifest.jobs.iter().zip(&release.jobs) {
        if let Some(why) = director.library.needs_ruby_for(&director.limits, &archive.job).await {
            warnings.push(format!("job '{}' is rendered by Ruby: {why}", entry.name));
        }
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

/// A version that is there already must be the same.
fn check(known: &[ReleaseRecord], manifest: &ReleaseManifest) -> Result<(), TaskError> {
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
) -> Result<(ReleaseRecord, Vec<CompiledPackage>), TaskError> {
    let series: Vec<&ReleaseRecord> = known.iter().filter(|known| known.name == release.manifest.name).collect();
    let TakenPackages { packages, compiled } = release_packages::keep(director, log, &release, &series, fix).await?;
    let jobs = keep_jobs(director, log, &release, &series, fix).await?;
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
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use axum::http::{Method, StatusCode};
    use serde_json::{Value, json};
    use windlass_render::{Backends, Renderer};

    use super::super::OutputKind;
    use super::*;
    use crate::testing::TestDirector;

    pub(in crate::tasks) const SHOP: &[u8] = include_bytes!("../../../release/tests/release/data/shop-1.tgz");

    /// A director with a tarball that somebody sent.
    pub(in crate::tasks) struct Site {
        pub(in crate::tasks) bench: TestDirector,
        tasks: std::cell::Cell<i64>,
    }

    impl Site {
        pub(in crate::tasks) async fn new() -> Self {
            Self { bench: TestDirector::new().await, tasks: std::cell::Cell::new(0) }
        }

        pub(in crate::tasks) fn log(&self) -> TaskLog {
            self.tasks.set(self.tasks.get() + 1);
            TaskLog::open(&self.bench.director, self.tasks.get()).unwrap()
        }

        pub(in crate::tasks) async fn upload(&self, tarball: &[u8], fix: bool) -> Result<String, TaskError> {
            self.upload_as(tarball, How { fix, rebase: false }).await
        }

        pub(in crate::tasks) async fn upload_as(&self, tarball: &[u8], how: How) -> Result<String, TaskError> {
            let director = &self.bench.director;
            let path = director.folders.temporary().join("upload");
            std::fs::write(&path, tarball).unwrap();
            let log = self.log();
            let result = run(director, &log, &path, how).await;
            director.store.release_locks(log.task()).await.unwrap();
            // What was sent goes when the end of its task is on record.
            director.folders.forget_upload(&path).unwrap();
            assert_eq!(std::fs::read_dir(director.folders.temporary()).unwrap().count(), 0);
            result
        }

        pub(in crate::tasks) async fn delete(&self, name: &str, version: Option<&str>) -> Result<String, TaskError> {
            let log = self.log();
            let result = super::super::delete_release::run(&self.bench.director, &log, name, version).await;
            self.bench.director.store.release_locks(log.task()).await.unwrap();
            result
        }

        /// What people saw of the last task, without digests.
        pub(in crate::tasks) fn seen(&self) -> Vec<String> {
            let path = OutputKind::Event.path(&self.bench.director.folders.tasks(), self.tasks.get());
            let text = std::fs::read_to_string(path).unwrap();
            let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let started = events.filter(|event| event["state"] == "started");
            let name = |task: &Value| task.as_str().unwrap().split('/').next().unwrap().to_owned();
            started.map(|event| format!("{}: {}", event["stage"].as_str().unwrap(), name(&event["task"]))).collect()
        }

        fn folder(&self) -> std::path::PathBuf {
            self.bench.director.folders.kept().join("releases")
        }

        pub(in crate::tasks) fn blobs(&self) -> usize {
            std::fs::read_dir(self.folder()).map_or(0, Iterator::count)
        }
    }

    /// The recorded release in another version.
    fn in_version(version: &str) -> Vec<u8> {
        let mut from = tar::Archive::new(flate2::read::GzDecoder::new(SHOP));
        let mut to = tar::Builder::new(Vec::new());
        for entry in from.entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, mut header) = (entry.path().unwrap().into_owned(), entry.header().clone());
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if path == Path::new("release.MF") {
                let text = String::from_utf8(content).unwrap();
                content = text.replace("version: \"1\"", &format!("version: {version}")).into_bytes();
                header.set_size(content.len() as u64);
            }
            to.append_data(&mut header, path, content.as_slice()).unwrap();
        }
        to.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_dev_release_is_rebased_onto_what_is_there() {
        let site = Site::new().await;
        let rebase = How { fix: false, rebase: true };
        let dev = in_version("1+dev.7");
        assert_eq!(site.upload_as(&dev, rebase).await.unwrap(), "Created release 'shop/1+dev.1'");
        assert_eq!(site.upload_as(&dev, rebase).await.unwrap(), "Created release 'shop/1+dev.2'");
        let refused = site.upload_as(SHOP, rebase).await.unwrap_err();
        assert!(refused.to_string().starts_with("Failed to Rebase - Invalid Version: '1'"), "{refused}");
        let (_, listed) = site.bench.ask(Method::GET, "/releases", "").await;
        let versions: Vec<&Value> =
            listed[0]["release_versions"].as_array().unwrap().iter().map(|it| &it["version"]).collect();
        assert_eq!(versions, ["1+dev.1", "1+dev.2"]);
    }

    /// The recorded release without its packages' archives, as clients send what the director has.
    fn without_packages() -> Vec<u8> {
        let mut from = tar::Archive::new(flate2::read::GzDecoder::new(SHOP));
        let mut to = tar::Builder::new(Vec::new());
        for entry in from.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            if !path.starts_with("packages") {
                let mut header = entry.header().clone();
                to.append_data(&mut header, path, &mut entry).unwrap();
            }
        }
        to.into_inner().unwrap()
    }

    #[tokio::test]
    async fn a_release_is_taken_shown_sent_again_without_its_packages_and_deleted_as_recorded() {
        let site = Site::new().await;
        assert_eq!(site.upload(SHOP, false).await.unwrap(), "Created release 'shop/1'");
        let one = |name: &str| format!("{name}: {name}");
        let steps = ["Extracting release", "Verifying manifest", "Resolving package dependencies"].map(one);
        let new =
            ["packages: app", "packages: base", "jobs: smoke", "jobs: web"].map(|part| format!("Creating new {part}"));
        let created = ["Release has been created: shop".to_owned()];
        assert_eq!(site.seen(), [&steps[..], &new, &created].concat());
        assert_eq!(site.blobs(), 4);
        let listed = json!([{"name": "shop", "release_versions": [{"version": "1", "commit_hash": "non-git",
            "uncommitted_changes": false, "currently_deployed": false, "job_names": ["smoke", "web"]}]}]);
        assert_eq!(site.bench.ask(Method::GET, "/releases", "").await, (StatusCode::OK, listed.clone()));
        let (_, shop) = site.bench.ask(Method::GET, "/releases/shop?version=1", "").await;
        let web = &shop["jobs"][1];
        assert_eq!((&web["name"], &web["consumes"][0]["optional"]), (&json!("web"), &json!(true)));
        assert_eq!(shop["packages"][1]["fingerprint"].as_str().unwrap().len(), 64);

        let manifest = "name: shop\nversion: 1\npackages: [{name: app, version: f, fingerprint: FOUND, sha1: 0}, \
            {name: x, version: f, fingerprint: other, sha1: 0}]";
        let found = shop["packages"][0]["fingerprint"].clone();
        let manifest = manifest.replace("FOUND", found.as_str().unwrap());
        let (status, matches) = site.bench.ask(Method::POST, "/packages/matches", manifest).await;
        assert_eq!((status, matches), (StatusCode::OK, json!([found])));

        site.upload(&without_packages(), false).await.unwrap();
        let existing = ["Processing 2 existing packages", "Processing 2 existing jobs"].map(one);
        assert_eq!(site.seen(), [&steps[..], &existing, &created].concat());
        assert_eq!(site.bench.ask(Method::GET, "/releases", "").await.1, listed);
        let before = site.bench.ask(Method::GET, "/releases/shop?version=1", "").await.1;
        site.upload(SHOP, true).await.unwrap();
        let after = site.bench.ask(Method::GET, "/releases/shop?version=1", "").await.1;
        assert_ne!(before["jobs"][0]["blobstore_id"], after["jobs"][0]["blobstore_id"], "kept anew");
        assert_eq!(site.blobs(), 4, "and nothing of the old");

        let missing = site.delete("shop", Some("2")).await.unwrap_err();
        assert_eq!((missing.code(), missing.to_string().as_str()), (30006, "Release version 'shop/2' doesn't exist"));
        assert_eq!(site.delete("shop", Some("1")).await.unwrap(), "/release/shop");
        assert_eq!(site.seen()[..2], ["Deleting packages: app", "Deleting packages: base"]);
        assert_eq!((site.blobs(), site.bench.ask(Method::GET, "/releases", "").await.1), (0, json!([])));
        assert_eq!(site.delete("shop", None).await.unwrap_err().code(), 30005);
    }

    #[tokio::test]
    async fn a_release_that_cannot_be_taken_leaves_nothing() {
        let site = Site::new().await;
        let refused = site.upload(&without_packages(), false).await.unwrap_err();
        assert!(refused.to_string().contains("upload the whole release"), "{refused}");
        assert_eq!(site.upload(b"not a release", false).await.unwrap_err().code(), 30002);
        assert_eq!(site.bench.ask(Method::GET, "/releases", "").await.1, json!([]));
        // A file that a killed upload left goes with the next.
        std::fs::write(site.folder().join("left"), "x").unwrap();
        site.upload(SHOP, false).await.unwrap();
        assert_eq!(site.blobs(), 4);
    }

    fn tgz(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, content) in files {
            append(&mut builder, name, tar::EntryType::Regular, content);
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    /// Whatever it is called.
    fn append(builder: &mut tar::Builder<impl std::io::Write>, name: &str, kind: tar::EntryType, content: &[u8]) {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    fn with(name: &str, kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        append(&mut builder, name, kind, content);
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn sha256(bytes: &[u8]) -> String {
        use sha2::Digest;
        sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A release with one job and one package, whatever those are.
    fn of(job: &[u8], package: &[u8], dependencies: &str) -> Vec<u8> {
        let manifest = format!(
            "name: bad\nversion: '1'\njobs: [{{name: j, version: f, fingerprint: f, sha1: 'sha256:{}'}}]\npackages: [{{name: p, \
             version: g, fingerprint: g, sha1: 'sha256:{}', dependencies: [{dependencies}]}}]\n",
            sha256(job),
            sha256(package)
        );
        tgz(&[
            ("release.MF", manifest.into_bytes()),
            ("jobs/j.tgz", job.to_vec()),
            ("packages/p.tgz", package.to_vec()),
        ])
    }

    /// A package in which `a` leads elsewhere, and has a file behind it.
    fn linked(kind: tar::EntryType, target: &str) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_path("a").unwrap();
        header.set_link_name(target).unwrap();
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_cksum();
        builder.append(&header, std::io::empty()).unwrap();
        append(&mut builder, "a/passwd", tar::EntryType::Regular, b"root::0:0");
        builder.into_inner().unwrap()
    }

    /// The same release with other words in its manifest.
    fn changed(tarball: &[u8], from: &str, to: &str) -> Vec<u8> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(tarball));
        let mut files = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            if name == "release.MF" {
                content = String::from_utf8(content).unwrap().replace(from, to).into_bytes();
            }
            files.push((name, content));
        }
        tgz(&files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect::<Vec<_>>())
    }

    /// Each is refused with a reason, and nothing of it stays: neither in the temporary folder, nor as a blob, nor on record.
    #[tokio::test]
    async fn hostile_releases_are_refused_with_a_reason_and_leave_nothing() {
        use tar::EntryType;
        let job = |spec: &str| tgz(&[("./job.MF", spec.as_bytes().to_vec()), ("./monit", Vec::new())]);
        let (good_job, good_package) = (job("name: j\n"), tgz(&[("./packaging", b"true".to_vec())]));
        let spec = |text: &str| of(&job(&format!("name: j\n{text}\n")), &good_package, "");
        let package = |package: &[u8]| of(&good_job, package, "");
        let inside = |name: &str, kind: EntryType| package(&with(name, kind, b""));
        let bomb = tgz(&[("./job.MF", b"name: j".to_vec()), ("./monit", vec![0; 20 << 20])]);
        let twice = tgz(&[("./job.MF", b"name: j".to_vec()), ("./monit", Vec::new()), ("monit", b"x".to_vec())]);
        let mut many = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for number in 0..20_001 {
            append(&mut many, &format!("{number}"), EntryType::Regular, b"");
        }
        let many = many.into_inner().unwrap().finish().unwrap();
        let two_manifests = tgz(&[("release.MF", b"name: a\nversion: 1".to_vec()), ("./release.MF", Vec::new())]);
        let wrong_digest = {
            let mut files =
                vec![("release.MF", b"name: bad\nversion: 1\njobs: [{name: j, version: f, sha1: aa}]".to_vec())];
            files.push(("jobs/j.tgz", good_job.clone()));
            tgz(&files)
        };
        // A header that promises 65 GiB.
        let endless = {
            let mut header = tar::Header::new_gnu();
            header.set_path("zeros").unwrap();
            header.set_size(65 << 30);
            header.set_cksum();
            header.as_bytes().to_vec()
        };
        let no_monit = of(&tgz(&[("./job.MF", b"name: j".to_vec())]), &good_package, "");
        const AGAIN: &str = "create the release again";
        let cases: Vec<(&str, Vec<u8>, &str, &str)> = vec![
            (
                "traversal",
                with("../release.MF", EntryType::Regular, b""),
                "'../release.MF', which leads out of it",
                AGAIN,
            ),
            ("a device", with("release.MF", EntryType::Char, b""), "'release.MF', which is a device or a pipe", AGAIN),
            ("a pipe", with("jobs/x.tgz", EntryType::Fifo, b""), "which is a device or a pipe", AGAIN),
            ("two manifests", two_manifests, "'./release.MF', which is there twice", AGAIN),
            (
                "a link in place of the manifest",
                with("release.MF", EntryType::Symlink, b""),
                "Release manifest not found",
                "create-release --tarball",
            ),
            ("very many entries", many, "more than 20000 entries", AGAIN),
            (
                "traversal in a package",
                inside("../../etc/passwd", EntryType::Regular),
                "package 'p' has '../../etc/passwd', which leads out",
                AGAIN,
            ),
            (
                "a device in a package",
                inside("dev/sda", EntryType::Block),
                "package 'p' has 'dev/sda', which is a device",
                AGAIN,
            ),
            (
                "a file through a link in a package",
                package(&linked(EntryType::Symlink, "/etc")),
                "package 'p' has 'a/passwd', which would be written through a link",
                AGAIN,
            ),
            (
                "a second name for a file of the machine",
                package(&linked(EntryType::Link, "../../../etc/shadow")),
                "package 'p' has 'a', which is a link that leads out of it",
                AGAIN,
            ),
            ("a job that is no archive", of(b"nothing", &good_package, ""), "job 'j' is not a usable archive", AGAIN),
            ("a package that is no archive", package(b"nothing"), "package 'p' is not a usable archive", AGAIN),
            ("a bomb", of(&bomb, &good_package, ""), "more than the 16 MiB that are left for it", AGAIN),
            ("a bomb of a package", package(&endless), "it takes more than the 65536 MiB that are left for it", AGAIN),
            ("a job with a file twice", of(&twice, &good_package, ""), "'monit', which is there twice", AGAIN),
            (
                "wrong digest of a job",
                wrong_digest,
                "job 'j' is not the one that release.MF describes",
                "copy or create the release again",
            ),
            (
                "wrong digest of a package",
                changed(&of(&good_job, &good_package, ""), &sha256(&good_package), &sha256(b"another")),
                "package 'p' is not the one that release.MF describes",
                "copy or create the release again",
            ),
            ("no monit", no_monit, "Job 'j' is missing monit file", "add one to the job"),
            ("templates that are a list", spec("templates: [a]"), "templates", "correct it"),
            ("packages that are text", spec("packages: p"), "packages", "correct it"),
            ("properties that are a list", spec("properties: [a]"), "properties", "correct it"),
            ("a template that is a map", spec("templates: {a: {b: c}}"), "templates", "correct it"),
            ("a job that is a list", of(&job("[]"), &good_package, ""), "job 'j'", "correct it"),
            ("a release that is a list", tgz(&[("release.MF", b"[]".to_vec())]), "release.MF", "correct it"),
            ("a package that is missing", spec("packages: [q]"), "needs the package 'q'", "add it, or remove it"),
            (
                "a package that needs itself",
                of(&good_job, &good_package, "p"),
                "packages need each other: p => p",
                "remove one of these dependencies",
            ),
            (
                "a package that needs nobody",
                of(&good_job, &good_package, "q"),
                "package 'p' needs 'q', which the release does not have",
                "add it, or remove it from 'dependencies'",
            ),
        ];
        let site = Site::new().await;
        for (what, tarball, expected, remedy) in cases {
            // It looks itself that nothing stays in the temporary folder.
            let error = windlass_contract::explain(&site.upload(&tarball, false).await.expect_err(what));
            assert!(error.contains(expected) && error.contains(remedy), "{what}: {error}");
            assert_eq!(site.blobs(), 0, "{what}");
        }
        assert!(site.bench.director.store.releases().await.unwrap().is_empty());
        // What is refused last has archives already that are fine.
        site.upload(&of(&good_job, &good_package, ""), false).await.unwrap();
        assert_eq!(site.blobs(), 2);
    }

    /// A job whose templates take this long to check, as files and as it is read.
    fn slow_to_check(at_least: Duration) -> (Vec<u8>, Duration) {
        // No two are the same, because one that is known costs nothing.
        let template = |number: u32| format!("<%= p('a') + {number}.to_s %>\n").repeat(1000);
        for doubled in 0..10 {
            let templates: BTreeMap<String, String> =
                (0..1 << doubled).map(|number| (format!("t{number}.erb"), template(number))).collect();
            let listed: Vec<String> = templates.keys().map(|name| format!("{name}: {name}")).collect();
            let spec = format!("name: j\ntemplates: {{{}}}\n", listed.join(", "));
            let monit = BTreeMap::from([("monit".to_owned(), String::new())]);
            let parsed = windlass_release::JobSpec::parse(&spec, "j").unwrap();
            let job = windlass_release::Job { spec: parsed, templates, monit };
            let begun = Instant::now();
            Backends::new(None).check(&job).unwrap();
            let took = begun.elapsed();
            if took >= at_least {
                let path = |name: &String| format!("./templates/{name}");
                let files: Vec<_> =
                    job.templates.iter().map(|(name, text)| (path(name), text.clone().into_bytes())).collect();
                let mut all = vec![("./job.MF", spec.into_bytes()), ("./monit", Vec::new())];
                all.extend(files.iter().map(|(path, text)| (path.as_str(), text.clone())));
                return (tgz(&all), took);
            }
        }
        panic!("nothing is slow to check");
    }

    /// There is one thread for requests, which somebody else's templates must not keep.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_while_the_templates_of_a_release_are_checked() {
        let (job, took) = slow_to_check(Duration::from_secs(1));
        let bench = Arc::new(TestDirector::new().await);
        let path = bench.director.folders.temporary().join("upload");
        std::fs::write(&path, of(&job, &tgz(&[("./packaging", b"true".to_vec())]), "")).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let asking = tokio::spawn({
            let (bench, is_over) = (bench.clone(), is_over.clone());
            async move {
                let (mut longest, mut served) = (Duration::ZERO, Instant::now());
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(bench.send(None, Method::GET, "/info", "").await.0, StatusCode::OK);
                    longest = longest.max(served.elapsed());
                    served = Instant::now();
                    tokio::task::yield_now().await;
                }
                longest
            }
        });
        let uploading = tokio::spawn(async move {
            let log = TaskLog::open(&bench.director, 1).unwrap();
            run(&bench.director, &log, &path, How::default()).await
        });
        assert_eq!(uploading.await.unwrap().unwrap(), "Created release 'bad/1'");
        is_over.store(true, Ordering::SeqCst);
        let longest = asking.await.unwrap();
        assert!(longest < took / 2, "somebody waited {longest:?}; the templates take {took:?}");
    }

    #[tokio::test]
    async fn what_is_too_much_is_refused_and_what_nobody_names_is_collected() {
        let mut site = Site::new().await;
        let limited = |limit| {
            let settings = crate::settings::Settings { blobs_limit: Some(limit), ..Default::default() };
            move |folders: &crate::state_dir::StateDir| crate::blobs::open(&settings, folders, "uuid").unwrap()
        };
        let director = std::sync::Arc::get_mut(&mut site.bench.director).unwrap();
        director.blobs = std::sync::Arc::new(limited(1)(&director.folders));
        let refused = site.upload(SHOP, false).await.unwrap_err();
        assert!(refused.to_string().contains("raise 'blobs_limit' in director.yml"), "{refused}");
        assert_eq!(site.blobs(), 0);
        let director = std::sync::Arc::get_mut(&mut site.bench.director).unwrap();
        director.blobs = std::sync::Arc::new(limited(1 << 30)(&director.folders));
        site.upload(SHOP, false).await.unwrap();
        let made = site.bench.director.folders.kept().join("blobs");
        std::fs::create_dir_all(&made).unwrap();
        for folder in [site.folder(), made.clone()] {
            std::fs::write(folder.join("left"), "x").unwrap();
        }
        let (_, plan) = site.bench.ask(Method::GET, "/cleanup/dryrun?remove_all=true", "").await;
        assert_eq!(plan["unreferenced_blobs"], json!(["releases/left", "blobs/left"]));
        assert_eq!(crate::blobs::remove_unreferenced(&site.bench.director).await.unwrap(), 2);
        assert_eq!((site.blobs(), std::fs::read_dir(made).unwrap().count()), (4, 0));
    }

    #[tokio::test]
    async fn a_download_ends_with_its_task() {
        let site = Site::new().await;
        // It takes connections and says nothing.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/release.tgz", listener.local_addr().unwrap());
        let log = site.log();
        let download = run_remote(&site.bench.director, &log, (&url, None), How::default());
        let (ended, ()) = tokio::join!(download, async { log.cancel() });
        let error = ended.unwrap_err();
        assert!(error.is_cancellation(), "{error}");
        assert_eq!(std::fs::read_dir(site.bench.director.folders.temporary()).unwrap().count(), 0);
    }
}
