//! One change of a resource at a time, whatever process makes it.
//!
//! A method that changes a VM, disk, stemcell, snapshot or network has it locked against all other CPI processes with the
//! same memory; questions (`has_vm`, `get_disks`) lock nothing. Locks are taken in one order (VM before disk), and end with
//! their process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use windlass_contract::cpi::CpiError;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::digest::digest;

/// How long a change waits for others of the same resource.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// The locks of one call.
#[derive(Debug, Default)]
pub(crate) struct Locked {
    held: Vec<(PathBuf, FileLock)>,
}

/// Locks what the call changes.
pub(crate) fn lock(memory: Option<&Path>, method: &str, arguments: &[Value]) -> Result<Locked, CpiError> {
    let mut locked = Locked::default();
    let Some(memory) = memory else { return Ok(locked) };
    for (kind, cid) in kinds(method).iter().zip(arguments.iter().filter_map(Value::as_str)) {
        let folder = memory.join("locks");
        let path = folder.join(digest(&[kind, cid]));
        let lock = file::create_private_dir(&folder)
            .and_then(|()| FileLock::acquire(&path, PATIENCE))
            .map_err(|error| CpiError::cloud(format!("cannot lock the {kind} '{cid}': {error}")))?;
        locked.held.push((path, lock));
    }
    Ok(locked)
}

/// What the first arguments of a method name, if it changes them.
fn kinds(method: &str) -> &'static [&'static str] {
    match method {
        "delete_stemcell" => &["stemcell"],
        "delete_vm" | "reboot_vm" | "set_vm_metadata" | "configure_networks" => &["VM"],
        "attach_disk" | "detach_disk" => &["VM", "disk"],
        "delete_disk" | "resize_disk" | "update_disk" | "set_disk_metadata" | "snapshot_disk" => &["disk"],
        "delete_snapshot" => &["snapshot"],
        "delete_network" => &["network"],
        _ => &[],
    }
}

/// The files go, so that cids of the past leave none; who waits for one of them notices.
impl Drop for Locked {
    fn drop(&mut self) {
        for (path, _held) in self.held.drain(..).rev() {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_of_one_resource_wait_for_each_other_and_leave_no_files() {
        let memory = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(memory.path().join("locks")).map_or(0, Iterator::count);
        let attach = lock(Some(memory.path()), "attach_disk", &[json!("vm-1"), json!("disk-1")]).unwrap();
        assert_eq!(files(), 2);
        let path = memory.path().join("locks").join(digest(&["disk", "disk-1"]));
        assert!(FileLock::is_held(&path).unwrap(), "deleting the disk must wait");
        drop(lock(Some(memory.path()), "delete_disk", &[json!("disk-2")]).unwrap());
        drop(lock(Some(memory.path()), "has_vm", &[json!("vm-1")]).unwrap());
        drop(attach);
        assert_eq!(files(), 0);
    }
}
