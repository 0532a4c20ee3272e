//! Deletes what a cloud has and nobody owns. What is on record, or may be in the making, is refused.

use serde::{Deserialize, Serialize};
use windlass_contract::{ApiVersion, DiskCid, SnapshotCid, StemcellCid, VmCid};
use windlass_operations::clouds::OnBehalfOf;
use windlass_operations::ledger::{Change, Ledger};
use windlass_operations::steps::Progress;

use super::{TaskError, TaskLog};
use crate::Director;
use windlass_planning::names::CpiName;

/// What kind of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LeakKind {
    Vm,
    Disk,
    Snapshot,
    Stemcell,
}

/// Something that a cloud has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeakRequest {
    #[serde(default)]
    pub cpi: CpiName,
    pub kind: LeakKind,
    pub cid: String,
}

/// What a thing of nobody is taken to be of: with less, a registry would be asked for.
const STEMCELL_OF_NOBODY: ApiVersion = ApiVersion(2);

impl LeakRequest {
    pub(crate) fn subject(&self) -> String {
        let kind = match self.kind {
            LeakKind::Vm => "VM",
            LeakKind::Disk => "disk",
            LeakKind::Snapshot => "snapshot",
            LeakKind::Stemcell => "stemcell",
        };
        format!("{kind} {}", self.cid)
    }

    fn change(&self) -> Result<Change, TaskError> {
        let wrong = |error: windlass_contract::ids::InvalidId| TaskError::Input(error.to_string());
        let cid = self.cid.clone();
        Ok(match self.kind {
            LeakKind::Vm => Change::DeleteVm { cid: VmCid::new(cid).map_err(wrong)? },
            LeakKind::Disk => Change::DeleteDisk { cid: DiskCid::new(cid).map_err(wrong)? },
            LeakKind::Snapshot => Change::DeleteSnapshot { cid: SnapshotCid::new(cid).map_err(wrong)? },
            LeakKind::Stemcell => {
                Change::DeleteStemcell { cpi: self.cpi.clone(), cid: StemcellCid::new(cid).map_err(wrong)? }
            }
        })
    }
}

pub(super) async fn run(director: &Director, log: &TaskLog, leak: &LeakRequest) -> Result<String, TaskError> {
    let subject = leak.subject();
    let stage = log.stage("Deleting what nobody owns", &[], 1);
    let part = stage.part(&subject);
    part.run(async {
        must_be_nobodys(director, leak).await?;
        let cpi_log = |line: &str| part.cpi_log(line);
        let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
        director.clouds.perform(who, &leak.cpi, Some(STEMCELL_OF_NOBODY), leak.change()?).await?;
        Ok::<_, TaskError>(())
    })
    .await?;
    Ok(format!("{subject} deleted"))
}

/// Looked at when it is deleted, not only when it was listed: somebody may have taken it meanwhile.
async fn must_be_nobodys(director: &Director, leak: &LeakRequest) -> Result<(), TaskError> {
    let makes = |change: &Change| {
        matches!(
            change,
            Change::CreateVm { .. }
                | Change::CreateDisk { .. }
                | Change::CreateStemcell { .. }
                | Change::SnapshotDisk { .. }
        )
    };
    let ledger: &dyn Ledger = &director.store;
    let intents = ledger.intents().await?;
    if let Some(making) = intents.iter().find(|intent| intent.doubt.is_none() && makes(&intent.change)) {
        return Err(TaskError::Input(format!(
            "{} is being made now, and {} might be it; try again when that is done",
            making.change.subject(),
            leak.subject()
        )));
    }
    let known = director.store.known().await?;
    let on_record = match leak.kind {
        LeakKind::Vm => known.vms,
        LeakKind::Disk => known.disks,
        LeakKind::Snapshot => known.snapshots,
        LeakKind::Stemcell => known.stemcells,
    };
    match on_record.contains(&leak.cid) {
        true => Err(TaskError::Input(format!("{} is on record, and not deleted as a leak", leak.subject()))),
        false => Ok(()),
    }
}
