//! Tells an agent what its instance is to be, and starts its jobs.

use std::time::Duration;

use serde_json::Value;
use windlass_agent_client::{AgentState, CallError};
use windlass_contract::Object;
use windlass_planning::desired::WatchTime;
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{Context, Operation, StepError};

/// What agents say when everything runs.
const RUNNING: &str = "running";
/// How often an instance is looked at between the first and the last look, within these limits. More looks would sooner take a
/// process for a running one that is started again and again.
const LOOKS: u32 = 9;
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// An instance to be started.
#[derive(Debug)]
pub struct StartInstance {
    /// What everything works with.
    pub context: Context,
    pub vm: VmRecord,
    /// What it is to become.
    pub spec: InstanceSpec,
    /// What its agent prepared just now, so that it has the files for that already.
    pub prepared: Option<Object>,
    /// Whether the agent keeps what it was told before: the instance only starts again.
    pub keeps_spec: bool,
    /// The disk that jobs write to, unless it was mounted just now.
    pub disk: Option<DiskRecord>,
    /// From when on it is looked at, and until when it must run; none for not waiting for that.
    pub watch: Option<WatchTime>,
}

steps! { StartInstance:
    // Jobs that start without their disk would write beside it.
    CheckDisk => ensure_mounted, unless |op| op.disk.is_none();
    ConfigureJobs => apply, unless |op| op.keeps_spec;
    PreStart => pre_start;
    StartJobs => start;
    PostStart => post_start, unless |op| op.watch.is_none();
}

impl Operation for StartInstance {
    const NAME: &'static str = "starting";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn ensure_mounted(op: &mut StartInstance) -> Result<(), StepError> {
    let Some(disk) = &op.disk else { return Ok(()) };
    op.context.ensure_mounted(&op.vm, disk).await.map_err(|source| StepError::DiskNotMounted {
        instance: op.context.instance.to_string(),
        disk: disk.cid.clone(),
        vm: op.vm.cid.clone(),
        source: Box::new(source),
    })
}

async fn apply(op: &mut StartInstance) -> Result<(), StepError> {
    let spec = op.context.deliver(&op.vm, &op.spec, op.prepared.as_ref()).await?;
    match op.context.agent_until_cancelled(&op.vm).apply(&spec).await {
        // Some clouds make the VM again to attach or detach a disk, and what its agent prepared is gone with the VM before.
        Err(CallError::Exception { .. }) if op.prepared.take().is_some() => {}
        applied => return Ok(applied?),
    }
    let spec = op.context.deliver(&op.vm, &op.spec, None).await?;
    Ok(op.context.agent_until_cancelled(&op.vm).apply(&spec).await?)
}

async fn pre_start(op: &mut StartInstance) -> Result<(), StepError> {
    run_script(op, "pre-start").await
}

async fn post_start(op: &mut StartInstance) -> Result<(), StepError> {
    run_script(op, "post-start").await
}

async fn run_script(op: &mut StartInstance, name: &str) -> Result<(), StepError> {
    let _ = op.context.agent_until_cancelled(&op.vm).run_script(name, &Default::default()).await?;
    Ok(())
}

async fn start(op: &mut StartInstance) -> Result<(), StepError> {
    let agent = op.context.agent_until_cancelled(&op.vm);
    agent.start().await?;
    let Some(watch) = op.watch else { return Ok(()) };
    let begun = tokio::time::Instant::now();
    let mut state = agent.get_state(false).await?;
    // Without processes there is nothing that could fail later.
    if state.job_state == RUNNING && state.processes.is_empty() {
        return Ok(());
    }
    for look in looks(watch) {
        tokio::time::sleep_until(begun + look).await;
        state = agent.get_state(false).await?;
        if state.job_state == RUNNING {
            return Ok(());
        }
        if op.context.progress.is_cancelled() {
            return Err(StepError::Cancelled);
        }
    }
    Err(not_running(op, &state))
}

/// When an instance is looked at after its start: from the least to the greatest watch time, both included.
fn looks(watch: WatchTime) -> impl Iterator<Item = Duration> {
    let (first, last) = (Duration::from_millis(watch.min), Duration::from_millis(watch.max));
    let pause = (last.saturating_sub(first) / LOOKS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    std::iter::successors(Some(first), move |look| (*look < last).then(|| (*look + pause).min(last)))
}

fn not_running(op: &StartInstance, state: &AgentState) -> StepError {
    let name = |process: &Value| process.get("name").and_then(Value::as_str).map(str::to_owned);
    let fails = |process: &&Value| process.get("state").and_then(Value::as_str) != Some(RUNNING);
    let failing: Vec<String> = state.processes.iter().filter(fails).filter_map(name).collect();
    StepError::NotRunning { instance: op.context.instance.to_string(), state: state.job_state.clone(), failing }
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_disk("", 64).wants_jobs(true));

#[cfg(test)]
mod tests {
    use windlass_planning::desired::WatchTime;

    #[test]
    fn jobs_are_looked_at_from_the_least_to_the_greatest_watch_time() {
        let looks = |min, max| super::looks(WatchTime { min, max }).map(|look| look.as_millis()).collect::<Vec<_>>();
        assert_eq!(looks(1_000, 5_500), [1_000, 2_000, 3_000, 4_000, 5_000, 5_500]);
        assert_eq!(looks(0, 10), [0, 10]);
        assert_eq!(looks(500, 500), [500]);
        let long = looks(1_000, 300_000);
        assert_eq!((long.first(), long.last()), (Some(&1_000), Some(&300_000)));
        assert!(long.windows(2).all(|pair| pair[1] - pair[0] <= 15_000) && long.len() < 30, "{long:?}");
    }
}
