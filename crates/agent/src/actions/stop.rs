//! `stop`: the jobs are stopped until the next `start`, also after a reboot.

use serde_json::Value;
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    let path = agent.base.stopped();
    file::write(&path, b"", file::PRIVATE).map_err(|source| ActionError::Io { path, source })?;
    Ok("stopped".into())
}
