//! `remove_file [path]`: a file or a tree, if it is the agent's to remove; one that is gone is a success.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let path: PathBuf = arguments.take(0)?;
    let removable =
        agent.platform.removable(&path).map_err(|source| ActionError::Platform { doing: "Removing file", source })?;
    if let Some(found) = removable {
        file::remove(&found).map_err(|source| ActionError::Io { path: found, source })?;
    }
    Ok(json!(path))
}
