//! Takes a stemcell into every cloud that wants its format.

use std::path::{Path, PathBuf};

use windlass_contract::StemcellCid;
use windlass_contract::stemcell::StemcellManifest;
use windlass_download::Download;
use windlass_manifest::names;
use windlass_operations::clouds::OnBehalfOf;
use windlass_operations::ledger::{Change, Fact, NewStemcell};
use windlass_operations::steps::Progress;
use windlass_planning::names::CpiName;
use windlass_stemcell::digest::verify as verify_digest;

use super::{EventStage, TaskError, TaskLog};
use crate::Director;

/// Takes a tarball that was uploaded.
pub(super) async fn run(director: &Director, log: &TaskLog, tarball: &Path, fix: bool) -> Result<String, TaskError> {
    let stage = log.stage("Update stemcell", &[], 5);
    upload(director, log, &stage, tarball, fix).await
}

/// Fetches a tarball from where the operator says.
pub(super) async fn run_remote(
    director: &Director,
    log: &TaskLog,
    (location, digest): (&str, Option<&str>),
    fix: bool,
) -> Result<String, TaskError> {
    let stage = log.stage("Update stemcell", &[], if digest.is_some() { 7 } else { 6 });
    let tarball = director.folders.temporary().join(format!("download-{}", log.task()));
    let result = async {
        let download = Download::of("stemcell");
        let fetching = log.unless_cancelled(download.fetch(location, &tarball));
        stage.part("Downloading remote stemcell").run(fetching).await?;
        if let Some(digest) = digest {
            let (path, digest) = (tarball.clone(), digest.to_owned());
            let verifying = tokio::task::spawn_blocking(move || verify_digest(&path, &digest));
            let verifying =
                async { verifying.await.map_err(|error| TaskError::Stemcell(error.into()))?.map_err(TaskError::from) };
            stage.part("Verifying remote stemcell").run(verifying).await?;
        }
        upload(director, log, &stage, &tarball, fix).await
    }
    .await;
    if tarball.exists() {
        remove(log, windlass_durable::file::remove_file, &tarball);
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

async fn upload(
    director: &Director,
    log: &TaskLog,
    stage: &EventStage,
    tarball: &Path,
    fix: bool,
) -> Result<String, TaskError> {
    let unpacked = director.folders.temporary().join(format!("stemcell-{}", log.task()));
    let result = unpack_and_create(director, log, stage, (tarball, &unpacked), fix).await;
    remove(log, windlass_durable::file::remove_tree, &unpacked);
    result
}

async fn unpack_and_create(
    director: &Director,
    log: &TaskLog,
    stage: &EventStage,
    (tarball, unpacked): (&Path, &Path),
    fix: bool,
) -> Result<String, TaskError> {
    let extracting = stage.part("Extracting stemcell archive");
    let manifest = extracting.run(unpack(tarball.to_owned(), unpacked.to_owned())).await?;
    stage.part("Verifying stemcell manifest").run(async { verify(&manifest) }).await?;
    let (name, version) = (&manifest.name, &manifest.version);
    let mut accepted = 0;
    for cpi in &director.clouds.names() {
        let suffix = match cpi {
            CpiName::Default => String::new(),
            CpiName::Named(name) => format!(" (cpi: {name})"),
        };
        let checking = stage.part(&format!("Checking if this stemcell already exists{suffix}"));
        let exists = checking.run(exists(director, cpi, &manifest)).await?;
        if !fits(director, cpi, &manifest).await? {
            continue;
        }
        accepted += 1;
        if let Some(cid) = exists.filter(|_| !fix) {
            let nothing = || async { Ok::<_, TaskError>(()) };
            let skipped = format!("{suffix} (already exists, skipped)");
            stage.part(&format!("Uploading stemcell {name}/{version} to the cloud{skipped}")).run(nothing()).await?;
            stage.part(&format!("Save stemcell {name}/{version} ({cid}){skipped}")).run(nothing()).await?;
            continue;
        }
        let part = stage.part(&format!("Uploading stemcell {name}/{version} to the cloud{suffix}"));
        let cpi_log = |line: &str| part.cpi_log(line);
        let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
        let change =
            Change::CreateStemcell { stemcell: NewStemcell::of(&manifest, cpi), image: unpacked.join("image") };
        let fact = part.run(director.clouds.perform(who, cpi, manifest.api_version, change)).await?;
        if let Fact::StemcellCreated { cid, .. } = fact {
            let saving = stage.part(&format!("Save stemcell {name}/{version} ({cid}){suffix}"));
            saving.run(async { Ok::<_, TaskError>(()) }).await?;
        }
    }
    if accepted == 0 {
        let formats = manifest.stemcell_formats.join(", ");
        return Err(TaskError::refused(50008, format!("no CPI takes stemcells of format {formats}")));
    }
    Ok(format!("/stemcells/{name}/{version}"))
}

async fn unpack(tarball: PathBuf, into: PathBuf) -> Result<StemcellManifest, TaskError> {
    let unpacked = tokio::task::spawn_blocking(move || {
        windlass_durable::file::create_private_dir(&into)?;
        Ok(windlass_stemcell::unpack(&tarball, &into)?)
    });
    unpacked.await.map_err(|error| TaskError::Stemcell(error.into()))?.map_err(TaskError::Stemcell)
}

async fn exists(
    director: &Director,
    cpi: &CpiName,
    manifest: &StemcellManifest,
) -> Result<Option<StemcellCid>, TaskError> {
    let stemcells = director.store.stemcells().await?;
    let mut same = stemcells.into_iter().filter(|stemcell| stemcell.cpi == *cpi);
    let found = same.find(|stemcell| stemcell.name == manifest.name && stemcell.version == manifest.version);
    Ok(found.map(|stemcell| stemcell.cid))
}

/// A side that names no formats takes or is any.
async fn fits(director: &Director, cpi: &CpiName, manifest: &StemcellManifest) -> Result<bool, TaskError> {
    let driven = director.clouds.cpi(cpi)?;
    let takes = &driven
        .info()
        .await
        .map_err(|source| TaskError::Cpi { cpi: cpi.clone(), source: Box::new(source) })?
        .stemcell_formats;
    let has = &manifest.stemcell_formats;
    Ok(has.is_empty() || takes.is_empty() || has.iter().any(|format| takes.contains(format)))
}

fn verify(manifest: &StemcellManifest) -> Result<(), TaskError> {
    let plain = |text: &str| !text.is_empty() && !text.contains(['/', '\n', ' ']);
    for (what, text) in [("name", &manifest.name), ("version", &manifest.version)] {
        names::check(text).map_err(|error| TaskError::Input(format!("the stemcell's {what}: {error}")))?;
        if !plain(text) {
            return Err(TaskError::Input(format!("the stemcell's {what} '{text}' is empty or has blanks or slashes")));
        }
    }
    Ok(())
}
