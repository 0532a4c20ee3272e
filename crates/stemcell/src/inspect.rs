//! What is inside a stemcell.

use std::path::Path;

use windlass_contract::stemcell::StemcellManifest;

use crate::archive::{self, ImageSink};
use crate::digest::Digests;
use crate::meter::Meter;
use crate::tarball::Limits;
use crate::{DigestCheck, ReadError};

/// What is inside a stemcell.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    pub manifest: StemcellManifest,
    /// Bytes of the tarball.
    pub size: u64,
    /// Bytes of the image; none for a light stemcell, which only names an image of the cloud.
    pub image_size: u64,
    /// Whether the image is the one that the manifest describes.
    pub digest: DigestCheck,
}

/// Reads the stemcell at `path` without unpacking it. `progress` hears how many bytes were read, and of how many.
pub fn inspect(path: &Path, mut progress: impl FnMut(u64, Option<u64>)) -> Result<Inspection, ReadError> {
    let mut image = Measured { size: 0, digests: Digests::default() };
    let size = std::fs::metadata(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?.len();
    let meter = Meter::new(&mut progress);
    meter.expect(size);
    let (manifest, _) = archive::read(path, Limits::default(), &meter, &mut image)?;
    let digest = image.digests.check(&manifest.sha1);
    Ok(Inspection { manifest, size, image_size: image.size, digest })
}

struct Measured {
    size: u64,
    digests: Digests,
}

impl ImageSink for Measured {
    fn take(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        self.size += bytes.len() as u64;
        self.digests.update(bytes);
        Ok(())
    }
}
