//! Drains and stops what runs on an instance.

use serde_json::json;
use windlass_agent_client::Drain;
use windlass_contract::Object;
use windlass_planning::plan::NextStates;
use windlass_planning::records::VmRecord;

use super::step::steps;
use super::{Context, Operation, StepError};

/// An instance to be stopped.
#[derive(Debug)]
pub struct StopInstance {
    /// What everything works with.
    pub context: Context,
    pub vm: VmRecord,
    /// Whether its jobs may finish what they do.
    pub drain: bool,
    /// What becomes of it afterwards; none where its scripts are not told, as by create-env.
    pub next: Option<NextStates>,
    /// The spec that the agent gets next, as far as it is known; none for an instance that goes.
    pub next_spec: Option<Object>,
}

steps! { StopInstance:
    SkipDrain => skip_drain, unless |op| op.drain;
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

/// Nothing is done: people see that it was meant.
async fn skip_drain(_: &mut StopInstance) -> Result<(), StepError> {
    Ok(())
}

async fn pre_stop(op: &mut StopInstance) -> Result<(), StepError> {
    let next = |goes| if goes { "delete" } else { "keep" };
    let env = op.next.map(|states| {
        json!({
            "BOSH_VM_NEXT_STATE": next(states.vm_goes),
            "BOSH_INSTANCE_NEXT_STATE": next(states.instance_goes),
            "BOSH_DEPLOYMENT_NEXT_STATE": next(states.deployment_goes),
        })
    });
    let options = env.map(|env| ("env".to_owned(), env)).into_iter().collect();
    run_script(op, "pre-stop", &options).await
}

async fn post_stop(op: &mut StopInstance) -> Result<(), StepError> {
    run_script(op, "post-stop", &Object::default()).await
}

async fn run_script(op: &mut StopInstance, name: &str, options: &Object) -> Result<(), StepError> {
    let _ = op.context.agent_until_cancelled(&op.vm).run_script(name, options).await?;
    Ok(())
}

async fn drain(op: &mut StopInstance) -> Result<(), StepError> {
    let nothing = Object::default();
    let drain = match (op.next, &op.next_spec) {
        (None, _) => Drain::Shutdown(None),
        // An instance that goes away.
        (Some(_), None) => Drain::Shutdown(Some(&nothing)),
        (Some(next), Some(spec)) if next.is_update => Drain::Update(spec),
        (Some(_), Some(spec)) => Drain::Shutdown(Some(spec)),
    };
    Ok(op.context.agent_until_cancelled(&op.vm).drain(drain).await?)
}

async fn stop(op: &mut StopInstance) -> Result<(), StepError> {
    Ok(op.context.agent_until_cancelled(&op.vm).stop().await?)
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_disk("", 64).running().wants_jobs(false));
