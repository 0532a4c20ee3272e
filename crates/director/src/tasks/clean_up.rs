//! Deletes what nobody uses: orphaned VMs, releases, stemcells, exported releases, and with `--all` compiled packages and orphaned
//! disks.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use windlass_planning::desired::{Configs, Findings, RuntimeConfig, compare_versions};
use windlass_planning::records::{CompilationKey, ReleaseRecord, StemcellRecord};
use windlass_release::{StemcellLine, Version};

use super::update_deployment::one_or_several;
use super::{
    TaskError, TaskLog, delete_orphan_disks, delete_orphaned_vms, delete_release, delete_stemcell, lock, update_release,
};
use crate::store::{LockName, OrphanDisk, OrphanedVm, StoreError};
use crate::{Director, blobs};

/// How many things are deleted at once.
const AT_ONCE: usize = 32;
/// How many unused versions of a stemcell or release are kept, the newest ones.
const KEPT_VERSIONS: usize = 2;

/// How much to delete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CleanUp {
    /// Everything that nobody uses, rather than what is old.
    #[serde(default)]
    pub remove_all: bool,
    /// But no disks.
    #[serde(default)]
    pub keep_orphaned_disks: bool,
}

/// What will be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rubbish {
    /// Names, each with versions.
    pub(crate) releases: Vec<(String, Vec<String>)>,
    /// Compiled for stemcells of which no other of the line stays.
    pub(crate) compiled: Vec<CompilationKey>,
    /// Blobs that clients had the time to fetch.
    pub(crate) exported: Vec<String>,
    pub(crate) stemcells: Vec<StemcellRecord>,
    pub(crate) disks: Vec<OrphanDisk>,
    pub(crate) vms: Vec<OrphanedVm>,
}

/// Finds what nobody uses; deletes nothing.
pub(crate) async fn find(director: &Director, how: CleanUp) -> Result<Rubbish, StoreError> {
    let disks =
        if how.remove_all && !how.keep_orphaned_disks { director.store.orphan_disks().await? } else { Vec::new() };
    let kept = if how.remove_all { 0 } else { KEPT_VERSIONS };
    let all = director.store.stemcells().await?;
    let stemcells = unused(all.clone(), kept);
    let compiled = match how.remove_all {
        true => without_stemcell(director.store.compiled_keys().await?, &all, &stemcells),
        false => Vec::new(),
    };
    let runtime = director.store.current_configs("runtime").await?;
    // One after the other: those of all teams together may be large.
    let added = runtime.iter().flat_map(|config| Configs::read([config], &mut Findings::new()).runtime.releases);
    let runtime = RuntimeConfig { releases: added.collect(), ..RuntimeConfig::default() };
    let releases = unused_releases(director.store.releases().await?, &runtime, kept);
    let (vms, exported) = (director.store.orphaned_vms().await?, director.store.exported_releases().await?);
    Ok(Rubbish { releases, stemcells, compiled, disks, vms, exported })
}

/// Versions of releases that neither a deployment nor a runtime config uses, without the newest of each name.
fn unused_releases(releases: Vec<ReleaseRecord>, runtime: &RuntimeConfig, kept: usize) -> Vec<(String, Vec<String>)> {
    let is_added = |release: &ReleaseRecord| {
        runtime
            .releases
            .iter()
            .any(|(_, added)| (&added.name.value, &added.version.value) == (&release.name, &release.version))
    };
    let mut by_name: BTreeMap<String, Vec<ReleaseRecord>> = BTreeMap::new();
    for release in releases.into_iter().filter(|release| release.deployments.is_empty() && !is_added(release)) {
        by_name.entry(release.name.clone()).or_default().push(release);
    }
    let old = |(name, mut versions): (String, Vec<ReleaseRecord>)| {
        versions.sort_by_key(|release| Version::parse(&release.version).ok());
        versions.truncate(versions.len().saturating_sub(kept));
        (!versions.is_empty()).then(|| (name, versions.into_iter().map(|release| release.version).collect()))
    };
    by_name.into_iter().filter_map(old).collect()
}

/// What was compiled for stemcells of whose line none stays.
fn without_stemcell(
    compiled: BTreeSet<CompilationKey>,
    all: &[StemcellRecord],
    going: &[StemcellRecord],
) -> Vec<CompilationKey> {
    let stays = |stemcell: &&StemcellRecord| !going.iter().any(|gone| gone.id == stemcell.id);
    let lines: Vec<_> = all
        .iter()
        .filter(stays)
        .map(|stemcell| (stemcell.operating_system.as_str(), StemcellLine::of(&stemcell.version)))
        .collect();
    let has_one = |key: &CompilationKey| lines.iter().any(|(os, line)| *os == key.os && line.has(&key.stemcell));
    compiled.into_iter().filter(|key| !has_one(key)).collect()
}

