//! Removes a stemcell from every cloud that has it.

use windlass_contract::explain;
use windlass_operations::clouds::OnBehalfOf;
use windlass_operations::ledger::{Change, Fact, Ledger};
use windlass_operations::steps::Progress;
use windlass_planning::records::StemcellRecord;

use super::log::EventPart;
use super::{TaskError, TaskLog};
use crate::Director;

pub(super) async fn run(
    director: &Director,
    log: &TaskLog,
    name: &str,
    version: &str,
    force: bool,
) -> Result<String, TaskError> {
    let stemcells: Vec<_> = director
        .store
        .stemcells()
        .await?
        .into_iter()
        .filter(|stemcell| stemcell.name == name && stemcell.version == version)
        .collect();
    if stemcells.is_empty() {
        return Err(TaskError::refused(50003, format!("Stemcell '{name}/{version}' doesn't exist")));
    }
    let users: Vec<_> = stemcells.iter().flat_map(|stemcell| stemcell.deployments.clone()).collect();
    if !users.is_empty() {
        let reason = format!("Stemcell '{name}/{version}' is still in use by: {}", users.join(", "));
        return Err(TaskError::refused(50004, reason));
    }
    let stage = log.stage("Deleting stemcell from cloud", &[], stemcells.len());
    for stemcell in stemcells {
        let part = stage.part(&format!("{name}/{version} ({})", stemcell.cid));
        part.run(remove(director, log, &part, &stemcell, force)).await?;
    }
    Ok(format!("/stemcells/{name}/{version}"))
}

pub(super) async fn remove(
    director: &Director,
    log: &TaskLog,
    part: &EventPart,
    stemcell: &StemcellRecord,
    force: bool,
) -> Result<(), TaskError> {
    let (cpi, cid) = (stemcell.cpi.clone(), stemcell.cid.clone());
    let cpi_log = |line: &str| part.cpi_log(line);
    let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
    let change = Change::DeleteStemcell { cpi: cpi.clone(), cid: cid.clone() };
    match director.clouds.perform(who, &stemcell.cpi, stemcell.api_version, change).await {
        Err(error) if force => {
            log.warning(&format!("stemcell {cid} may be left in the cloud: {}", explain(&error)));
            Ok(director.store.record(&Fact::StemcellDeleted { cpi, cid }).await?)
        }
        other => Ok(other.map(drop)?),
    }
}
