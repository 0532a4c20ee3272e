//! Tar archives from anywhere, entry by entry, within limits.
//!
//! Stemcells, their images and the layers of OCI images come from strangers, and a few hundred bytes can ask for all memory, all
//! space or all time of the program that unpacks them. So everything that unpacks uses a [`Tarball`], and says with [`Limits`] what
//! it has to give:
//!
//! - the headers of an entry, which the reader keeps in memory: 4 MiB, names 4096 bytes and 256 folders deep;
//! - the number of entries, the bytes that they have once they are unpacked, and the time that all of it takes.
//!
//! A [`Budget`] is what is left of that, also over several archives that belong together. A [`digest::Digest`] says what an
//! archive should be. [`copies`] are files and folders that go from one machine to another.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

pub mod copies;
pub mod digest;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;

/// What the headers of one entry may take. Names end at 4 KiB, and attributes at 64 KiB; maps of sparse files are the rest.
const LARGEST_HEADER: u64 = 4 << 20;

/// No file system takes longer names.
const LONGEST_NAME: usize = 4096;

/// Each folder of a name is looked at again for every folder below it, so this bounds the work for one entry.
const DEEPEST_NAME: usize = 256;

/// How much of a file system is left free, unless a twentieth of it is less.
const RESERVE: u64 = 1 << 30;

/// How many zeros all sparse files of an archive may stand for: they take no bytes of it, but a reader gets each one.
const MOST_HOLES: u64 = 16 << 30;

const MIB: u64 = 1 << 20;

/// What an archive may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, once it is unpacked.
    pub bytes: u64,
    pub entries: u64,
    /// Time, from its first entry to its last.
    pub time: Duration,
}

impl Default for Limits {
    /// For archives that are only looked at: no limit of bytes. The largest stemcells have some hundred thousand entries.
    fn default() -> Self {
        Self { bytes: u64::MAX, entries: 1_000_000, time: Duration::from_secs(20 * 60) }
    }
}

/// Whether the file system of `folder` has more than half of its reserve: what is large keeps away from all of it.
pub fn has_half_of_reserve(folder: &Path) -> io::Result<bool> {
    let (available, reserve) = available_and_reserve(folder)?;
    Ok(available > reserve / 2)
}

fn available_and_reserve(folder: &Path) -> io::Result<(u64, u64)> {
    let space = rustix::fs::statvfs(folder)?;
    let total = space.f_blocks.saturating_mul(space.f_frsize);
    Ok((space.f_bavail.saturating_mul(space.f_frsize), RESERVE.min(total / 20)))
}

impl Limits {
    /// For archives that are unpacked into `folder`: what its file system has left for us, less a reserve.
    pub fn of_space(folder: &Path) -> io::Result<Self> {
        let (available, reserve) = available_and_reserve(folder)?;
        Ok(Self { bytes: available.saturating_sub(reserve), ..Self::default() })
    }
}

/// Looks, while something is written, whether its file system keeps its reserve. Others write to it as well, and each was told at its start
/// that all of the rest is theirs.
#[derive(Debug)]
pub struct Space {
    folder: PathBuf,
    unseen: u64,
}

impl Space {
    /// How many bytes are written between two looks: little, because hundreds may write at once.
    pub const LOOK: u64 = 256 << 10;

    pub fn of(folder: &Path) -> Self {
        // It is looked before the first byte.
        Self { folder: folder.to_owned(), unseen: Self::LOOK }
    }

    /// Before so many bytes are written.
    pub fn take(&mut self, bytes: u64) -> io::Result<()> {
        self.unseen = self.unseen.saturating_add(bytes);
        if self.unseen < Self::LOOK {
            return Ok(());
        }
        self.unseen = 0;
        match Limits::of_space(&self.folder)?.bytes {
            0 => {
                let words = format!("there is no space left in {}; free some on this machine", self.folder.display());
                Err(io::Error::new(io::ErrorKind::StorageFull, words))
            }
            _ => Ok(()),
        }
    }
}

