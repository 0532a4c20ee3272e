//! The VM that was made beside an instance's takes its place. The old one is given up: it is switched off, and deleted later.

use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError};
use crate::ledger::Fact;

/// A VM to be given up for another one.
#[derive(Debug)]
pub struct SwapVm {
    /// What everything works with.
    pub context: Context,
    /// The VM that goes; its disks are detached.
    pub old: VmRecord,
    /// The VM that takes its place.
    pub new: VmRecord,
}

steps! { SwapVm:
    SwapVms => swap;
    SwitchOldVmOff => switch_off;
}

impl Operation for SwapVm {
    const NAME: &'static str = "swapping VMs";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn swap(op: &mut SwapVm) -> Result<(), StepError> {
    let fact = Fact::VmSwapped { from: op.old.cid.clone(), to: op.new.cid.clone() };
    op.context.ledger.record(&fact).await?;
    op.new.spare = false;
    Ok(())
}

async fn switch_off(op: &mut SwapVm) -> Result<(), StepError> {
    // It is deleted in any case; an agent that does not hear this is no reason to fail.
    if let Err(error) = op.context.agent(&op.old).shutdown().await {
        tracing::info!(vm = %op.old.cid, %error, "an orphaned VM was not switched off");
    }
    Ok(())
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_spare_vm().wants_swap());