/// Stemcells that no deployment uses, without the newest of each name. One that is used in one cloud is used in all.
fn unused(mut stemcells: Vec<StemcellRecord>, kept: usize) -> Vec<StemcellRecord> {
    let order = |one: &StemcellRecord, other: &StemcellRecord| {
        one.name.cmp(&other.name).then_with(|| compare_versions(&one.version, &other.version))
    };
    stemcells.sort_by(order);
    let mut unused = Vec::new();
    for name in stemcells.chunk_by(|one, next| one.name == next.name) {
        let is_free = |version: &&[StemcellRecord]| version.iter().all(|stemcell| stemcell.deployments.is_empty());
        let versions = name.chunk_by(|one, next| one.version == next.version);
        let free: Vec<_> = versions.filter(is_free).collect();
        let old = &free[..free.len().saturating_sub(kept)];
        unused.extend(old.iter().flat_map(|version| version.iter().cloned()));
    }
    unused
}

/// Deletes; what cannot be deleted does not keep the rest.
pub(super) async fn run(director: &Director, log: &TaskLog, how: CleanUp) -> Result<String, TaskError> {
    let Rubbish { releases, stemcells, compiled, disks, exported, .. } = find(director, how).await?;
    let mut failures = Vec::new();
    let mut counted = |result: Result<usize, TaskError>| {
        result.unwrap_or_else(|error| {
            failures.push(error);
            0
        })
    };
    let vms = counted(delete_orphaned_vms::delete(director, log).await);
    let of_releases = counted(delete_releases(director, log, &releases).await);
    let of_stemcells = counted(delete_stemcells(director, log, &stemcells).await);
    let of_compiled = counted(delete_compiled(director, log, compiled).await);
    let of_disks = counted(delete_disks(director, log, &disks).await);
    let of_exported = counted(delete_exported(director, log, &exported).await);
    if how.remove_all {
        counted(delete_unreferenced_blobs(director, log).await);
    }
    if !failures.is_empty() {
        return Err(one_or_several(failures));
    }
    Ok(format!(
        "Deleted {of_releases} release(s), {of_stemcells} stemcell(s), {of_compiled} extra compiled package(s), {of_disks} orphaned \
         disk(s), {vms} orphaned vm(s), {of_exported} exported release(s), 0 dns blob(s)"
    ))
}

/// Does things to many, some at a time; all are tried, and all failures are reported.
async fn each(work: Vec<BoxFuture<'_, Result<(), TaskError>>>) -> Result<usize, TaskError> {
    let count = work.len();
    let ended: Vec<_> = stream::iter(work).buffer_unordered(AT_ONCE).collect().await;
    let failures: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(count) } else { Err(one_or_several(failures)) }
}

/// One after the other: versions of a release share what they have.
async fn delete_releases(
    director: &Director,
    log: &TaskLog,
    releases: &[(String, Vec<String>)],
) -> Result<usize, TaskError> {
    let versions: Vec<_> =
        releases.iter().flat_map(|(name, versions)| versions.iter().map(move |it| (name, it))).collect();
    if versions.is_empty() {
        return Ok(0);
    }
    lock(director, log, &LockName::of_releases()).await?;
    let stage = log.stage("Deleting releases", &[], versions.len());
    let mut failures = Vec::new();
    for (name, version) in &versions {
        let part = stage.part(&format!("{name}/{version}"));
        failures.extend(part.run(delete_release::delete(director, log, name, Some(version))).await.err());
    }
    failures.extend(update_release::remove_unknown_blobs(director).await.err());
    if failures.is_empty() { Ok(versions.len()) } else { Err(one_or_several(failures)) }
}

async fn delete_stemcells<'a>(
    director: &'a Director,
    log: &'a TaskLog,
    stemcells: &'a [StemcellRecord],
) -> Result<usize, TaskError> {
    let stage = log.stage("Deleting stemcells", &[], stemcells.len());
    let delete = |stemcell: &'a StemcellRecord| -> BoxFuture<'a, _> {
        let part = stage.part(&format!("{}/{}", stemcell.name, stemcell.version));
        Box::pin(async move { part.run(delete_stemcell::remove(director, log, &part, stemcell, false)).await })
    };
    each(stemcells.iter().map(delete).collect()).await
}

/// Those of releases that were deleted are gone already.
async fn delete_compiled(
    director: &Director,
    log: &TaskLog,
    compiled: Vec<CompilationKey>,
) -> Result<usize, TaskError> {
    let there = director.store.compiled_keys().await?;
    let compiled: Vec<_> = compiled.into_iter().filter(|key| there.contains(key)).collect();
    if compiled.is_empty() {
        return Ok(0);
    }
    take_release_lock(director, log).await?;
    let stage = log.stage("Deleting compiled packages", &[], compiled.len());
    for key in &compiled {
        let part = stage.part(&format!("{} for {}/{}", key.package, key.os, key.stemcell));
        part.run(director.store.forget_compiled_packages(std::slice::from_ref(key))).await?;
    }
    update_release::remove_unknown_blobs(director).await?;
    Ok(compiled.len())
}

/// This task may have it from deleting releases.
async fn take_release_lock(director: &Director, log: &TaskLog) -> Result<(), TaskError> {
    match director.store.holder(&LockName::of_releases()).await? {
        Some(task) if task == log.task() => Ok(()),
        _ => lock(director, log, &LockName::of_releases()).await,
    }
}