/// why an archive is not read any further
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// its headers are too large
    #[error("the name and attributes of an entry take more than {} MiB", LARGEST_HEADER / MIB)]
    Header,
    /// a name is too long
    #[error("the name of an entry has {0} bytes, and no more than {LONGEST_NAME} are taken")]
    Name(usize),
    /// a name is too deep
    #[error("an entry is {0} folders deep, and no more than {DEEPEST_NAME} are taken")]
    Depth(usize),
    /// it has too many entries
    #[error("it has more than {0} entries")]
    Entries(u64),
    /// it does not fit
    #[error("it takes more than the {} MiB that are left for it", .0 / MIB)]
    Bytes(u64),
    /// it takes too long
    #[error("it takes longer than {0:?}")]
    Time(Duration),
    /// its sparse files are too large
    #[error("its sparse files have holes of more than {} GiB", MOST_HOLES >> 30)]
    Holes,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Bytes(_) => io::ErrorKind::StorageFull,
            Refusal::Time(_) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, refusal)
    }
}

impl Refusal {
    /// The refusal that an error of [`Tarball::each`] carries; none if the archive is damaged. The tar reader wraps errors in
    /// its own.
    pub fn of(error: &io::Error) -> Option<Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> =
            error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static));
        while let Some(error) = cause {
            if let Some(refusal) = error.downcast_ref::<Self>() {
                return Some(*refusal);
            }
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            cause = inner.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| error.source());
        }
        None
    }
}

/// What is left of [`Limits`], also over several archives.
#[derive(Debug, Clone)]
pub struct Budget(Rc<Left>);

#[derive(Debug)]
struct Left {
    limits: Limits,
    bytes: Cell<u64>,
    entries: Cell<u64>,
    holes: Cell<u64>,
    deadline: Option<Instant>,
    space: Option<RefCell<Space>>,
}

impl Budget {
    /// All of `limits`; the time begins now.
    pub fn new(limits: Limits) -> Self {
        Self::with(limits, None)
    }

    /// For archives that are unpacked into `folder`, beside others.
    pub fn of_space(folder: &Path) -> io::Result<Self> {
        Ok(Self::with(Limits::of_space(folder)?, Some(RefCell::new(Space::of(folder)))))
    }

    fn with(limits: Limits, space: Option<RefCell<Space>>) -> Self {
        let deadline = Instant::now().checked_add(limits.time);
        let (bytes, entries, holes) = (Cell::new(limits.bytes), Cell::new(limits.entries), Cell::new(MOST_HOLES));
        Self(Rc::new(Left { limits, bytes, entries, holes, deadline, space }))
    }

    fn check_space(&self, bytes: usize) -> Result<(), Refusal> {
        let Some(space) = &self.0.space else { return Ok(()) };
        space.borrow_mut().take(bytes as u64).map_err(|_| Refusal::Bytes(self.0.limits.bytes))
    }

    fn check_time(&self) -> Result<(), Refusal> {
        match self.0.deadline {
            Some(deadline) if Instant::now() > deadline => Err(Refusal::Time(self.0.limits.time)),
            _ => Ok(()),
        }
    }

    fn take_entry(&self) -> Result<(), Refusal> {
        let left = self.0.entries.get().checked_sub(1).ok_or(Refusal::Entries(self.0.limits.entries))?;
        self.0.entries.set(left);
        Ok(())
    }

    fn take_holes(&self, holes: u64) -> Result<(), Refusal> {
        self.0.holes.set(self.0.holes.get().checked_sub(holes).ok_or(Refusal::Holes)?);
        Ok(())
    }

    fn take_bytes(&self, bytes: u64) -> Result<(), Refusal> {
        if self.0.limits.bytes == u64::MAX {
            return Ok(());
        }
        let left = self.0.bytes.get().checked_sub(bytes).ok_or(Refusal::Bytes(self.0.limits.bytes))?;
        self.0.bytes.set(left);
        Ok(())
    }
}

/// A tar archive that is read as a stream.
#[derive(Debug)]
pub struct Tarball<R> {
    reader: R,
    budget: Budget,
    preserves: bool,
}

