//! Deletes a VM by its cid, of any deployment or none. Its instance stays, without a VM.

use windlass_contract::{ApiVersion, VmCid};
use windlass_operations::clouds::OnBehalfOf;
use windlass_operations::ledger::Change;
use windlass_operations::steps::Progress;
use windlass_planning::names::CpiName;

use super::{TaskError, TaskLog, lock_deployment};
use crate::Director;

/// What the VM of nobody is taken to be made from: with less, a registry would be asked for.
const STEMCELL_OF_NOBODY: ApiVersion = ApiVersion(2);

/// An orphan has its record; of any other VM nothing is known.
async fn of_nobody(director: &Director, cid: &VmCid) -> Result<(CpiName, Option<ApiVersion>), TaskError> {
    let orphan = director.store.orphaned_vms().await?.into_iter().find(|orphan| orphan.vm.cid == *cid);
    Ok(orphan.map_or_else(
        || (CpiName::Default, Some(STEMCELL_OF_NOBODY)),
        |orphan| (orphan.vm.cpi, orphan.vm.stemcell.api_version),
    ))
}

pub(super) async fn run(director: &Director, log: &TaskLog, cid: &VmCid) -> Result<String, TaskError> {
    let stage = log.stage("Delete VM", &[], 1);
    let part = stage.part(cid.as_str());
    part.run(async {
        let (cpi, version) = match director.store.vm(cid).await? {
            Some((deployment, vm)) => {
                lock_deployment(director, log, &deployment).await?;
                (vm.cpi, vm.stemcell.api_version)
            }
            None => of_nobody(director, cid).await?,
        };
        let cpi_log = |line: &str| part.cpi_log(line);
        let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
        director.clouds.perform(who, &cpi, version, Change::DeleteVm { cid: cid.clone() }).await?;
        let done = stage.part(&format!("VM {cid} is successfully deleted"));
        done.run(async { Ok::<_, TaskError>(()) }).await
    })
    .await?;
    // BOSH's word; the stage says which VM it was.
    Ok("true".to_owned())
}
