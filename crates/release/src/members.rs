//! What an archive of a release may have. Strangers make them, and two readers of one archive must never see different files in it.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

use windlass_archive::{TarEntry, inside};

use crate::error::ReleaseError;

/// The members of one archive.
#[derive(Debug)]
pub(crate) struct Members {
    archive: String,
    seen: BTreeSet<PathBuf>,
}

impl Members {
    pub(crate) fn of(archive: &str) -> Self {
        Self { archive: archive.to_owned(), seen: BTreeSet::new() }
    }

    fn refused<R: Read>(&self, entry: &TarEntry<'_, R>, why: &'static str) -> ReleaseError {
        let file = String::from_utf8_lossy(&entry.path_bytes()).chars().take(200).collect();
        ReleaseError::Member { archive: self.archive.clone(), file, why }
    }

    /// Where a member belongs. One that leads elsewhere is refused, and one that is neither file, folder nor link.
    pub(crate) fn place<R: Read>(&self, entry: &TarEntry<'_, R>) -> Result<PathBuf, ReleaseError> {
        let kind = entry.header().entry_type();
        let is_device = kind.is_block_special() || kind.is_character_special() || kind.is_fifo();
        match inside(&entry.path_bytes()) {
            None => Err(self.refused(entry, "leads out of it")),
            Some(_) if is_device => Err(self.refused(entry, "is a device or a pipe")),
            Some(path) => Ok(path),
        }
    }

    /// Where a file belongs; nothing for folders and links. One that is there already is refused.
    pub(crate) fn file<R: Read>(&mut self, entry: &TarEntry<'_, R>) -> Result<Option<PathBuf>, ReleaseError> {
        let path = self.place(entry)?;
        if !entry.header().entry_type().is_file() {
            return Ok(None);
        }
        match self.seen.insert(path.clone()) {
            true => Ok(Some(path)),
            false => Err(self.refused(entry, "is there twice")),
        }
    }
}