pub type TarEntry<'a, R> = tar::Entry<'a, Guarded<R>>;

impl<R: Read> Tarball<R> {
    /// An archive that is only looked at, within the [`Limits`] of those.
    pub fn new(reader: R) -> Self {
        Self::within(reader, &Budget::new(Limits::default()))
    }

    /// An archive that may take what is left of `budget`.
    pub fn within(reader: R, budget: &Budget) -> Self {
        Self { reader, budget: budget.clone(), preserves: false }
    }

    /// Whether entries keep their owners, permissions and attributes when they are unpacked.
    pub fn preserving(self, preserves: bool) -> Self {
        Self { preserves, ..self }
    }

    /// Shows every entry to `visit`, and reads on to the very end, because only there gzip tells whether all was right.
    /// `damaged` makes an error of what is wrong with the archive itself, or of a [`Refusal`].
    pub fn each<E>(
        self,
        damaged: impl Fn(io::Error) -> E,
        mut visit: impl FnMut(&mut TarEntry<'_, R>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (passed, budget) = (Rc::new(Passed::default()), self.budget);
        let guarded = Guarded { reader: self.reader, passed: Rc::clone(&passed), budget: budget.clone() };
        let mut archive = tar::Archive::new(guarded);
        archive.set_preserve_permissions(self.preserves);
        archive.set_preserve_ownerships(self.preserves);
        archive.set_unpack_xattrs(self.preserves);
        let mut entries = archive.entries().map_err(&damaged)?;
        loop {
            passed.limit_to(LARGEST_HEADER, Refusal::Header);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry.map_err(|error| damaged(unquoted(error)))?;
            budget.take_entry().and_then(|()| check_name(&entry)).map_err(|refusal| damaged(refusal.into()))?;
            let is_sparse = entry.header().entry_type().is_gnu_sparse();
            let size = if is_sparse { entry.header().entry_size().map_err(&damaged)? } else { entry.size() };
            // Of a sparse file, with its holes: they are written out.
            let taken = budget.take_bytes(entry.size());
            let taken = taken.and_then(|()| budget.take_holes(entry.size().saturating_sub(size)));
            taken.map_err(|refusal| damaged(refusal.into()))?;
            passed.limit_to(u64::MAX, Refusal::Header);
            visit(&mut entry)?;
            io::copy(&mut entry, &mut io::sink()).map_err(&damaged)?;
            if passed.bytes.get() != entry.raw_file_position().saturating_add(size) {
                let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
                return Err(damaged(io::Error::new(io::ErrorKind::UnexpectedEof, format!("it ends inside '{name}'"))));
            }
        }
        passed.limit_to(budget.0.bytes.get(), Refusal::Bytes(budget.0.limits.bytes));
        io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(&damaged)?;
        Ok(())
    }
}

/// The reader quotes what it took for a header. Who may only name a URL would be told what only this machine can fetch from there.
fn unquoted(error: io::Error) -> io::Error {
    match error.to_string().starts_with("numeric field") {
        true => io::Error::new(error.kind(), "it has something else where a header of a tar archive belongs"),
        false => error,
    }
}

fn check_name<R: Read>(entry: &tar::Entry<'_, R>) -> Result<(), Refusal> {
    let (name, link) = (entry.path_bytes(), entry.link_name_bytes().unwrap_or_default());
    let longest = name.len().max(link.len());
    if longest > LONGEST_NAME {
        return Err(Refusal::Name(longest));
    }
    let deepest = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count();
    if deepest > DEEPEST_NAME { Err(Refusal::Depth(deepest)) } else { Ok(()) }
}

#[derive(Debug)]
struct Passed {
    bytes: Cell<u64>,
    limit: Cell<u64>,
    /// What is said at the limit.
    refusal: Cell<Refusal>,
}

impl Default for Passed {
    fn default() -> Self {
        Self { bytes: Cell::new(0), limit: Cell::new(u64::MAX), refusal: Cell::new(Refusal::Header) }
    }
}

impl Passed {
    fn limit_to(&self, bytes: u64, refusal: Refusal) {
        self.limit.set(self.bytes.get().saturating_add(bytes));
        self.refusal.set(refusal);
    }
}

/// A reader that ends with an error where its limit is.
#[derive(Debug)]
pub struct Guarded<R> {
    reader: R,
    passed: Rc<Passed>,
    budget: Budget,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.budget.check_time()?;
        let bytes = self.passed.bytes.get();
        let left = self.passed.limit.get().saturating_sub(bytes);
        if left == 0 && !buffer.is_empty() {
            // At the end of what it may have, it may well be at its end.
            return match self.reader.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(self.passed.refusal.get().into()),
            };
        }
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut buffer[..most])?;
        self.budget.check_space(read)?;
        self.passed.bytes.set(bytes + read as u64);
        Ok(read)
    }
}

