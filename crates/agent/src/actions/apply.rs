//! `apply [spec]`: who the instance is, its networks, and its jobs and packages. Without a configuration hash the jobs stay as they are.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::bpm;
use crate::software::WantedSoftware;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let mut spec: Spec = arguments.take(0)?;
    spec.resolve_networks(&agent.settings.current().agent.networks, agent.platform.default_network().as_ref())?;
    if spec.changes_jobs() {
        agent.supervisor.check(&spec)?;
        let wanted = WantedSoftware::of(agent, &spec)?;
        wanted.install(agent)?;
        wanted.check_monit_files()?;
        agent.supervisor.forget()?;
        wanted.enable(agent)?;
        let bosh = agent.settings.current().agent.env.bosh.other.clone();
        if bosh.get("bpm_stand_in").and_then(Value::as_bool).unwrap_or_default() {
            let path = agent.base.jobs().join("bpm");
            bpm::install(&agent.base).map_err(|source| ActionError::Io { path, source })?;
        }
        let doing = "Setting up the rotation of logs";
        agent.platform.rotate_logs(spec.log_size()).map_err(|source| ActionError::Platform { doing, source })?;
    }
    spec.write(&agent.base.spec(), &agent.base.instance())?;
    Ok("applied".into())
}
