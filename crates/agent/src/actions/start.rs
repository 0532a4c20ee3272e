//! `start`: the jobs are no longer stopped.

use serde_json::Value;
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    let path = agent.base.stopped();
    file::remove_file(&path).map_err(|source| ActionError::Io { path, source })?;
    Ok("started".into())
}
