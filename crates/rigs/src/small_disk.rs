//! A small file system on a folder, for tests that fill it. It needs mounts of the test's own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Goes when it is dropped, so that the folder can be removed. It is declared after whatever removes the folder.
#[derive(Debug)]
#[must_use = "it goes when it is dropped"]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// With options of tmpfs, such as `size=48m`.
    pub fn on(folder: &Path, options: &str) -> Self {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder).status();
        assert!(mounted.unwrap().success());
        Self(folder.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Also while a process uses it. Of a test that failed there may be one.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
