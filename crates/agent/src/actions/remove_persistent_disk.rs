//! `remove_persistent_disk [cid]`: forget where a disk is; one that is unknown is a success.

use serde_json::{Value, json};
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::disks;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let cid: String = arguments.take(0)?;
    forget(agent, &cid)?;
    Ok(json!({}))
}

pub(super) fn forget(agent: &Agent, cid: &str) -> Result<(), ActionError> {
    // The mark of the disk mounted last goes first: without its hint the next boot could not mount it.
    let path = agent.base.mounted_disk();
    if std::fs::read(&path).is_ok_and(|mounted| mounted == cid.as_bytes()) {
        file::remove_file(&path).map_err(|source| ActionError::Io { path, source })?;
    }
    disks::remove_hint(&agent.base.disk_hints(), cid).map_err(ActionError::KeepingDisk)
}
