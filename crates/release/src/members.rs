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
    links: BTreeSet<PathBuf>,
    /// What the names of links take.
    of_links: usize,
}

/// Links are remembered while an archive is read; trees of source code have a few thousand.
const LARGEST_LINKS: usize = 8 << 20;

impl Members {
    pub(crate) fn of(archive: &str) -> Self {
        Self { archive: archive.to_owned(), seen: BTreeSet::new(), links: BTreeSet::new(), of_links: 0 }
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

    /// Whether unpacking a member writes inside of the archive's folder and nowhere else. A symlink may lead anywhere, as those of
    /// packages do; what would be written through one may not.
    pub(crate) fn unpackable<R: Read>(&mut self, entry: &TarEntry<'_, R>) -> Result<(), ReleaseError> {
        let path = self.place(entry)?;
        if path.ancestors().skip(1).any(|folder| self.links.contains(folder)) {
            return Err(self.refused(entry, "would be written through a link"));
        }
        let kind = entry.header().entry_type();
        if kind.is_hard_link() && entry.link_name_bytes().is_none_or(|target| inside(&target).is_none()) {
            return Err(self.refused(entry, "is a link that leads out of it"));
        }
        if kind.is_symlink() {
            self.of_links += path.as_os_str().len();
            if self.of_links > LARGEST_LINKS {
                return Err(self.refused(entry, "is a link too many"));
            }
            self.links.insert(path);
        }
        Ok(())
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
