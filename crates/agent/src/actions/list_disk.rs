//! `list_disk`: the cids of the mounted disks.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::disks;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    const DOING: &str = "Determining whether the persistent disk is mounted";
    let settings = agent.settings.reload()?;
    let known = disks::known(&agent.base.disk_hints(), &settings.agent)
        .map_err(|source| ActionError::FindingDisk { doing: DOING, source })?;
    let mut mounted = Vec::new();
    for (cid, disk) in known {
        let is_mounted = agent.platform.is_persistent_disk_mounted(&disk);
        if is_mounted.map_err(|source| ActionError::Platform { doing: DOING, source })? {
            mounted.push(Value::String(cid));
        }
    }
    Ok(Value::Array(mounted))
}
