//! Unmounts and detaches a disk.

use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{Context, Operation, StepError};
use crate::ledger::{Change, Fact};

/// A disk to be detached.
#[derive(Debug)]
pub struct DetachDisk {
    /// What everything works with.
    pub context: Context,
    /// From this VM.
    pub vm: VmRecord,
    /// This disk.
    pub disk: DiskRecord,
}

steps! { DetachDisk:
    UnmountDisk => unmount;
    ForgetDisk => forget;
    DetachDisk => detach;
}

impl Operation for DetachDisk {
    const NAME: &'static str = "detaching the disk";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn unmount(op: &mut DetachDisk) -> Result<(), StepError> {
    let agent = op.context.agent(&op.vm);
    if agent.list_disk().await?.contains(&op.disk.cid) {
        op.context.ledger.record(&Fact::DiskUnmounted { disk: op.disk.cid.clone() }).await?;
        agent.unmount_disk(&op.disk.cid).await?;
    }
    Ok(())
}

async fn forget(op: &mut DetachDisk) -> Result<(), StepError> {
    // An agent older than the message has the disk from its settings, which the CPI corrects.
    let _ = op.context.agent(&op.vm).remove_persistent_disk(&op.disk.cid).await?;
    Ok(())
}

async fn detach(op: &mut DetachDisk) -> Result<(), StepError> {
    let change = Change::DetachDisk { vm: op.vm.cid.clone(), disk: op.disk.cid.clone() };
    op.context.perform_on(&op.vm, change).await.map(drop)
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk(""));
