//! `~/.bosh/cache`: archives of all releases that somebody works on, by their digest. Both command lines use it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use windlass_durable::file;

use crate::error::AuthorError;
use crate::verify;

/// What was not finished within a day never will be.
const OLD: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    pub(crate) fn of_user() -> Result<Self, AuthorError> {
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).ok_or(AuthorError::NoHome)?;
        Self::at(&home.join(".bosh/cache"))
    }

    pub(crate) fn at(folder: &Path) -> Result<Self, AuthorError> {
        let failed = |error| AuthorError::Write(folder.to_owned(), error);
        fs::create_dir_all(folder).map_err(failed)?;
        let cache = Self { folder: folder.to_owned() };
        cache.remove_leftovers().map_err(failed)?;
        Ok(cache)
    }

    /// Of commands that were killed.
    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_old = || Some(SystemTime::now().duration_since(entry.metadata().ok()?.modified().ok()?).ok()? > OLD);
            if file::is_leftover(&entry.file_name()) && is_old() == Some(true) {
                file::discard(&entry.path());
            }
        }
        Ok(())
    }

    /// Where the archive of a digest is, or would be.
    pub(crate) fn path(&self, digest: &str) -> Result<PathBuf, AuthorError> {
        let is_name = |name: &Path| name.components().count() == 1 && !digest.starts_with('.');
        let name = windlass_archive::inside(digest.as_bytes()).filter(|name| is_name(name));
        Ok(self.folder.join(name.ok_or_else(|| AuthorError::BlobPath(digest.to_owned()))?))
    }

    /// The archive of a digest, if it is there and whole.
    pub(crate) fn find(&self, digest: &str) -> Result<Option<PathBuf>, AuthorError> {
        let path = self.path(digest)?;
        Ok((path.is_file() && verify(&path, digest, digest).is_ok()).then_some(path))
    }

    /// A name for an archive that is being made.
    pub(crate) fn temporary(&self) -> Result<PathBuf, AuthorError> {
        let path = self.folder.join("archive");
        file::beside(&path).map_err(|error| AuthorError::Write(path, error))
    }

    /// Takes an archive that was made here.
    pub(crate) fn adopt(&self, temporary: &Path, digest: &str) -> Result<PathBuf, AuthorError> {
        let path = self.path(digest)?;
        file::rename(temporary, &path).map_err(|error| AuthorError::Write(path.clone(), error))?;
        Ok(path)
    }

    /// Keeps a copy of an archive from elsewhere.
    pub(crate) fn copy(&self, from: &Path, digest: &str) -> Result<PathBuf, AuthorError> {
        if let Some(path) = self.find(digest)? {
            return Ok(path);
        }
        let path = self.path(digest)?;
        file::copy(from, &path).map_err(|error| AuthorError::Write(path.clone(), error))?;
        Ok(path)
    }
}
