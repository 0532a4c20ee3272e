//! Deletes what nobody uses: orphaned VMs, stemcells, and with `--all` orphaned disks.

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use windlass_planning::desired::compare_versions;
use windlass_planning::records::StemcellRecord;

use super::update_deployment::one_or_several;
use super::{TaskError, TaskLog, delete_orphan_disks, delete_orphaned_vms, delete_stemcell};
use crate::Director;
use crate::store::{OrphanDisk, OrphanedVm, StoreError};

/// How many things are deleted at once.
const AT_ONCE: usize = 32;
/// How many unused versions of a stemcell are kept, the newest ones.
const KEPT_STEMCELLS: usize = 2;

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
    pub(crate) stemcells: Vec<StemcellRecord>,
    pub(crate) disks: Vec<OrphanDisk>,
    pub(crate) vms: Vec<OrphanedVm>,
}

/// Finds what nobody uses; deletes nothing.
pub(crate) async fn find(director: &Director, how: CleanUp) -> Result<Rubbish, StoreError> {
    let disks =
        if how.remove_all && !how.keep_orphaned_disks { director.store.orphan_disks().await? } else { Vec::new() };
    let kept = if how.remove_all { 0 } else { KEPT_STEMCELLS };
    let stemcells = unused(director.store.stemcells().await?, kept);
    Ok(Rubbish { stemcells, disks, vms: director.store.orphaned_vms().await? })
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
    let Rubbish { stemcells, disks, .. } = find(director, how).await?;
    let vms = delete_orphaned_vms::delete(director, log).await;
    let mut each: Vec<BoxFuture<'_, Result<(), TaskError>>> = Vec::new();
    let stage = log.stage("Deleting stemcells", &[], stemcells.len());
    for stemcell in &stemcells {
        let part = stage.part(&format!("{}/{}", stemcell.name, stemcell.version));
        each.push(Box::pin(
            async move { part.run(delete_stemcell::remove(director, log, &part, stemcell, false)).await },
        ));
    }
    let stage = log.stage("Deleting orphaned disks", &[], disks.len());
    for disk in &disks {
        let part = stage.part(disk.cid.as_str());
        each.push(Box::pin(async move { part.run(delete_orphan_disks::delete(director, log, &part, disk)).await }));
    }
    let ended: Vec<_> = stream::iter(each).buffer_unordered(AT_ONCE).collect().await;
    let mut failures: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
    let vms = vms.unwrap_or_else(|error| {
        failures.push(error);
        0
    });
    if !failures.is_empty() {
        return Err(one_or_several(failures));
    }
    Ok(format!(
        "Deleted 0 release(s), {} stemcell(s), 0 extra compiled package(s), {} orphaned disk(s), {vms} orphaned vm(s), 0 exported \
         release(s), 0 dns blob(s)",
        stemcells.len(),
        disks.len()
    ))
}

#[cfg(test)]
mod tests {
    use windlass_contract::StemcellCid;

    use super::*;

    #[test]
    fn the_two_newest_stemcells_and_those_in_use_are_kept() {
        let stemcell = |version: &str, used: bool| StemcellRecord {
            id: 0,
            name: "s".into(),
            version: version.into(),
            operating_system: "os".into(),
            cpi: String::new(),
            cid: StemcellCid::new(version).unwrap(),
            api_version: None,
            deployments: if used { vec!["d".into()] } else { Vec::new() },
        };
        let all = || vec![stemcell("10", false), stemcell("2", false), stemcell("9", false), stemcell("1", true)];
        let versions = |kept| -> Vec<String> { unused(all(), kept).into_iter().map(|s| s.version).collect() };
        assert_eq!(versions(2), ["2"]);
        assert_eq!(versions(0), ["2", "9", "10"]);
    }
}
