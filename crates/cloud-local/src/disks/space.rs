//! Whether something fits, asked before it is begun.

use std::path::Path;

use super::error::{DiskError, io_error};

const MIB: u64 = 1024 * 1024;

/// Fails unless the file system of `folder` has `bytes` left for us. The folder may not be there yet.
pub(crate) fn ensure(folder: &Path, bytes: u64) -> Result<(), DiskError> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let space = rustix::fs::statvfs(there).map_err(|error| io_error("ask for the space of", there)(error.into()))?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    if bytes <= available {
        return Ok(());
    }
    Err(DiskError::NoSpace { path: there.to_owned(), needed_mib: bytes.div_ceil(MIB), available_mib: available / MIB })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_fit_is_refused_with_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("not/yet");
        ensure(&absent, 1).unwrap();
        let error = ensure(&absent, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("17592186044416 MiB are needed"), "{error}");
    }
}
