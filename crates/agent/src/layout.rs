//! Where things are under the base directory.

use std::io;
use std::path::{Path, PathBuf};

use windlass_durable::file;

/// The base directory, `/var/vcap` in a VM of its own.
#[derive(Debug, Clone)]
pub(crate) struct Base(PathBuf);

impl Base {
    /// The base directory, made absolute because links point into it, with the folders that the agent needs.
    pub(crate) fn prepare(path: &Path) -> io::Result<Self> {
        let base = Self(std::path::absolute(path)?);
        for folder in [base.bosh(), base.blobs(), base.0.join("monit"), base.instance().join("disks")] {
            file::create_private_dir(&folder)?;
        }
        Ok(base)
    }

    fn bosh(&self) -> PathBuf {
        self.0.join("bosh")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.bosh().join("agent.lock")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.bosh().join("settings.json")
    }

    pub(crate) fn update_settings(&self) -> PathBuf {
        self.bosh().join("update_settings.json")
    }

    pub(crate) fn disk_hints(&self) -> PathBuf {
        self.bosh().join("persistent_disk_hints.json")
    }

    /// Despite the name that the original gave it, the bare cid of the disk mounted last.
    pub(crate) fn mounted_disk(&self) -> PathBuf {
        self.bosh().join("managed_disk_settings.json")
    }

    pub(crate) fn spec(&self) -> PathBuf {
        self.bosh().join("spec.json")
    }

    pub(crate) fn tasks(&self) -> PathBuf {
        self.bosh().join("tasks.json")
    }

    /// Exists while the jobs are stopped.
    pub(crate) fn stopped(&self) -> PathBuf {
        self.0.join("monit/stopped")
    }

    pub(crate) fn instance(&self) -> PathBuf {
        self.0.join("instance")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(crate) fn blobs(&self) -> PathBuf {
        self.0.join("data/blobs")
    }

    /// Where the persistent disk is mounted.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// Where the next persistent disk is mounted until the data has moved to it.
    pub(crate) fn migration_target(&self) -> PathBuf {
        self.0.join("store_migration_target")
    }
}
