//! Copies of files: sharing their blocks where the file system can, without filling their holes elsewhere.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;
use windlass_durable::{file, kill_point};

/// How much is read at once; a piece of only zeros becomes a hole.
const PIECE: usize = 256 * 1024;

/// `st_blocks` counts in these, whatever the file system does.
const BLOCK: u64 = 512;

/// Whether copies made in `folder` share their blocks with what they are copied from, tried on an empty file.
pub(super) fn shares_blocks(folder: &Path) -> io::Result<bool> {
    let (from, to) = (tempfile_in(folder)?, tempfile_in(folder)?);
    match ioctl_ficlone(&to, &from) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A file without a name, which is gone when it is closed.
#[expect(clippy::disallowed_methods, reason = "a file without a name is nobody's but ours")]
fn tempfile_in(folder: &Path) -> io::Result<File> {
    let path = file::beside(&folder.join("probe"))?;
    let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(file::PRIVATE).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(opened)
}

/// Opens what is at a path. A link that took its place has nothing to show.
pub(super) fn open_itself(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::NOFOLLOW).bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NOTDIR | Errno::NXIO)) => {
            Err(io::ErrorKind::NotFound.into())
        }
        opened => opened,
    }
}

/// Copies the content of a file to a new, private one.
pub(super) fn copy_content(from: &Path, to: &Path) -> io::Result<File> {
    let from = open_itself(from, OFlags::NONBLOCK)?;
    if !from.metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let to = OpenOptions::new().write(true).create_new(true).mode(file::PRIVATE).open(to)?;
    if ioctl_ficlone(&to, &from).is_err() {
        copy_data(&from, &to)?;
    }
    Ok(to)
}

/// Copies the content of a file to a new, private one and flushes it.
pub(super) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    kill_point("before a copy");
    copy_content(from, to)?.sync_all()?;
    kill_point("after a copy");
    Ok(())
}

/// The space that a copy of the file takes where blocks are not shared.
pub(super) fn allocated(metadata: &std::fs::Metadata) -> u64 {
    metadata.blocks() * BLOCK
}

fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while let Some(data) = next_data(from, at)? {
        let hole = seek(from, SeekFrom::Hole(data))?;
        at = data;
        while at < hole {
            let wanted = usize::try_from(hole - at).unwrap_or(PIECE).min(PIECE);
            let read = from.read_at(&mut buffer[..wanted], at)?;
            if read == 0 {
                // It became shorter; what is gone is a hole.
                break;
            }
            if buffer[..read].iter().any(|byte| *byte != 0) {
                to.write_all_at(&buffer[..read], at)?;
            }
            at += read as u64;
        }
        at = hole;
    }
    to.set_len(length)
}

/// Where the next data is; none if only holes follow.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        // A file system that knows no holes: everything up to the end is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) if at < file.metadata()?.len() => Ok(Some(at)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_stays_sparse() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).unwrap();
        let length = 64 * 1024 * 1024 + 17;
        file.set_len(length).unwrap();
        file.write_all_at(b"near", 3).unwrap();
        file.write_all_at(&[7; 300_000], 40_000_001).unwrap();
        file.write_all_at(b"end", length - 3).unwrap();
        copy_file(&from, &to).unwrap();
        assert!(std::fs::read(&from).unwrap() == std::fs::read(&to).unwrap());
        let copied = to.metadata().unwrap();
        assert_eq!(copied.len(), length);
        assert!(allocated(&copied) < 4 * 1024 * 1024, "{} bytes are allocated", allocated(&copied));
        assert_eq!(copied.mode() & 0o777, 0o600);
        assert!(copy_file(&from, &to).is_err(), "a copy replaces nothing");
    }

    #[test]
    fn asking_whether_files_share_blocks_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        shares_blocks(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
