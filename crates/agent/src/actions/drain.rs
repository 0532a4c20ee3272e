//! `drain [type, spec...]`: the drain scripts of all jobs say how long their jobs need; the task ends when the last one is done.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::scripts::{self, Script, ScriptError};
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let kind: String = arguments.take(0)?;
    let next: Option<Spec> = arguments.take(1)?;
    let found = scripts::find(&agent.base.jobs(), "drain")?;
    let current = Spec::read(&agent.base.spec())?;
    let arguments = match (kind.as_str(), &next) {
        ("update", None) => return Err(ActionError::DrainWithoutSpec),
        ("status", _) => return Err(ActionError::DrainStatus),
        ("update", Some(next)) => current.drain_arguments(next),
        _ => vec!["job_shutdown".to_owned(), "hash_unchanged".to_owned()],
    };
    agent.settle_scripts()?;
    // A process that ends because it is drained is not started again.
    agent.supervisor.unmonitor()?;
    scripts::run_all("drain", &found, |script| drain(agent, script, &arguments, &current, next.as_ref()))?;
    Ok(0.into())
}

/// A script that prints a negative number wants to be asked again after that many seconds.
fn drain(
    agent: &Agent,
    script: &Script,
    arguments: &[String],
    current: &Spec,
    next: Option<&Spec>,
) -> Result<(), ScriptError> {
    let state = |spec: &Spec| json!({"persistent_disk": spec.persistent_disk()}).to_string();
    let mut env = BTreeMap::from([("BOSH_JOB_STATE".to_owned(), state(current))]);
    if let Some(next) = next {
        env.insert("BOSH_JOB_NEXT_STATE".to_owned(), state(next));
    }
    let mut arguments = arguments.to_vec();
    loop {
        let output = script.run_captured(&arguments, &env, &agent.runner())?;
        let seconds: i32 = output.parse().map_err(|_| ScriptError::NoInteger)?;
        if agent.tasks.pause(Duration::from_secs(seconds.unsigned_abs().into())) {
            return Err(ScriptError::Cancelled);
        }
        if seconds >= 0 {
            return Ok(());
        }
        arguments = vec!["job_check_status".to_owned(), "hash_unchanged".to_owned()];
        env.remove("BOSH_JOB_NEXT_STATE");
    }
}
