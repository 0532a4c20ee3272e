//! One change of a resource at a time, whatever process makes it.
//!
//! A method that changes a VM, disk, stemcell, snapshot or network has it locked against all other CPI processes with the
//! same memory, as it declares ([`Declaration::locks`]); questions (`has_vm`, `get_disks`) lock nothing. Locks are taken in one order (VM before disk), and end with
//! their process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use windlass_contract::cpi::{CpiError, Declaration};
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

/// Locks what the call of a method changes.
pub(crate) fn lock(memory: Option<&Path>, method: Declaration, arguments: &[Value]) -> Result<Locked, CpiError> {
    let mut locked = Locked::default();
    let Some(memory) = memory else { return Ok(locked) };
    for (position, resource) in method.locks {
        let Some(cid) = arguments.get(*position).and_then(Value::as_str) else { continue };
        let kind = resource.as_str();
        let folder = memory.join("locks");
        let path = folder.join(digest(&[kind, cid]));
        let lock = file::create_private_dir(&folder)
            .and_then(|()| FileLock::acquire(&path, PATIENCE))
            .map_err(|error| CpiError::cloud(format!("cannot lock the {kind} '{cid}': {error}")))?;
        locked.held.push((path, lock));
    }
    Ok(locked)
}

/// Lock files are removed on release, so that deleted resources leave none behind. A waiter looks again whether its file
/// still exists.
impl Drop for Locked {
    fn drop(&mut self) {
        for (path, _held) in self.held.drain(..).rev() {
            file::discard(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use windlass_contract::cpi::Method;
    use windlass_contract::cpi::methods::{AttachDisk, DeleteDisk, HasVm};

    use super::*;

    #[test]
    fn changes_of_one_resource_wait_for_each_other_and_leave_no_files() {
        let memory = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(memory.path().join("locks")).map_or(0, Iterator::count);
        let attach = lock(Some(memory.path()), AttachDisk::DECLARATION, &[json!("vm-1"), json!("disk-1")]).unwrap();
        assert_eq!(files(), 2);
        let path = memory.path().join("locks").join(digest(&["disk", "disk-1"]));
        assert!(FileLock::is_held(&path).unwrap(), "deleting the disk must wait");
        drop(lock(Some(memory.path()), DeleteDisk::DECLARATION, &[json!("disk-2")]).unwrap());
        drop(lock(Some(memory.path()), HasVm::DECLARATION, &[json!("vm-1")]).unwrap());
        drop(attach);
        assert_eq!(files(), 0);
    }
}
