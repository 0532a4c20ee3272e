//! Tells the cloud what a VM and its disks are called now.

use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{Context, Operation, StepError};
use crate::ledger::Change;

/// A VM whose names change.
#[derive(Debug)]
pub struct SetMetadata {
    /// What everything works with.
    pub context: Context,
    pub vm: VmRecord,
    pub disks: Vec<DiskRecord>,
}

steps! { SetMetadata:
    NameVm => name_vm;
    NameDisks => name_disks, unless |op| op.disks.is_empty();
}

impl Operation for SetMetadata {
    const NAME: &'static str = "setting metadata";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn name_vm(op: &mut SetMetadata) -> Result<(), StepError> {
    let change = Change::SetVmMetadata { cid: op.vm.cid.clone(), metadata: op.context.vm_metadata() };
    op.context.perform(&op.vm.cpi, op.vm.stemcell.api_version, change).await.map(drop)
}

async fn name_disks(op: &mut SetMetadata) -> Result<(), StepError> {
    for disk in &op.disks {
        let change = Change::SetDiskMetadata { cid: disk.cid.clone(), metadata: op.context.disk_metadata() };
        op.context.perform(&disk.cpi, op.vm.stemcell.api_version, change).await?;
    }
    Ok(())
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_names());
