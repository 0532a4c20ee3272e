//! A CD-ROM: a file on the disc that the cloud puts into the VM's drive.
//!
//! The disc is neither mounted nor ejected: the drive is open only while it is read, so the cloud can change the disc at any
//! other time, and settings that are loaded again are those of the disc in it.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windlass_contract::explain;

use super::drive::{self, DriveError};

/// Where a CD-ROM is.
pub(crate) const DRIVE: &str = "/dev/sr0";
/// How long a drive may take to find its disc.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before it is asked again.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CdRom {
    pub(crate) device_path: PathBuf,
    /// The file with the settings.
    pub(crate) file_name: String,
}

impl CdRom {
    pub(super) fn origin(&self) -> String {
        format!("{} on {}", self.file_name, self.device_path.display())
    }

    pub(super) fn settings(&self) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match drive::read_file(&self.device_path, &self.file_name) {
                Err(DriveError::Drive { source, .. }) if is_coming(&source) && Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                }
                read => return read.map_err(|error| explain(&error)),
            }
        }
    }
}

/// Whether a drive has not found its disc yet.
fn is_coming(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [rustix::io::Errno::NOMEDIUM, rustix::io::Errno::NXIO, rustix::io::Errno::BUSY]
        .into_iter()
        .any(|waiting| code == Some(waiting.raw_os_error()))
}
