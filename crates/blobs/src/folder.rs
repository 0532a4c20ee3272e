//! Blobs in a folder of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use windlass_durable::file;

use crate::error::{BlobAction, BlobError};
use crate::store::{Listed, checked};

/// A folder whose files are called as their blobs.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    root: PathBuf,
}

impl Folder {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(crate) fn place(&self) -> String {
        format!("the folder '{}'", self.root.display())
    }

    /// Where a blob is, or would be.
    pub(crate) fn path(&self, id: &str) -> Result<PathBuf, BlobError> {
        let inner = windlass_archive::inside(id.as_bytes()).filter(|inner| !inner.as_os_str().is_empty());
        Ok(self.root.join(inner.ok_or_else(|| BlobError::Id(id.to_owned()))?))
    }

    fn failed(&self, what: BlobAction, id: &str, path: &Path) -> impl Fn(io::Error) -> BlobError + use<> {
        let (id, path) = (id.to_owned(), path.to_owned());
        move |source| BlobError::File { what, id: id.clone(), path: path.clone(), source }
    }

    fn missing(&self, id: &str) -> BlobError {
        BlobError::Missing { id: id.to_owned(), place: self.place() }
    }

    /// Keeps a copy.
    pub(crate) fn put(&self, id: &str, from: &Path) -> Result<(), BlobError> {
        let to = self.path(id)?;
        let failed = self.failed(BlobAction::Keep, id, &to);
        self.make_parent(&to).map_err(&failed)?;
        // An error tells which of the two files it is about.
        fs::File::open(from).map_err(self.failed(BlobAction::Keep, id, from))?;
        file::copy(from, &to).map_err(&failed)
    }

    /// Takes a file of the same file system.
    pub(crate) fn adopt(&self, id: &str, from: &Path) -> Result<(), BlobError> {
        let to = self.path(id)?;
        let kept = self
            .make_parent(&to)
            .and_then(|()| fs::File::open(from)?.sync_all())
            .and_then(|()| file::rename(from, &to));
        match kept {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                self.put(id, from)?;
                file::remove_file(from).map_err(self.failed(BlobAction::Keep, id, from))
            }
            kept => kept.map_err(self.failed(BlobAction::Keep, id, &to)),
        }
    }

    fn make_parent(&self, to: &Path) -> io::Result<()> {
        to.parent().map_or(Ok(()), fs::create_dir_all)
    }

    /// Copies a blob to `into`, if it is what its digest says.
    #[expect(clippy::disallowed_methods, reason = "a temporary file of the caller, who renames it")]
    pub(crate) fn get(&self, id: &str, digest: Option<&str>, into: &Path) -> Result<(), BlobError> {
        let from = self.path(id)?;
        if !from.is_file() {
            return Err(self.missing(id));
        }
        checked(id, digest, into, &self.place(), |temporary| {
            fs::copy(&from, temporary).map(drop).map_err(self.failed(BlobAction::Fetch, id, &from))
        })
    }

    /// The blobs below `drawer`, in no order. What a killed copy left is among them.
    pub(crate) fn list(&self, drawer: &str) -> Result<Vec<Listed>, BlobError> {
        let folder = self.root.join(drawer);
        let failed = self.failed(BlobAction::List, drawer, &folder);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(&failed)?,
        };
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry.map_err(&failed)?;
            let found = match entry.metadata() {
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                found => found.map_err(&failed)?,
            };
            if found.is_file() {
                let modified = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                listed.push(Listed {
                    id: entry.file_name().to_string_lossy().into_owned(),
                    size: found.len(),
                    modified,
                });
            }
        }
        Ok(listed)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), BlobError> {
        let path = self.path(id)?;
        file::remove_file(&path).map_err(self.failed(BlobAction::Remove, id, &path))
    }
}
