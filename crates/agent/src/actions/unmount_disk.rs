//! `unmount_disk [cid]`: one that is not mounted is a success.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::disks;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let cid: String = arguments.take(0)?;
    let disk = disks::find(&agent.base.disk_hints(), &agent.settings.current().agent, &cid)
        .map_err(|source| ActionError::FindingDisk { doing: "Getting persistent disk settings", source })?;
    let was_mounted = agent
        .platform
        .unmount_persistent_disk(&disk)
        .map_err(|source| ActionError::Platform { doing: "Unmounting persistent disk", source })?;
    let message = match was_mounted {
        true => format!("Unmounted partition of {disk}"),
        false => format!("Partition of {disk} is not mounted"),
    };
    Ok(json!({"message": message}))
}
