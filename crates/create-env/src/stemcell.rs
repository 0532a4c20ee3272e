//! A stemcell, fetched if it is elsewhere, and checked.

use std::path::{Path, PathBuf};

use windlass_contract::stemcell::StemcellManifest;
use windlass_download::{Download, KeptError, Patience};

use crate::manifest::StemcellPlace;

/// why a stemcell cannot be had
#[derive(Debug, thiserror::Error)]
pub enum StemcellError {
    /// it cannot be fetched, or is another one
    #[error(transparent)]
    Fetch(#[from] KeptError),
    /// it is no stemcell
    #[error(transparent)]
    Read(#[from] windlass_stemcell::ReadError),
}

/// A stemcell on this machine.
#[derive(Debug)]
pub struct Stemcell {
    pub tarball: PathBuf,
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

/// Fetches a stemcell from elsewhere. Downloads are kept where BOSH keeps them, and checked each time.
pub async fn fetch(place: &StemcellPlace, downloads: &Path, patience: Patience) -> Result<PathBuf, StemcellError> {
    let digest = place.sha1.as_deref().unwrap_or_default();
    let download = Download::of("stemcell").with_patience(patience).through_bosh_proxy();
    Ok(download.fetch_once(&place.url, digest, downloads).await?)
}