async fn delete_disks<'a>(
    director: &'a Director,
    log: &'a TaskLog,
    disks: &'a [OrphanDisk],
) -> Result<usize, TaskError> {
    let stage = log.stage("Deleting orphaned disks", &[], disks.len());
    let delete = |disk: &'a OrphanDisk| -> BoxFuture<'a, _> {
        let part = stage.part(disk.cid.as_str());
        Box::pin(async move { part.run(delete_orphan_disks::delete(director, log, &part, disk)).await })
    };
    each(disks.iter().map(delete).collect()).await
}

async fn delete_exported(director: &Director, log: &TaskLog, exported: &[String]) -> Result<usize, TaskError> {
    let stage = log.stage("Deleting exported releases", &[], exported.len());
    for blob in exported {
        let delete = async {
            director.blobs.remove(blobs::MADE, blob).await?;
            Ok::<_, TaskError>(director.store.forget_exported_release(blob).await?)
        };
        stage.part(blob).run(delete).await?;
    }
    Ok(exported.len())
}

/// What kills left. Nobody is told of what is not there.
async fn delete_unreferenced_blobs(director: &Director, log: &TaskLog) -> Result<usize, TaskError> {
    take_release_lock(director, log).await?;
    if blobs::unreferenced(director).await?.is_empty() {
        return Ok(0);
    }
    let stage = log.stage("Deleting unreferenced blobs", &[], 1);
    let removing = async { Ok::<_, TaskError>(blobs::remove_unreferenced(director).await?) };
    stage.part("Deleting unreferenced blobs").run(removing).await
}

#[cfg(test)]
mod tests {
    use windlass_contract::StemcellCid;

    use super::*;
    use windlass_planning::names::CpiName;

    #[test]
    fn the_two_newest_stemcells_and_those_in_use_are_kept() {
        let stemcell = |version: &str, used: bool| StemcellRecord {
            id: 0,
            name: "s".into(),
            version: version.into(),
            operating_system: "os".into(),
            cpi: CpiName::Default,
            cid: StemcellCid::new(version).unwrap(),
            api_version: None,
            deployments: if used { vec!["d".into()] } else { Vec::new() },
        };
        let all = || vec![stemcell("10", false), stemcell("2", false), stemcell("9", false), stemcell("1", true)];
        let versions = |kept| -> Vec<String> { unused(all(), kept).into_iter().map(|s| s.version).collect() };
        assert_eq!(versions(2), ["2"]);
        assert_eq!(versions(0), ["2", "9", "10"]);
    }

    #[test]
    fn the_two_newest_releases_and_those_in_use_or_in_a_runtime_config_are_kept() {
        let release = |name: &str, version: &str, used: bool| ReleaseRecord {
            name: name.into(),
            version: version.into(),
            deployments: if used { vec!["d".into()] } else { Vec::new() },
            ..ReleaseRecord::default()
        };
        let config = windlass_planning::records::ConfigRecord {
            id: 1,
            kind: "runtime".into(),
            name: "default".into(),
            content: "releases: [{name: a, version: '2'}]".into(),
            created_at: 0,
            team: None,
        };
        let runtime = Configs::read([&config], &mut Findings::new()).runtime;
        let all = || {
            let of_a = ["10", "9", "2", "1+dev.2", "1+dev.10"].map(|version| release("a", version, false));
            of_a.into_iter().chain([release("a", "0", true), release("b", "1", false)]).collect::<Vec<_>>()
        };
        let versions = |kept| unused_releases(all(), &runtime, kept);
        let strings = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        assert_eq!(versions(2), [("a".to_owned(), strings(&["1+dev.2", "1+dev.10"]))]);
        assert_eq!(
            versions(0),
            [("a".to_owned(), strings(&["1+dev.2", "1+dev.10", "9", "10"])), ("b".to_owned(), strings(&["1"]))]
        );
    }

    #[test]
    fn compiled_packages_go_with_the_last_stemcell_of_their_line() {
        let stemcell = |id: i64, os: &str, version: &str| StemcellRecord {
            id,
            name: "s".into(),
            version: version.into(),
            operating_system: os.into(),
            cpi: CpiName::Default,
            cid: StemcellCid::new(version).unwrap(),
            api_version: None,
            deployments: Vec::new(),
        };
        let key = |os: &str, version: &str| CompilationKey {
            release: "r".into(),
            package: "p".into(),
            version: "f".into(),
            os: os.into(),
            stemcell: version.into(),
            dependency_key: "[]".into(),
        };
        let compiled = BTreeSet::from([key("os", "1.1"), key("os", "1.2"), key("os", "2"), key("other", "1.1")]);
        let all = [stemcell(1, "os", "1.7"), stemcell(2, "os", "2")];
        assert_eq!(without_stemcell(compiled.clone(), &all, &all[1..]), [key("os", "2"), key("other", "1.1")]);
        assert_eq!(without_stemcell(compiled, &all, &all).len(), 4);
    }
}
