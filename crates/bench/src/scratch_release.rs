//! A release that is made from sources in this program.

use std::io;
use std::path::{Path, PathBuf};

use windlass_durable::file;
use windlass_release_author::{AuthorError, Create, ReleaseDirectory};

/// why it is not made
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScratchReleaseError {
    #[error("cannot write '{}'", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Author(#[from] AuthorError),
}

/// Lays sources out in `folder`, and makes a tarball of version 1 of them.
pub(crate) fn write(folder: &Path, sources: &[(&str, &str)], tarball: &Path) -> Result<(), ScratchReleaseError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ScratchReleaseError::File { path, source }
    };
    for (name, text) in sources {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        file::write(&path, text.as_bytes(), 0o644).map_err(failed(&path))?;
    }
    // Nothing is left in the home directory.
    let directory = ReleaseDirectory::at(folder)?.with_cache(&folder.join(".cache"));
    let options = Create { version: Some("1".to_owned()), force: true, ..Create::default() };
    Ok(directory.create(&options, &mut |_| {})?.write_tarball(tarball, &[])?)
}
