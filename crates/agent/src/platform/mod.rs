//! What depends on the machine.
//!
//! - [`directory`]: a disk is a directory, the machine belongs to somebody else, nothing outside the base directory changes.

mod directory;

use std::io;
use std::path::PathBuf;

use crate::disks::DiskSettings;
use crate::layout::Base;

/// What the agent can do to its machine.
pub(crate) trait Platform: Send + Sync + std::fmt::Debug {
    /// Mounts a disk on the store, or, if another one is mounted there, where data migrates to. Mounting twice changes nothing.
    fn mount_persistent_disk(&self, disk: &DiskSettings) -> Result<(), PlatformError>;

    /// Unmounts a disk; says whether it was mounted.
    fn unmount_persistent_disk(&self, disk: &DiskSettings) -> Result<bool, PlatformError>;

    /// Whether a disk is mounted.
    fn is_persistent_disk_mounted(&self, disk: &DiskSettings) -> Result<bool, PlatformError>;

    /// Gives a disk the name by which jobs find it.
    fn associate_disk(&self, name: &str, disk: &DiskSettings) -> Result<(), PlatformError>;

    /// The file systems whose use is told, by the names they have in vitals.
    fn file_systems(&self) -> Vec<(&'static str, PathBuf)>;
}

/// why the machine did not do it
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlatformError {
    /// the hint has no path
    #[error("the hint of disk '{cid}' has no path; on this platform a disk is a directory, and its hint says which")]
    NoPath { cid: String },
    /// the hint's path does not lead to a directory
    #[error("the directory {path} of disk '{cid}' is not there; check that the disk is attached to this VM")]
    NoDirectory { cid: String, path: PathBuf },
    /// both places for disks are taken
    #[error("disk '{cid}' cannot be mounted: {store} and {target} both hold other disks; unmount one of them first")]
    Occupied { cid: String, store: PathBuf, target: PathBuf },
    /// a name that cannot be a file's
    #[error("'{0}' cannot name a disk, because it cannot name a file")]
    Name(String),
    /// a file operation failed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// there is no such platform
#[derive(Debug, thiserror::Error)]
#[error("Platform {0} could not be found; this agent knows 'directory'")]
pub(crate) struct UnknownPlatform(String);

/// The platform with this name.
pub(crate) fn find(name: &str, base: &Base) -> Result<Box<dyn Platform>, UnknownPlatform> {
    match name {
        "directory" => Ok(Box::new(directory::Directory::new(base.clone()))),
        other => Err(UnknownPlatform(other.to_owned())),
    }
}
