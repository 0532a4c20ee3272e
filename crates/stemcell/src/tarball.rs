//! Tar files, as those who work on stemcells open them.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

pub(crate) use windlass_archive::{Budget, GZIP, Limits, Space, TarEntry, Tarball, first_bytes, inside};

use crate::meter::Meter;

/// Opens a tar that is compressed with gzip or not at all, by its first bytes.
pub(crate) fn open<'m>(path: &Path, meter: &'m Meter<'_>) -> io::Result<Box<dyn Read + 'm>> {
    let mut file = File::open(path)?;
    let start = first_bytes(&mut file)?;
    Ok(windlass_archive::decompressed(&start, BufReader::with_capacity(64 * 1024, meter.read(file))))
}
