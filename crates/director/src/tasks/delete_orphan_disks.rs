//! Deletes orphaned disks with their snapshots and their data.

use futures_util::future::BoxFuture;
use windlass_contract::DiskCid;
use windlass_operations::clouds::OnBehalfOf;
use windlass_operations::ledger::Change;
use windlass_operations::steps::Progress;

use super::log::EventPart;
use super::update_deployment::all;
use super::{TaskError, TaskLog};
use crate::Director;
use crate::store::OrphanDisk;

/// How many disks are deleted at once.
const AT_ONCE: usize = 32;

pub(super) async fn run(director: &Director, log: &TaskLog, cids: &[DiskCid]) -> Result<String, TaskError> {
    let stage = log.stage("Deleting orphaned disks", &[], cids.len());
    let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
    for cid in cids {
        let part = stage.part(&format!("Deleting orphaned disk {cid}"));
        each.push(Box::pin(async move {
            part.run(async {
                match director.store.orphan_disk(cid).await? {
                    Some(disk) => delete(director, log, &part, &disk).await,
                    // Gone already.
                    None => Ok(()),
                }
            })
            .await
        }));
    }
    all(Box::new(each.into_iter()), AT_ONCE).await?;
    let names: Vec<_> = cids.iter().map(DiskCid::as_str).collect();
    Ok(format!("orphaned disk(s) {} deleted", names.join(", ")))
}

/// Snapshots first: a cloud may refuse to delete a disk that has some.
pub(super) async fn delete(
    director: &Director,
    log: &TaskLog,
    part: &EventPart,
    disk: &OrphanDisk,
) -> Result<(), TaskError> {
    let cpi_log = |line: &str| part.cpi_log(line);
    let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
    let version = disk.stemcell_version;
    for snapshot in director.store.snapshots_of_orphan(&disk.cid).await? {
        director.clouds.perform(who, &disk.cpi, version, Change::DeleteSnapshot { cid: snapshot.cid }).await?;
    }
    director.clouds.perform(who, &disk.cpi, version, Change::DeleteDisk { cid: disk.cid.clone() }).await?;
    Ok(())
}
