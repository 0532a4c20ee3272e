//! `unmount_disk [cid]`: one that is not mounted is a success. Its hint goes with the mount, because the disk may come back in
//! another place: the next `mount_disk` says where it is.

use serde_json::{Value, json};
use windlass_durable::file;

use super::{ActionError, Arguments, remove_persistent_disk};
use crate::agent::Agent;
use crate::disks::{self, DiskError, DiskSettings};

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let cid: String = arguments.take(0)?;
    let unmounted = agent.base.unmounted_disk();
    let was_unmounted = std::fs::read(&unmounted).is_ok_and(|last| last == cid.as_bytes());
    let disk = match disks::find(&agent.base.disk_hints(), &agent.settings.current().agent, &cid) {
        Ok(disk) => disk,
        Err(DiskError::Unknown(_)) if was_unmounted => {
            let disk = DiskSettings { id: cid, ..DiskSettings::default() };
            return Ok(json!({"message": format!("Partition of {disk} is not mounted")}));
        }
        Err(source) => return Err(ActionError::FindingDisk { doing: "Getting persistent disk settings", source }),
    };
    let was_mounted = agent
        .platform
        .unmount_persistent_disk(&disk)
        .map_err(|source| ActionError::Platform { doing: "Unmounting persistent disk", source })?;
    if !was_unmounted {
        file::write(&unmounted, cid.as_bytes(), file::PRIVATE)
            .map_err(|source| ActionError::Io { path: unmounted, source })?;
    }
    remove_persistent_disk::forget(agent, &cid)?;
    let message = match was_mounted {
        true => format!("Unmounted partition of {disk}"),
        false => format!("Partition of {disk} is not mounted"),
    };
    Ok(json!({"message": message}))
}