/// How files that are compressed with gzip begin.
pub const GZIP: &[u8] = &[0x1f, 0x8b];

/// The content of a file that is compressed with gzip or not at all, by its first bytes. `buffered` reads it from its start.
pub fn decompressed<'a, R: Read + 'a>(start: &[u8], buffered: R) -> Box<dyn Read + 'a> {
    if start.starts_with(GZIP) { Box::new(MultiGzDecoder::new(buffered)) } else { Box::new(buffered) }
}

/// The first bytes of a file, which is then at its start again.
pub fn first_bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    (&mut *file).take(6).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Where an entry belongs, without `./` and a leading slash; empty for the root itself, none if it leads out of it.
pub fn inside(name: &[u8]) -> Option<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive with files that are nothing but holes of this size.
    fn holes(size: u64, files: usize) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_size(0);
        if let Some(gnu) = header.as_gnu_mut() {
            gnu.name[..4].copy_from_slice(b"hole");
            gnu.set_real_size(size);
            gnu.sparse[0].set_offset(size);
            gnu.sparse[0].set_length(0);
        }
        header.set_cksum();
        [header.as_bytes().repeat(files), vec![0; 1024]].concat()
    }

    /// Several that are unpacked at once filled a disk that had room for each of them.
    #[test]
    fn what_others_take_meanwhile_is_noticed() {
        // A file system without room.
        let mut space = Space::of(Path::new("/proc"));
        let full = space.take(1).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(full.to_string().contains("no space left in /proc; free some"), "{full}");
        space.take(Space::LOOK - 1).unwrap();
        space.take(1).unwrap_err();
        let folder = tempfile::tempdir().unwrap();
        Space::of(folder.path()).take(u64::MAX).unwrap();

        let limits = Limits { bytes: 1 << 20, ..Limits::default() };
        let budget = Budget::with(limits, Some(RefCell::new(Space::of(Path::new("/proc")))));
        let read = Tarball::within(holes(0, 1).as_slice(), &budget).each(|error| Refusal::of(&error), |_| Ok(()));
        assert_eq!(read, Err(Some(Refusal::Bytes(1 << 20))));
    }

    #[test]
    fn what_is_no_archive_is_not_quoted() {
        for start in ["", "x".repeat(148).as_str()] {
            let text = format!("{start}secret{}", "y".repeat(2000));
            let told = Tarball::new(text.as_bytes()).each(|error| error.to_string(), |_| Ok(())).unwrap_err();
            assert_eq!(told, "it has something else where a header of a tar archive belongs");
        }
    }

    #[test]
    fn holes_that_would_be_read_for_ever_are_refused() {
        let read = |archive: Vec<u8>| Tarball::new(archive.as_slice()).each(|error| Refusal::of(&error), |_| Ok(()));
        assert_eq!(read(holes(1 << 20, 3)), Ok(()));
        assert_eq!(read(holes(1 << 62, 1)), Err(Some(Refusal::Holes)));
        // What is left of it is for all archives that belong together.
        let budget = Budget::new(Limits::default());
        budget.take_holes(MOST_HOLES).unwrap();
        assert_eq!(budget.take_holes(1), Err(Refusal::Holes));
    }
}
