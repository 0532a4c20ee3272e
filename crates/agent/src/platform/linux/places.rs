//! Which disk belongs on the store, and which one its data migrates to. Mounts end with the machine's boot; this does not.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use windlass_durable::file;

use crate::disks::DiskSettings;

/// The disks and their places, as the agent put them there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DiskPlaces {
    /// The disk on the store.
    pub(super) store: Option<DiskSettings>,
    /// The disk that takes its place when its data has been copied.
    pub(super) target: Option<DiskSettings>,
    /// All data is on the target, so that nothing but taking the place is left to do.
    pub(super) is_copied: bool,
}

impl DiskPlaces {
    /// A file that is not there, or nobody can read, says nothing: what is mounted can be seen.
    pub(super) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), PlacesError> {
        if Self::read(path) == *self {
            return Ok(());
        }
        file::write_json(path, self, file::PRIVATE).map_err(|source| PlacesError { path: path.to_owned(), source })
    }

    /// The disk that waits for data, if it is this one, and the one whose data it waits for.
    pub(super) fn migrating_to(&self, cid: &str) -> Option<&DiskSettings> {
        let from = self.store.as_ref()?;
        let to = self.target.as_ref()?;
        (to.id == cid && from.id != cid).then_some(from)
    }

    /// Forgets a disk.
    pub(super) fn remove(&mut self, cid: &str) {
        for place in [&mut self.store, &mut self.target] {
            if place.as_ref().is_some_and(|disk| disk.id == cid) {
                *place = None;
                self.is_copied = false;
            }
        }
    }
}

/// where disks belong cannot be kept
#[derive(Debug, thiserror::Error)]
#[error("cannot keep in {path} where disks belong")]
pub(crate) struct PlacesError {
    path: PathBuf,
    #[source]
    source: io::Error,
}
