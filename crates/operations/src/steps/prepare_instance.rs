//! Has an agent install what its instance will run, while the version before still runs.

use windlass_contract::Object;
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError};

/// An instance whose jobs will change.
#[derive(Debug)]
pub struct PrepareInstance {
    /// What everything works with.
    pub context: Context,
    pub vm: VmRecord,
    /// What it will be.
    pub spec: InstanceSpec,
    /// What the agent was told.
    pub told: Option<Object>,
}

steps! { PrepareInstance:
    InstallPackages => prepare;
}

impl Operation for PrepareInstance {
    const NAME: &'static str = "preparing";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn prepare(op: &mut PrepareInstance) -> Result<(), StepError> {
    let spec = op.context.deliver(&op.vm, &op.spec, None).await?;
    op.context.agent_until_cancelled(&op.vm).prepare(&spec).await?;
    op.told = Some(spec);
    Ok(())
}

#[cfg(test)]
super::fault_tests::fault_tests!(
    faults,
    Scene::with_vm().with_disk("").wants_disk("", 64).running().wants_jobs(true).prepared()
);
