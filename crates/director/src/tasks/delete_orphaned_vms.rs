//! Deletes VMs that belong to no instance any more, because others took their places.

use futures_util::future::BoxFuture;
use windlass_operations::clouds::OnBehalfOf;
use windlass_operations::ledger::Change;
use windlass_operations::steps::Progress;

use super::update_deployment::all;
use super::{EventStage, TaskError, TaskLog};
use crate::Director;
use crate::store::OrphanedVm;

pub(super) async fn run(director: &Director, log: &TaskLog) -> Result<String, TaskError> {
    let deleted = delete(director, log).await?;
    Ok(format!("{deleted} orphaned VMs deleted"))
}

/// Deletes all of them; says how many there were. Those whose deletion fails stay on record, and the next try finds them.
pub(super) async fn delete(director: &Director, log: &TaskLog) -> Result<usize, TaskError> {
    let orphans = director.store.orphaned_vms().await?;
    let stage = log.stage("Deleting orphaned vms", &[], orphans.len());
    let each: Vec<BoxFuture<'_, _>> = orphans
        .iter()
        .map(|orphan| -> BoxFuture<'_, _> { Box::pin(delete_one(director, log, &stage, orphan)) })
        .collect();
    all(Box::new(each.into_iter()), director.settings.max_threads).await?;
    Ok(orphans.len())
}

async fn delete_one(
    director: &Director,
    log: &TaskLog,
    stage: &EventStage,
    orphan: &OrphanedVm,
) -> Result<(), TaskError> {
    let vm = &orphan.vm;
    let part = stage.part(vm.cid.as_str());
    let cpi_log = |line: &str| part.cpi_log(line);
    let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
    let change = Change::DeleteVm { cid: vm.cid.clone() };
    part.run(director.clouds.perform(who, &vm.cpi, vm.stemcell.api_version, change)).await?;
    Ok(())
}
