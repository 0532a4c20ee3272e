//! Drains and stops what runs on an instance.

use windlass_agent_client::Drain;
use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError};

/// An instance to be stopped.
#[derive(Debug)]
pub struct StopInstance {
    /// What everything works with.
    pub context: Context,
    /// Its VM.
    pub vm: VmRecord,
    /// Whether its jobs may finish what they do.
    pub drain: bool,
}

steps! { StopInstance:
    PreStop => pre_stop, unless |op| !op.drain;
    Drain => drain, unless |op| !op.drain;
    StopJobs => stop;
    PostStop => post_stop;
}

impl Operation for StopInstance {
    const NAME: &'static str = "stopping";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn pre_stop(op: &mut StopInstance) -> Result<(), StepError> {
    run_script(op, "pre-stop").await
}

async fn post_stop(op: &mut StopInstance) -> Result<(), StepError> {
    run_script(op, "post-stop").await
}

async fn run_script(op: &mut StopInstance, name: &str) -> Result<(), StepError> {
    let _ = op.context.agent(&op.vm).run_script(name, &Default::default()).await?;
    Ok(())
}

async fn drain(op: &mut StopInstance) -> Result<(), StepError> {
    Ok(op.context.agent(&op.vm).drain(Drain::Shutdown).await?)
}

async fn stop(op: &mut StopInstance) -> Result<(), StepError> {
    Ok(op.context.agent(&op.vm).stop().await?)
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_disk("", 64).running().wants_jobs(false));
