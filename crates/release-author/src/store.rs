//! Where final archives and blobs are kept for everybody who works on a release.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;
use windlass_durable::file;
use windlass_manifest::Object;

use crate::error::AuthorError;
use crate::verify;

/// A store of blobs, each with an id of its own.
#[derive(Debug)]
pub(crate) enum Store {
    /// A folder.
    Local(PathBuf),
    /// None is configured: whoever needs one is told why.
    Missing { config: PathBuf, why: String },
}

impl Store {
    /// The store of a provider with its options; otherwise why there is none.
    pub(crate) fn open(provider: &str, options: &Object, release: &Path) -> Result<Self, String> {
        match provider {
            "local" => {
                let path = options.get("blobstore_path").and_then(|path| path.as_str());
                let path = path.ok_or("is 'local', and needs 'blobstore_path' among its options")?;
                Ok(Self::Local(release.join(path)))
            }
            other => Err(format!("is '{other}'; there is 'local'")),
        }
    }

    /// Refused before anything is done that needs one.
    pub(crate) fn must_exist(&self) -> Result<(), AuthorError> {
        self.folder().map(|_| ())
    }

    fn folder(&self) -> Result<&Path, AuthorError> {
        match self {
            Self::Local(folder) => Ok(folder),
            Self::Missing { config, why } => Err(AuthorError::NoStore { path: config.clone(), why: why.clone() }),
        }
    }

    /// Keeps a file; its id.
    pub(crate) fn put(&self, from: &Path) -> Result<String, AuthorError> {
        let id = Uuid::new_v4().to_string();
        let folder = self.folder()?;
        let done = fs::create_dir_all(folder).and_then(|()| keep(from, &folder.join(&id)));
        done.map_err(|source| AuthorError::Store { what: "keep", blob: id.clone(), source })?;
        Ok(id)
    }

    /// Fetches a blob to `into`, if it is what its digest says.
    pub(crate) fn get(&self, id: &str, digest: &str, into: &Path) -> Result<(), AuthorError> {
        let failed = |source| AuthorError::Store { what: "fetch", blob: id.to_owned(), source };
        let folder = self.folder()?;
        let from = windlass_archive::inside(id.as_bytes()).map(|id| folder.join(id));
        let from = from.ok_or_else(|| failed(io::Error::other("its id leads elsewhere")))?;
        let temporary = file::beside(into).map_err(failed)?;
        let fetched = fs::copy(from, &temporary)
            .map_err(failed)
            .and_then(|_| verify(&temporary, id, digest))
            .and_then(|()| fs::File::open(&temporary).and_then(|file| file.sync_all()).map_err(failed))
            .and_then(|()| file::rename(&temporary, into).map_err(failed));
        if fetched.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        fetched
    }
}

/// Copies a file to where it is to last.
pub(crate) fn keep(from: &Path, to: &Path) -> io::Result<()> {
    let temporary = file::beside(to)?;
    let kept = fs::copy(from, &temporary)
        .and_then(|_| fs::File::open(&temporary)?.sync_all())
        .and_then(|()| file::rename(&temporary, to));
    if kept.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    kept
}
