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
    pub vm: VmRecord,
    pub disk: DiskRecord,
    /// The disk that jobs go on with.
    pub remaining: Option<DiskRecord>,
}

steps! { DetachDisk:
    UnmountDisk => unmount;
    ForgetDisk => forget;
    DetachDisk => detach;
    // Jobs would write beside it.
    MountRemainingDisk => mount_remaining, unless |op| op.remaining.is_none();
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
    if let Some(remaining) = &mut op.remaining {
        // Some clouds make the VM again to detach a disk, and some agents come back without the other one. Until that is mounted, the
        // records say that it is not, so that the next deploy mounts it before anything starts.
        op.context.ledger.record(&Fact::DiskUnmounted { disk: remaining.cid.clone() }).await?;
        remaining.mounted = false;
    }
    let change = Change::DetachDisk { vm: op.vm.cid.clone(), disk: op.disk.cid.clone() };
    op.context.perform_on(&op.vm, change).await.map(drop)
}

async fn mount_remaining(op: &mut DetachDisk) -> Result<(), StepError> {
    let Some(remaining) = &op.remaining else { return Ok(()) };
    op.context.wait_for_agent(&op.vm).await?;
    op.context.ensure_mounted(&op.vm, remaining).await
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk(""));
