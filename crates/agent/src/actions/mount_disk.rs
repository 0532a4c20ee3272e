//! `mount_disk [cid]`, or `[cid, hint]` from callers that do not announce disks first.

use serde_json::{Value, json};
use windlass_durable::file;

use super::{ActionError, Arguments, add_persistent_disk};
use crate::agent::Agent;
use crate::disks;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let cid: String = arguments.take(0)?;
    let hint: Value = arguments.take(1)?;
    let settings = match hint {
        hint if hint.is_null() || !agent.takes_hints => agent.settings.reload()?,
        hint => {
            add_persistent_disk::remember(agent, &cid, hint)?;
            agent.settings.current()
        }
    };
    let disk = disks::find(&agent.base.disk_hints(), &settings.agent, &cid)
        .map_err(|source| ActionError::FindingDisk { doing: "Reading persistent disk settings", source })?;
    agent
        .platform
        .mount_persistent_disk(&disk)
        .map_err(|source| ActionError::Platform { doing: "Mounting persistent disk", source })?;
    let path = agent.base.mounted_disk();
    if !std::fs::read(&path).is_ok_and(|mounted| mounted == cid.as_bytes()) {
        file::write(&path, cid.as_bytes(), file::PRIVATE).map_err(|source| ActionError::Io { path, source })?;
    }
    Ok(json!({}))
}
