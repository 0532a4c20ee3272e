//! A stemcell as two files in a folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use windlass_contract::stemcell::StemcellManifest;

use crate::ReadError;
use crate::archive::{self, IMAGE, ImageSink, MANIFEST};
use crate::meter::Meter;
use crate::tarball::{Limits, Space};

/// Writes `stemcell.MF` and `image` of the stemcell at `path` into the folder `into`, which must exist and have neither.
/// After an error the folder may hold a part of the image; it is the caller's to remove.
pub fn unpack(path: &Path, into: &Path) -> Result<StemcellManifest, ReadError> {
    let limits = Limits::of_space(into).map_err(|source| failed(into, source))?;
    let mut image = NewFile::create(into, IMAGE)?;
    let (manifest, text) = archive::read(path, limits, &Meter::new(&mut |_, _| {}), &mut image)?;
    NewFile::create(into, MANIFEST)?.take(text.as_bytes())?;
    Ok(manifest)
}

struct NewFile {
    file: File,
    path: PathBuf,
    space: Space,
}

impl NewFile {
    /// Never follows a link or overwrites what is there.
    fn create(folder: &Path, name: &str) -> Result<Self, ReadError> {
        let path = folder.join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => Ok(Self { file, path, space: Space::of(folder) }),
            Err(source) => Err(failed(&path, source)),
        }
    }
}

impl ImageSink for NewFile {
    fn take(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        let written = self.space.take(bytes.len() as u64).and_then(|()| self.file.write_all(bytes));
        written.map_err(|source| failed(&self.path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> ReadError {
    ReadError::Write { path: path.to_owned(), source }
}
