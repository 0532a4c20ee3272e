//! `run_errand [job]`: runs `bin/run` of a job. Whatever its exit code, the task succeeds; one that was cancelled was ended.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::scripts::Script;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    let name: Option<String> = arguments.take(0)?;
    let job = Spec::read(&agent.base.spec())?.errand(name.as_deref())?;
    let path = agent.base.jobs().join(&job).join("bin/run");
    agent.settle_scripts()?;
    Ok(json!(Script { job, path }.run_errand(&agent.runner())?))
}
