//! Tar archives from anywhere, entry by entry.
//!
//! The tar reader keeps names and extended attributes in memory, however long a hostile sender makes them. So it gets a limited
//! number of bytes for everything that is not content.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

use crate::meter::Meter;

/// What the headers of one entry may take. Names end at 4 KiB, and attributes at 64 KiB; maps of sparse files are the rest.
const LARGEST_HEADER: u64 = 4 * 1024 * 1024;

/// A tar archive that is read as a stream.
pub(crate) struct Tarball<R> {
    reader: R,
}

/// One of its entries.
pub(crate) type TarEntry<'a, R> = tar::Entry<'a, Guarded<R>>;

impl<R: Read> Tarball<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader }
    }

    /// Shows every entry to `visit`, and reads on to the very end, because only there gzip tells whether all was right.
    /// `damaged` makes an error of what is wrong with the archive itself.
    pub(crate) fn each<E>(
        self,
        damaged: impl Fn(io::Error) -> E,
        mut visit: impl FnMut(&mut TarEntry<'_, R>) -> Result<(), E>,
    ) -> Result<(), E> {
        let passed = Rc::new(Passed::default());
        let mut archive = tar::Archive::new(Guarded { reader: self.reader, passed: Rc::clone(&passed) });
        let mut entries = archive.entries().map_err(&damaged)?;
        loop {
            passed.limit.set(passed.bytes.get().saturating_add(LARGEST_HEADER));
            let Some(entry) = entries.next() else { break };
            passed.limit.set(u64::MAX);
            let mut entry = entry.map_err(&damaged)?;
            visit(&mut entry)?;
            io::copy(&mut entry, &mut io::sink()).map_err(&damaged)?;
            let is_sparse = entry.header().entry_type().is_gnu_sparse();
            let size = if is_sparse { entry.header().entry_size().map_err(&damaged)? } else { entry.size() };
            if passed.bytes.get() != entry.raw_file_position().saturating_add(size) {
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                return Err(damaged(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ends inside '{name}'"))));
            }
        }
        passed.limit.set(u64::MAX);
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(&damaged)?;
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Passed {
    bytes: Cell<u64>,
    limit: Cell<u64>,
}

/// A reader that ends with an error where its limit is.
pub(crate) struct Guarded<R> {
    reader: R,
    passed: Rc<Passed>,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.passed.bytes.get();
        let left = self.passed.limit.get().saturating_sub(bytes);
        if left == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!(
                "the name and attributes of an entry take more than {} MiB",
                LARGEST_HEADER / 1024 / 1024
            )));
        }
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut buffer[..most])?;
        self.passed.bytes.set(bytes + read as u64);
        Ok(read)
    }
}

/// Opens a tar that is compressed with gzip or not at all, by its first bytes.
pub(crate) fn open<'m>(path: &Path, meter: &'m Meter<'_>) -> io::Result<Box<dyn Read + 'm>> {
    let mut file = File::open(path)?;
    let start = first_bytes(&mut file)?;
    let file = BufReader::with_capacity(64 * 1024, meter.read(file));
    Ok(if start.starts_with(GZIP) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}

pub(crate) const GZIP: &[u8] = &[0x1f, 0x8b];

/// The first bytes of a file, which is then at its start again.
pub(crate) fn first_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    (&mut *file).take(6).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Where an entry belongs, without `./` and a leading slash; empty for the root itself, none if it leads out of it.
pub(crate) fn inside(name: &[u8]) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(std::ffi::OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}
