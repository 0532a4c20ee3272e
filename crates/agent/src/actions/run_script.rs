//! `run_script [name, options]`: the scripts with this name of all jobs, at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::scripts;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ScriptOptions {
    env: Option<BTreeMap<String, String>>,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(2)?;
    let name: String = arguments.take(0)?;
    let options: Option<ScriptOptions> = arguments.take(1)?;
    let env = options.and_then(|options| options.env).unwrap_or_default();
    let found = scripts::find(&agent.base.jobs(), &name)?;
    agent.settle_scripts()?;
    let (logs, runner) = (agent.base.job_logs(), agent.runner());
    scripts::run_all(&name, &found, |script| script.run_logged(&name, &logs, &env, &runner))?;
    Ok(json!({}))
}
