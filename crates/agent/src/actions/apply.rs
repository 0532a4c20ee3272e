//! `apply [spec]`: who the instance is, and its networks.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let mut spec: Spec = arguments.take(0)?;
    spec.resolve_networks(&agent.settings.current().agent.networks, agent.platform.default_network().as_ref())?;
    if spec.changes_jobs() {
        spec.refuse_jobs()?;
    }
    spec.write(&agent.base.spec(), &agent.base.instance())?;
    Ok("applied".into())
}
