//! `remove_file [path]`: a file or a tree, if it is the agent's to remove; one that is gone is a success.

use std::path::PathBuf;

use serde_json::{Value, json};
use windlass_durable::kill_point;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let path: PathBuf = arguments.take(0)?;
    let removable =
        agent.platform.removable(&path).map_err(|source| ActionError::Platform { doing: "Removing file", source })?;
    if let Some(found) = removable {
        kill_point("before remove");
        let removed = match found.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(&found),
            Ok(_) => std::fs::remove_file(&found),
            // Somebody else removed it just now.
            Err(_) => Ok(()),
        };
        removed.map_err(|source| ActionError::Io { path: found, source })?;
    }
    Ok(json!(path))
}
