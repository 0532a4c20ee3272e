//! What can go wrong with a disk, and what the caller is told.

use std::io;
use std::path::{Path, PathBuf};

use windlass_contract::cpi::{CpiError, ErrorType};
use windlass_cpi::resources::StateError;

use super::tool::ToolError;

/// why a disk could not be made, changed, attached or released
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// the operating system refused
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// a program that is needed did not do its work
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// there is not enough space
    #[error("{} has {available_mib} MiB left, and {needed_mib} MiB are needed; free some space", path.display())]
    NoSpace { path: PathBuf, needed_mib: u64, available_mib: u64 },
    /// what was mounted for the VM does not appear in it
    #[error("the VM does not see the disk at {}; reboot it", point.display())]
    Unseen { point: PathBuf },
    /// the file system of a disk cannot be unmounted
    #[error("the disk is in use at {}: {holders}; end that and repeat the call", point.display())]
    Busy { point: PathBuf, holders: String },
    /// something is mounted over or inside the disk
    #[error("the disk at {} is covered by another file system at {}; unmount that and repeat the call",
        point.display(), covered_by.display())]
    Covered { point: PathBuf, covered_by: PathBuf },
    /// it is mounted where nobody can unmount it
    #[error("the disk stays mounted in a mount namespace of its own: {holders}; end that and repeat the call")]
    Kept { holders: String },
    /// a process of the VM has so many mounts that they are not read
    #[error("whether {process} has the disk mounted cannot be told; end that, or the VM, and repeat the call")]
    TooManyMounts {
        process: String,
        #[source]
        source: io::Error,
    },
    /// the kernel still uses the image
    #[error("{} still holds the disk's image {}: {holders}; end that and repeat the call", device.display(), image.display())]
    Held { device: PathBuf, image: PathBuf, holders: String },
    /// a disk that is in use can grow only with this right
    #[error(
        "a disk in use grows only where the kernel grants CAP_SYS_RESOURCE, and here it does not; detach the disk first"
    )]
    CannotGrowInUse,
}

/// For `map_err`: the thing, and what was tried on it.
pub(super) fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DiskError + 'a {
    move |source| DiskError::Io { doing, path: path.to_owned(), source }
}

impl From<DiskError> for CpiError {
    fn from(error: DiskError) -> Self {
        let is_full = matches!(&error, DiskError::NoSpace { .. })
            || matches!(&error, DiskError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull);
        let kind = match &error {
            _ if is_full => ErrorType::NoDiskSpace,
            DiskError::Tool(ToolError::Missing { .. }) => ErrorType::CpiError,
            _ => ErrorType::CloudError,
        };
        let message = match std::error::Error::source(&error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        CpiError::new(kind, message)
    }
}

/// A record that could not be written is told like a file that could not.
impl From<StateError> for DiskError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Io { doing, path, source } => Self::Io { doing, path, source },
            StateError::NotARecord { path, source } => Self::Io { doing: "read", path, source: source.into() },
        }
    }
}
