//! Keeps two from working on one disk: also the agent that comes after a killed one, while the tool that the killed one
//! started still writes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::{Errno, FdFlags};

/// As long as a tool may take.
const PATIENCE: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_millis(20);

/// why a disk cannot be worked on
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskLockError {
    #[error("another process has worked on {0} for more than {PATIENCE:?}; end it first")]
    Held(PathBuf),
    /// it cannot be opened
    #[error("cannot open the disk {path}")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The right to work on a disk, held as long as this lives, and as long as any tool lives that was started meanwhile: tools
/// inherit it. It is the lock that udev respects.
#[derive(Debug)]
pub(super) struct DiskLock(#[expect(dead_code, reason = "the lock lives as long as the file is open")] File);

impl DiskLock {
    pub(super) fn acquire(device: &Path) -> Result<Self, DiskLockError> {
        let failed = |source| DiskLockError::Open { path: device.to_owned(), source };
        let file = File::open(device).map_err(failed)?;
        rustix::io::fcntl_setfd(&file, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(RETRY),
                Err(Errno::WOULDBLOCK) => return Err(DiskLockError::Held(device.to_owned())),
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_tool_that_outlives_the_agent_keeps_the_next_one_out() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        let lock = DiskLock::acquire(disk.path()).unwrap();
        let mut tool = Command::new("sleep").arg("1000").spawn().unwrap();
        drop(lock);
        let file = File::open(disk.path()).unwrap();
        let is_free = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let was_free = is_free();
        tool.kill().unwrap();
        tool.wait().unwrap();
        assert!(!was_free);
        // Another test's child may have inherited it, too, for a moment.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_free() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(RETRY);
        }
    }
}
