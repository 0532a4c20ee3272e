//! Removes a release, or one of its versions, that no deployment uses.

use super::{TaskError, TaskLog, lock, update_release};
use crate::Director;
use crate::store::ReleaseRecord;

pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    name: &str,
    version: Option<&str>,
) -> Result<String, TaskError> {
    lock(director, log, "release").await?;
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
    for release in releases {
        let others = || all.iter().filter(|other| other.name == name && other.id != release.id);
        let is_last = |others: &[i64], id: i64| !others.contains(&id);
        let packages: Vec<i64> = others().flat_map(|other| other.packages.iter().map(|package| package.id)).collect();
        let gone: Vec<_> = release.packages.iter().filter(|package| is_last(&packages, package.id)).collect();
        tell(log, "Deleting packages", gone.iter().map(|package| (&package.name, &package.version))).await?;
        let jobs: Vec<i64> = others().flat_map(|other| other.jobs.iter().map(|job| job.id)).collect();
        let gone: Vec<_> = release.jobs.iter().filter(|job| is_last(&jobs, job.id)).collect();
        tell(log, "Deleting jobs", gone.iter().map(|job| (&job.name, &job.version))).await?;
        director.store.forget_release(release.id).await?;
    }
    update_release::remove_unknown_blobs(director).await?;
    Ok(format!("/release/{name}"))
}

async fn tell<'a>(
    log: &TaskLog,
    stage: &str,
    parts: impl ExactSizeIterator<Item = (&'a String, &'a String)>,
) -> Result<(), TaskError> {
    if parts.len() == 0 {
        return Ok(());
    }
    let stage = log.stage(stage, &[], parts.len());
    for (name, version) in parts {
        stage.part(&format!("{name}/{version}")).run(async { Ok::<_, TaskError>(()) }).await?;
    }
    Ok(())
}
