//! `prepare [spec]`: fetches and installs what the spec needs, and changes nothing that is in use.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::software::WantedSoftware;
use crate::spec::Spec;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let spec: Spec = arguments.take(0)?;
    agent.supervisor.check(&spec)?;
    let wanted = WantedSoftware::of(agent, &spec)?;
    wanted.forget_unused(agent)?;
    wanted.install(agent)?;
    // `apply` would refuse them, but what runs now would be stopped by then.
    wanted.check_monit_files()?;
    Ok("prepared".into())
}
