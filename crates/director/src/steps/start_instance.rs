//! Tells an agent what its instance shall be, and starts it.

use std::time::Duration;

use serde_json::json;

use super::{Context, Operation, Step, StepError};
use crate::ledger::VmRecord;
use crate::plan::InstanceSpec;

/// How long an instance may take until it runs, and how often that is looked at.
const RUNNING: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// An instance to be started.
#[derive(Debug)]
pub struct StartInstance {
    /// What everything works with.
    pub context: Context,
    /// Its VM.
    pub vm: VmRecord,
    /// What it shall be.
    pub spec: InstanceSpec,
}

static STEPS: &[Step<StartInstance>] = &[
    Step { name: "configuring jobs", is_done: |_| false, act: |op| Box::pin(apply(op)), undo: None },
    Step {
        name: "executing pre-start",
        is_done: |_| false,
        act: |op| Box::pin(run_script(op, "pre-start")),
        undo: None,
    },
    Step { name: "starting jobs", is_done: |_| false, act: |op| Box::pin(start(op)), undo: None },
    Step {
        name: "executing post-start",
        is_done: |_| false,
        act: |op| Box::pin(run_script(op, "post-start")),
        undo: None,
    },
];

impl Operation for StartInstance {
    const NAME: &'static str = "starting";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [Step<Self>] {
        STEPS
    }
}

async fn apply(op: &mut StartInstance) -> Result<(), StepError> {
    let instance = &op.context.instance;
    let spec = json!({
        "deployment": instance.deployment,
        "name": instance.group,
        "job": {"name": instance.group, "template": "", "version": "", "templates": []},
        "index": instance.index,
        "id": instance.id,
        "az": instance.az,
        "networks": op.vm.networks,
        "packages": {},
        "configuration_hash": "",
        "persistent_disk": op.spec.managed_disk().map_or(0, |disk| disk.size),
    });
    Ok(op.context.agent(&op.vm).apply(&spec.as_object().cloned().unwrap_or_default()).await?)
}

async fn run_script(op: &mut StartInstance, name: &str) -> Result<(), StepError> {
    let _ = op.context.agent(&op.vm).run_script(name, &Default::default()).await?;
    Ok(())
}

async fn start(op: &mut StartInstance) -> Result<(), StepError> {
    let agent = op.context.agent(&op.vm);
    agent.start().await?;
    let deadline = tokio::time::Instant::now() + RUNNING;
    loop {
        let state = agent.get_state(false).await?.job_state;
        if state == "running" {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(StepError::Missing(format!("{} is not running but {state}", op.context.instance)));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
