//! Removes a VM; its disks survive. The record goes only after the cloud confirmed.

use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError};
use crate::ledger::Change;

/// A VM to be removed.
#[derive(Debug)]
pub struct DeleteVm {
    /// What everything works with.
    pub context: Context,
    pub vm: VmRecord,
}

steps! { DeleteVm:
    DeleteVm => delete;
}

impl Operation for DeleteVm {
    const NAME: &'static str = "deleting the VM";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn delete(op: &mut DeleteVm) -> Result<(), StepError> {
    let change = Change::DeleteVm { cid: op.vm.cid.clone() };
    op.context.perform(&op.vm.cpi, op.vm.stemcell.api_version, change).await.map(drop)
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_no_vm());
