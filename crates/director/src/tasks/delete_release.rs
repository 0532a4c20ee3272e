//! Removes a release, or one of its versions, that no deployment uses.

use std::collections::BTreeMap;

use windlass_durable::kill_point;
use windlass_planning::records::ReleaseRecord;

use super::{TaskError, TaskLog, lock, update_release};
use crate::Director;
use crate::store::LockName;

pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    name: &str,
    version: Option<&str>,
) -> Result<String, TaskError> {
    lock(director, log, &LockName::of_releases()).await?;
    delete(director, log, name, version).await?;
    update_release::remove_unknown_blobs(director).await?;
    Ok(format!("/release/{name}"))
}

/// Forgets it. Files that no record names are collected later. The caller has the lock.
pub(super) async fn delete(
    director: &Director,
    log: &TaskLog,
    name: &str,
    version: Option<&str>,
) -> Result<(), TaskError> {
    let all = director.store.releases().await?;
    let is_meant =
        |release: &&ReleaseRecord| release.name == name && version.is_none_or(|wanted| wanted == release.version);
    let releases: Vec<&ReleaseRecord> = all.iter().filter(is_meant).collect();
    if releases.is_empty() {
        return Err(match version {
            Some(version) if all.iter().any(|release| release.name == name) => {
                TaskError::refused(30006, format!("Release version '{name}/{version}' doesn't exist"))
            }
            _ => TaskError::refused(30005, format!("Release '{name}' doesn't exist")),
        });
    }
    let mut users: Vec<&str> =
        releases.iter().flat_map(|release| release.deployments.iter().map(String::as_str)).collect();
    users.sort_unstable();
    users.dedup();
    if !users.is_empty() {
        let (code, what) = match version {
            Some(version) => (30008, format!("ReleaseVersion '{name}/{version}'")),
            None => (30007, format!("Release '{name}'")),
        };
        return Err(TaskError::refused(code, format!("{what} is still in use by: {}", users.join(", "))));
    }
    let stay = || all.iter().filter(|release| release.name == name && !is_meant(release));
    let packages: BTreeMap<i64, _> =
        releases.iter().flat_map(|release| release.packages.iter().map(|package| (package.id, package))).collect();
    let is_kept = |id: &i64| stay().any(|release| release.packages.iter().any(|package| package.id == *id));
    let gone = packages.iter().filter(|(id, _)| !is_kept(id)).map(|(_, package)| (&package.name, &package.version));
    tell(log, "Deleting packages", gone.collect()).await?;
    let jobs: BTreeMap<i64, _> =
        releases.iter().flat_map(|release| release.jobs.iter().map(|job| (job.id, job))).collect();
    let is_kept = |id: &i64| stay().any(|release| release.jobs.iter().any(|job| job.id == *id));
    let gone = jobs.iter().filter(|(id, _)| !is_kept(id)).map(|(_, job)| (&job.name, &job.version));
    tell(log, "Deleting jobs", gone.collect()).await?;
    // Asked for a version, it tells of that version alone, also of the last one.
    if version.is_none() {
        let versions = releases.iter().map(|release| (&release.name, &release.version));
        tell(log, "Deleting release versions", versions.collect()).await?;
    }
    for release in &releases {
        kill_point("before a release is forgotten");
        director.store.forget_release(release.id).await?;
    }
    Ok(())
}

async fn tell(log: &TaskLog, stage: &str, parts: Vec<(&String, &String)>) -> Result<(), TaskError> {
    if parts.is_empty() {
        return Ok(());
    }
    let stage = log.stage(stage, &[], parts.len());
    for (name, version) in parts {
        stage.part(&format!("{name}/{version}")).run(async { Ok::<_, TaskError>(()) }).await?;
    }
    Ok(())
}
