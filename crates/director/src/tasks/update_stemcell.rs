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
use windlass_planning::records::StemcellRecord;
use windlass_stemcell::digest::verify as verify_digest;

use super::{EventStage, TaskError, TaskLog};
use crate::Director;

/// How a stemcell is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct StemcellUpload {
    /// It is created again in the clouds even if it is there.
    pub(super) fix: bool,
    /// The user may change what deployments of all teams use.
    pub(super) replaces: bool,
}

/// Takes a tarball that was uploaded.
pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    tarball: &Path,
    how: StemcellUpload,
) -> Result<String, TaskError> {
    let stage = log.stage("Update stemcell", &[], 5);
    upload(director, log, &stage, tarball, how).await
}

/// Fetches a tarball from where the operator says.
pub(super) async fn run_remote(
    director: &Director,
    log: &TaskLog,
    (location, digest): (&str, Option<&str>),
    how: StemcellUpload,
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
        upload(director, log, &stage, &tarball, how).await
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
    how: StemcellUpload,
) -> Result<String, TaskError> {
    let unpacked = director.folders.temporary().join(format!("stemcell-{}", log.task()));
    let result = unpack_and_create(director, log, stage, (tarball, &unpacked), how).await;
    remove(log, windlass_durable::file::remove_tree, &unpacked);
    result
}

async fn unpack_and_create(
    director: &Director,
    log: &TaskLog,
    stage: &EventStage,
    (tarball, unpacked): (&Path, &Path),
    how: StemcellUpload,
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
        if !how.replaces {
            if exists.is_none() {
                must_leave_some(&director.store.stemcells().await?)?;
            }
            must_stand_for_no_other(&director.store.stemcells().await?, &manifest, cpi, how.fix)?;
        }
        if let Some(cid) = exists.filter(|_| !how.fix) {
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

/// How many stemcells there may be until only admins bring more: everybody's lists and plans read all of them.
const MOST: usize = 2_000;

fn must_leave_some(known: &[StemcellRecord]) -> Result<(), TaskError> {
    if known.len() < MOST {
        return Ok(());
    }
    let reason = format!(
        "there are {} stemcells here; an admin can upload this one, or delete some with 'clean-up'",
        known.len()
    );
    Err(TaskError::refused(600000, reason))
}

/// Deployments name a stemcell by its name or its operating system, and a version. A user who may upload, and no more, brings nothing that a
/// cloud would take for what it has: VMs of everybody would run it. Nor anything with the operating system of what another cloud has:
/// packages that are compiled on the one run on the other.
fn must_stand_for_no_other(
    known: &[StemcellRecord],
    new: &StemcellManifest,
    cpi: &CpiName,
    fix: bool,
) -> Result<(), TaskError> {
    let is_meant_too = |other: &&StemcellRecord| match other.name == new.name {
        true => fix && other.cpi == *cpi,
        false => other.operating_system == new.os(),
    };
    let mut here = known.iter().filter(|other| other.version == new.version);
    let Some(other) = here.find(is_meant_too) else { return Ok(()) };
    let reason = format!(
        "the stemcell '{}/{}' would stand for '{}/{}', which is here and which others may use; only an admin may upload it",
        new.name, new.version, other.name, other.version
    );
    Err(TaskError::refused(600000, reason))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who may upload stemcells would become root on the VMs of all teams with their next deploy.
    #[test]
    fn who_may_only_upload_brings_no_stemcell_that_stands_for_another() {
        let record = |name: &str, version: &str, cpi: &str| StemcellRecord {
            id: 1,
            name: name.into(),
            version: version.into(),
            operating_system: "jammy".into(),
            cpi: cpi.into(),
            cid: StemcellCid::new("s").unwrap(),
            api_version: None,
            deployments: Vec::new(),
        };
        let known = [record("jammy-one", "1.1", ""), record("jammy-one", "1.2", "other")];
        let told = |name: &str, version: &str, fix: bool| {
            let manifest = serde_json::json!({"name": name, "version": version, "operating_system": "jammy"});
            let manifest = serde_json::from_value(manifest).unwrap();
            must_stand_for_no_other(&known, &manifest, &CpiName::Default, fix).map_err(|error| error.to_string())
        };
        for (name, fix) in [("jammy-one", true), ("evil", false), ("evil", true)] {
            let said = told(name, "1.1", fix).unwrap_err();
            assert!(said.contains("only an admin may upload it"), "{said}");
        }
        told("jammy-one", "1.1", false).unwrap();
        let said = told("evil", "1.2", false).unwrap_err();
        assert!(
            said.contains("only an admin may upload it"),
            "what is compiled on it would run in the other cloud: {said}"
        );
        let (few, many) = (vec![record("a", "1", ""); MOST - 1], vec![record("a", "1", ""); MOST]);
        must_leave_some(&few).unwrap();
        assert!(must_leave_some(&many).unwrap_err().to_string().contains("an admin can upload this one"));
        // For what this cloud, or none, has yet.
        told("jammy-one", "1.2", true).unwrap();
        told("evil", "1.3", true).unwrap();
        told("jammy-one", "1.3", false).unwrap();
    }
}
