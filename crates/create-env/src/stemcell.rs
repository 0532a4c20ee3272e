//! A stemcell, fetched if it is elsewhere, and checked.

use std::io;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};
use windlass_contract::stemcell::StemcellManifest;
use windlass_download::{Download, DownloadError};
use windlass_stemcell::digest::{self, DigestError};

use crate::manifest::StemcellPlace;

/// why a stemcell cannot be had
#[derive(Debug, thiserror::Error)]
pub enum StemcellError {
    /// it cannot be fetched
    #[error(transparent)]
    Fetch(#[from] DownloadError),
    /// it is not the one that is meant
    #[error("the stemcell at '{place}' is not the one that the manifest means; it is damaged, or another one")]
    Digest {
        /// Where it is.
        place: String,
        /// Why.
        #[source]
        source: DigestError,
    },
    /// a file cannot be used
    #[error("cannot use '{}'", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// it is no stemcell
    #[error(transparent)]
    Read(#[from] windlass_stemcell::ReadError),
}

/// A stemcell on this machine.
#[derive(Debug)]
pub struct Stemcell {
    /// The tarball.
    pub tarball: PathBuf,
    /// What it is.
    pub manifest: StemcellManifest,
}

/// The path that a URL names, if it is of this machine. Relative ones start at the manifest.
pub fn local_path(url: &str, manifest_folder: &Path) -> Option<PathBuf> {
    let path = match url.strip_prefix("file://") {
        Some(path) => path,
        None if url.starts_with('/') => url,
        None => return None,
    };
    match path.strip_prefix("~/") {
        Some(below) => std::env::home_dir().map(|home| home.join(below)),
        None => Some(manifest_folder.join(path)),
    }
}

/// Reads the manifest of the stemcell at `tarball`.
pub fn read(tarball: PathBuf) -> Result<Stemcell, StemcellError> {
    let manifest = windlass_stemcell::inspect(&tarball, |_, _| {})?.manifest;
    Ok(Stemcell { tarball, manifest })
}

/// Where the original keeps what it fetched.
pub(crate) fn download_path(url: &str, digest: &str, downloads: &Path) -> PathBuf {
    let url_digest: String = Sha1::digest(url.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    downloads.join(format!("{url_digest}-{}", digest.replace('/', "-")))
}

/// Fetches a stemcell from elsewhere. Downloads are kept where the original keeps them, and checked each time.
pub async fn fetch(place: &StemcellPlace, downloads: &Path) -> Result<PathBuf, StemcellError> {
    let digest = place.sha1.clone().unwrap_or_default();
    let path = download_path(&place.url, &digest, downloads);
    if path.exists() && digest::verify(&path, &digest).is_ok() {
        return Ok(path);
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StemcellError::File { path, source }
    };
    std::fs::create_dir_all(downloads).map_err(failed(downloads))?;
    let folder = tempfile::tempdir_in(downloads).map_err(failed(downloads))?;
    let partial = folder.path().join("stemcell");
    Download::of("stemcell").through_bosh_proxy().fetch(&place.url, &partial).await?;
    digest::verify(&partial, &digest).map_err(|source| StemcellError::Digest { place: place.url.clone(), source })?;
    windlass_durable::file::rename(&partial, &path).map_err(failed(&path))?;
    Ok(path)
}
