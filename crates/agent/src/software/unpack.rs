//! Archives of jobs and packages become trees.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use windlass_archive::{Budget, GZIP, Limits, TarEntry, Tarball, decompressed, first_bytes, inside};

/// why an archive cannot be unpacked
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// not a tar, not gzip, cut short, or more than may be taken
    #[error("its archive is damaged or takes too much")]
    Damaged(#[source] io::Error),
    /// packed in a way that this agent does not read
    #[error("its archive is neither tar nor gzip; pack it with 'tar -czf'")]
    Compression,
    /// the templates of jobs are always gzip
    #[error("the archive of rendered templates is not gzip")]
    NoGzip,
    /// the job is not in it
    #[error("no file with prefix '{0}' found")]
    NoJob(String),
    /// an entry that would be somewhere else
    #[error("its entry '{0}' leads out of it")]
    Escapes(PathBuf),
    /// an entry that no release has
    #[error("its entry '{0}' is a device or a pipe")]
    Device(PathBuf),
    /// an entry cannot be written
    #[error("cannot write its entry '{entry}'")]
    Write {
        entry: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Unpacks the subtree of one job; returns where it is.
pub(super) fn job(archive: &Path, job: &str, folder: &Path) -> Result<PathBuf, UnpackError> {
    let mut file = File::open(archive).map_err(UnpackError::Damaged)?;
    if !first_bytes(&mut file).map_err(UnpackError::Damaged)?.starts_with(GZIP) {
        return Err(UnpackError::NoGzip);
    }
    let mut found = false;
    each(MultiGzDecoder::new(BufReader::new(file)), folder, |entry| {
        let is_of_job = inside(&entry.path_bytes()).is_some_and(|path| path.starts_with(job));
        found |= is_of_job;
        if is_of_job { put(entry, folder) } else { Ok(()) }
    })?;
    if found { Ok(folder.join(job)) } else { Err(UnpackError::NoJob(job.to_owned())) }
}

/// Unpacks a package. Owners are not kept, as with `tar --no-same-owner`.
pub(super) fn package(archive: &Path, folder: &Path) -> Result<(), UnpackError> {
    let mut file = File::open(archive).map_err(UnpackError::Damaged)?;
    let start = first_bytes(&mut file).map_err(UnpackError::Damaged)?;
    // The ways of compressing that `tar` knows and this does not.
    let others: [&[u8]; 3] = [b"BZh", &[0xfd, b'7', b'z', b'X', b'Z'], &[0x28, 0xb5, 0x2f, 0xfd]];
    if others.iter().any(|other| start.starts_with(other)) {
        return Err(UnpackError::Compression);
    }
    each(decompressed(&start, BufReader::new(file)), folder, |entry| put(entry, folder))
}

fn each<R: Read>(
    reader: R,
    folder: &Path,
    visit: impl FnMut(&mut TarEntry<'_, R>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let limits = Limits::of_space(folder).map_err(UnpackError::Damaged)?;
    Tarball::within(reader, &Budget::new(limits)).each(UnpackError::Damaged, visit)
}

fn put<R: Read>(entry: &mut TarEntry<'_, R>, folder: &Path) -> Result<(), UnpackError> {
    let name = entry.path().map_err(UnpackError::Damaged)?.into_owned();
    let kind = entry.header().entry_type();
    if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
        return Err(UnpackError::Device(name));
    }
    if inside(&entry.path_bytes()).is_none() {
        return Err(UnpackError::Escapes(name));
    }
    match entry.unpack_in(folder) {
        Ok(true) => Ok(()),
        Ok(false) => Err(UnpackError::Escapes(name)),
        Err(source) => Err(UnpackError::Write { entry: name, source }),
    }
}

/// Packs a folder as `tar -czf … -C FOLDER .` does.
pub(super) fn pack(folder: &Path, archive: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).create_new(true).open(archive)?;
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::default()));
    builder.follow_symlinks(false);
    builder.append_dir_all(".", folder)?;
    builder.into_inner()?.finish()?.sync_all()
}
