//! Downloads that are kept, where BOSH's command line keeps its own: each by the digests of its URL and of its content.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use windlass_archive::digest::{Digest, Mismatch, NoDigest};
use windlass_durable::file;

use crate::{Download, DownloadError, shown};

/// why a file is not here
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// it cannot be fetched
    #[error(transparent)]
    Fetch(#[from] DownloadError),
    /// nobody can say whether it is the right one
    #[error("the digest of '{url}' cannot be used")]
    NoDigest {
        url: String,
        #[source]
        source: NoDigest,
    },
    /// it is another one
    #[error(
        "what is at '{url}' is not the {what} that the digest belongs to; it is damaged, or another one: look at url and sha1"
    )]
    Differs {
        what: &'static str,
        url: String,
        #[source]
        source: Mismatch,
    },
    /// a file cannot be used
    #[error("cannot use '{}'", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Where a download is kept.
pub fn kept_path(url: &str, digest: &str, folder: &Path) -> PathBuf {
    // Reading from memory cannot fail.
    let of_url = windlass_archive::digest::sha1(&mut url.as_bytes()).unwrap_or_default();
    folder.join(format!("{of_url}-{}", digest.replace('/', "-")))
}

impl Download {
    /// Whether a file of this machine is the one that is meant.
    pub fn check(&self, path: &Path, digest: &str) -> Result<(), KeptError> {
        let url = path.display().to_string();
        let expected = Digest::parse(digest).map_err(|source| KeptError::NoDigest { url: url.clone(), source })?;
        let mut file = File::open(path).map_err(|source| KeptError::File { path: path.to_owned(), source })?;
        expected.verify(&mut file).map_err(|source| KeptError::Differs { what: self.what, url, source })
    }

    /// The file at `url`, fetched unless it is kept already. What is kept is checked each time.
    pub async fn fetch_once(&self, url: &str, digest: &str, folder: &Path) -> Result<PathBuf, KeptError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| KeptError::File { path, source }
        };
        let expected = Digest::parse(digest).map_err(|source| KeptError::NoDigest { url: shown(url), source })?;
        let path = kept_path(url, digest, folder);
        let is_it = |path: &Path| File::open(path).map(|mut file| expected.verify(&mut file));
        if matches!(is_it(&path), Ok(Ok(()))) {
            return Ok(path);
        }
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let partial = file::beside(&path).map_err(failed(&path))?;
        self.fetch(url, &partial).await?;
        let checked = is_it(&partial).map_err(failed(&partial))?;
        if let Err(source) = checked {
            file::discard(&partial);
            return Err(KeptError::Differs { what: self.what, url: shown(url), source });
        }
        file::rename(&partial, &path).map_err(failed(&path))?;
        Ok(path)
    }
}
