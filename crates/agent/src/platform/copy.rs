//! Copies the content of one disk to another, as exactly as a file system allows: owners, modes, times, extended attributes,
//! hard links, holes in sparse files. The source is only read. Jobs may put links in the place of anything there, also while it is
//! copied, and must not get what only root may read: folders are read by handles, and links are not followed.

use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, SeekFrom as Find, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use windlass_durable::{file, kill_point};

use crate::log_file;

/// Lies in a target that was empty when the copy began, so that everything else there is known to be an unfinished copy.
const UNFINISHED: &str = ".windlass-migration";
/// Jobs decide how deep folders are. Two thousand fit into the longest path, and each takes some kilobytes of stack, which are not
/// used before they are needed.
const STACK: usize = 32 << 20;
/// Belongs to the file system, not to its data.
const LOST_AND_FOUND: &str = "lost+found";

/// why data could not be copied
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    /// something cannot be read or written
    #[error("cannot copy {path}; the source is untouched, so free the way and migrate again")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// a copy is not like its original
    #[error("the copy of {path} has another {what} than its original; the source is untouched, so migrate again")]
    Differs { path: PathBuf, what: &'static str },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    let path = path.to_owned();
    move |source| CopyError::Io { path, source }
}

/// How much was copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// Copies everything in the folder `from` into the folder `to`, checks it and flushes it to the disk. A copy that was killed is
/// begun again. Data that was in `to` before is kept, unless something of `from` has the same name.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<Copied, CopyError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("copy".into()).stack_size(STACK);
        let copying = thread.spawn_scoped(scope, || copy_all(from, to)).map_err(failed(to))?;
        copying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn copy_all(from: &Path, to: &Path) -> Result<Copied, CopyError> {
    let mark = to.join(UNFINISHED);
    let there = data_on(to)?;
    if mark.exists() {
        for entry in there {
            file::remove(&entry).map_err(failed(&entry))?;
        }
    } else if there.is_empty() {
        // An empty file is whole as soon as it is there, and nothing else of ours may stay on somebody's disk.
        kill_point("before a copy is marked");
        File::create_new(&mark).and_then(|mark| mark.sync_all()).map_err(failed(&mark))?;
        kill_point("after a copy was marked");
    }
    let mut links = HashMap::new();
    copy_entries(data_on(from)?, &CopiedPath::at(from), to, &mut links)?;
    let mut copied = Copied::default();
    compare_entries(data_on(from)?, to, &mut copied)?;
    let folder = File::open(to).map_err(failed(to))?;
    rustix::fs::syncfs(&folder).map_err(|error| failed(to)(error.into()))?;
    file::remove_file(&mark).map_err(failed(&mark))?;
    copy_attributes(from, &fs::symlink_metadata(from).map_err(failed(from))?, to)?;
    Ok(copied)
}

/// The top entries of a disk that are data.
fn data_on(disk: &Path) -> Result<Vec<PathBuf>, CopyError> {
    let is_data = |path: &PathBuf| !path.ends_with(LOST_AND_FOUND) && !path.ends_with(UNFINISHED);
    Ok(entries(disk)?.into_iter().filter(is_data).collect())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, CopyError> {
    let read = fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    read.map_err(failed(folder))
}

/// Where the first copy of a file with several names is, by device and inode.
type Links = HashMap<(u64, u64), PathBuf>;

/// Something in the source: how it is reached, and what it is called.
struct CopiedPath {
    at: PathBuf,
    name: PathBuf,
}

impl CopiedPath {
    fn at(path: &Path) -> Self {
        Self { at: path.to_owned(), name: path.to_owned() }
    }
}

fn copy_entries(paths: Vec<PathBuf>, from: &CopiedPath, to: &Path, links: &mut Links) -> Result<(), CopyError> {
    for path in paths {
        let Some(name) = path.file_name() else { continue };
        copy_entry(&CopiedPath { at: from.at.join(name), name: from.name.join(name) }, &to.join(name), links)?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "each entry passes the hook first, and the copy counts when its mark goes"
)]
fn copy_entry(CopiedPath { at, name }: &CopiedPath, to: &Path, links: &mut Links) -> Result<(), CopyError> {
    let metadata = fs::symlink_metadata(at).map_err(failed(name))?;
    kill_point("before a file is copied");
    if metadata.is_dir() {
        match fs::symlink_metadata(to) {
            Ok(found) if found.is_dir() => {}
            _ => {
                file::remove(to).map_err(failed(to))?;
                file::create_private_dir(to).map_err(failed(to))?;
            }
        }
        let opened = log_file::open_folder(at).map_err(failed(name))?;
        let inside = CopiedPath { at: log_file::name_of(&opened), name: name.clone() };
        copy_entries(entries(&inside.at)?, &inside, to, links)?;
        return copy_attributes(at, &metadata, to);
    }
    file::remove(to).map_err(failed(to))?;
    if metadata.nlink() > 1 {
        let inode = (metadata.dev(), metadata.ino());
        if let Some(first) = links.get(&inode) {
            return fs::hard_link(first, to).map_err(failed(to));
        }
        links.insert(inode, to.to_owned());
    }
    let kind = metadata.file_type();
    if kind.is_symlink() {
        let target = fs::read_link(at).map_err(failed(name))?;
        std::os::unix::fs::symlink(target, to).map_err(failed(to))?;
    } else if kind.is_file() {
        copy_data(at, to, metadata.len()).map_err(failed(name))?;
    } else {
        let special = match kind {
            kind if kind.is_fifo() => FileType::Fifo,
            kind if kind.is_socket() => FileType::Socket,
            kind if kind.is_block_device() => FileType::BlockDevice,
            _ => FileType::CharacterDevice,
        };
        rustix::fs::mknodat(CWD, to, special, Mode::RUSR, metadata.rdev()).map_err(|error| failed(to)(error.into()))?;
    }
    copy_attributes(at, &metadata, to)
}

/// Copies what is not a hole.
fn copy_data(from: &Path, to: &Path, length: u64) -> io::Result<()> {
    let mut source =
        log_file::read_plain(from)?.ok_or_else(|| io::Error::other("it was replaced while it was copied"))?;
    let mut target = OpenOptions::new().write(true).create_new(true).mode(file::PRIVATE).open(to)?;
    target.set_len(length)?;
    let mut position = 0;
    while position < length {
        let data = match rustix::fs::seek(&source, Find::Data(position)) {
            Ok(data) => data,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(&source, Find::Hole(data))?;
        source.seek(SeekFrom::Start(data))?;
        target.seek(SeekFrom::Start(data))?;
        io::copy(&mut (&mut source).take(hole - data), &mut target)?;
        position = hole;
    }
    target.flush()
}

/// The owner first, because changing it clears bits of the mode; the times last, because everything else changes them.
fn copy_attributes(from: &Path, metadata: &Metadata, to: &Path) -> Result<(), CopyError> {
    let os = |error: Errno| failed(to)(error.into());
    let created = fs::symlink_metadata(to).map_err(failed(to))?;
    if (created.uid(), created.gid()) != (metadata.uid(), metadata.gid()) {
        let (owner, group) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
        rustix::fs::chownat(CWD, to, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW).map_err(os)?;
    }
    if !metadata.is_symlink() {
        fs::set_permissions(to, fs::Permissions::from_mode(metadata.mode() & 0o7777)).map_err(failed(to))?;
    }
    copy_extended(from, to).map_err(failed(from))?;
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps {
        last_access: time(metadata.atime(), metadata.atime_nsec()),
        last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
    };
    rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(os)
}

fn copy_extended(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0; 64 * 1024];
    let length = match rustix::fs::llistxattr(from, &mut names) {
        Ok(length) => length,
        // The file system has none.
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::lgetxattr(from, name, &mut value)?;
        match rustix::fs::lsetxattr(to, name, &value[..length], XattrFlags::empty()) {
            // Labels are the machine's policy, not the disk's data.
            Err(Errno::NOTSUP | Errno::PERM) if name.starts_with(b"security.") => {}
            set => set?,
        }
    }
    Ok(())
}

fn compare_entries(paths: Vec<PathBuf>, to: &Path, copied: &mut Copied) -> Result<(), CopyError> {
    for path in paths {
        let Some(name) = path.file_name() else { continue };
        let copy = to.join(name);
        let original = fs::symlink_metadata(&path).map_err(failed(&path))?;
        let found = fs::symlink_metadata(&copy).map_err(failed(&copy))?;
        let alike = [
            ("type", original.file_type() == found.file_type()),
            ("mode", original.mode() == found.mode()),
            ("owner", (original.uid(), original.gid()) == (found.uid(), found.gid())),
            ("size", original.is_dir() || original.len() == found.len()),
        ];
        if let Some((what, _)) = alike.into_iter().find(|(_, alike)| !alike) {
            return Err(CopyError::Differs { path, what });
        }
        copied.entries += 1;
        if original.is_dir() {
            compare_entries(entries(&path)?, &copy, copied)?;
        } else {
            copied.bytes += original.len();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Disks {
        _folder: tempfile::TempDir,
        from: PathBuf,
        to: PathBuf,
    }

    fn disks() -> Disks {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        for path in [&from, &to] {
            fs::create_dir(path).unwrap();
        }
        Disks { _folder: folder, from, to }
    }

    #[test]
    fn a_copy_keeps_what_databases_and_jobs_rely_on() {
        let Disks { from, to, .. } = &disks();
        fs::create_dir_all(from.join("db/deep")).unwrap();
        fs::write(from.join("db/data"), "precious").unwrap();
        fs::hard_link(from.join("db/data"), from.join("db/deep/same")).unwrap();
        fs::set_permissions(from.join("db/data"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::set_permissions(from.join("db"), fs::Permissions::from_mode(0o1730)).unwrap();
        std::os::unix::fs::symlink("nowhere", from.join("link")).unwrap();
        rustix::fs::mkfifoat(CWD, from.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let mut sparse = File::create(from.join("sparse")).unwrap();
        sparse.set_len(64 << 20).unwrap();
        sparse.seek(SeekFrom::Start(32 << 20)).unwrap();
        sparse.write_all(b"island").unwrap();
        let tagged = rustix::fs::lsetxattr(from.join("db/data"), "user.tag", b"v", XattrFlags::empty()).is_ok();
        let old = Timespec { tv_sec: 1_000_000_000, tv_nsec: 5 };
        let times = Timestamps { last_access: old, last_modification: old };
        for name in ["db/data", "db", "link"] {
            rustix::fs::utimensat(CWD, from.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        }

        let copied = copy(from, to).unwrap();
        assert_eq!((copied.entries, copied.bytes), (7, 8 + 8 + 7 + (64 << 20)));
        let at = |name: &str| fs::symlink_metadata(to.join(name)).unwrap();
        assert_eq!(fs::read(to.join("db/deep/same")).unwrap(), b"precious");
        assert_eq!(at("db/data").ino(), at("db/deep/same").ino(), "two names of one file");
        assert_eq!((at("db/data").mode() & 0o7777, at("db").mode() & 0o7777), (0o4751, 0o1730));
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("nowhere"));
        assert!(at("pipe").file_type().is_fifo());
        for name in ["db/data", "db", "link"] {
            assert_eq!((at(name).mtime(), at(name).mtime_nsec()), (1_000_000_000, 5), "{name}");
        }
        let mut island = [0; 6];
        let mut copy = File::open(to.join("sparse")).unwrap();
        copy.seek(SeekFrom::Start(32 << 20)).unwrap();
        copy.read_exact(&mut island).unwrap();
        assert_eq!(&island, b"island");
        assert!(at("sparse").blocks() * 512 < 1 << 20, "holes stay holes");
        let mut value = [0; 8];
        if tagged {
            assert_eq!(rustix::fs::lgetxattr(to.join("db/data"), "user.tag", &mut value).unwrap(), 1);
        }
        assert!(!to.join(UNFINISHED).exists());
        assert_eq!(fs::read(from.join("db/data")).unwrap(), b"precious");
    }

    #[test]
    fn what_becomes_a_link_while_it_is_copied_shows_nothing_that_is_not_on_the_disk() {
        let Disks { from, to, .. } = &disks();
        let secret = from.with_file_name("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("file"), "for root alone").unwrap();
        std::os::unix::fs::symlink(secret.join("file"), from.join("file")).unwrap();
        copy_data(&from.join("file"), &to.join("file"), 100).unwrap_err();
        assert!(!to.join("file").exists());
        // A folder is read where it was when it was opened, whatever stands at its name by now.
        fs::create_dir(from.join("folder")).unwrap();
        fs::write(from.join("folder/file"), "").unwrap();
        let opened = log_file::open_folder(&from.join("folder")).unwrap();
        fs::rename(from.join("folder"), from.join("before")).unwrap();
        std::os::unix::fs::symlink(&secret, from.join("folder")).unwrap();
        let inside = CopiedPath { at: log_file::name_of(&opened), name: from.join("folder") };
        copy_entries(entries(&inside.at).unwrap(), &inside, to, &mut HashMap::new()).unwrap();
        assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "");
    }

    #[test]
    fn a_killed_copy_is_begun_again_and_leaves_nothing_of_its_first_try() {
        let Disks { from, to, .. } = &disks();
        fs::write(from.join("data"), "whole").unwrap();
        fs::write(to.join(UNFINISHED), "").unwrap();
        fs::write(to.join("data"), "who").unwrap();
        fs::create_dir_all(to.join("gone/since")).unwrap();
        copy(from, to).unwrap();
        assert_eq!(fs::read(to.join("data")).unwrap(), b"whole");
        assert_eq!(fs::read_dir(to).unwrap().count(), 1);
    }

    #[test]
    fn data_that_another_put_on_the_target_is_not_deleted() {
        let Disks { from, to, .. } = &disks();
        fs::write(from.join("data"), "new").unwrap();
        fs::write(to.join("data"), "older").unwrap();
        fs::write(to.join("other"), "precious").unwrap();
        for _ in 0..2 {
            copy(from, to).unwrap();
            assert_eq!(fs::read(to.join("data")).unwrap(), b"new");
            assert_eq!(fs::read(to.join("other")).unwrap(), b"precious");
        }
    }

    #[test]
    fn a_copy_that_is_not_alike_is_found() {
        let Disks { from, to, .. } = &disks();
        for (path, text) in [(from, "123"), (to, "12")] {
            fs::write(path.join("data"), text).unwrap();
        }
        let error = compare_entries(data_on(from).unwrap(), to, &mut Copied::default()).unwrap_err();
        assert!(matches!(error, CopyError::Differs { what: "size", .. }), "{error}");
    }

    #[test]
    fn folders_in_folders_do_not_end_the_agent() {
        // In memory, where there is such a folder: it is made and removed in no time.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let deep: PathBuf = std::iter::repeat_n("d", 900).collect();
        fs::create_dir_all(from.join(&deep)).unwrap();
        fs::write(from.join(&deep).join("data"), "precious").unwrap();
        fs::create_dir(&to).unwrap();
        let (source, target) = (from.clone(), to.clone());
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let copied = small.spawn(move || copy(&source, &target)).unwrap().join().unwrap().unwrap();
        assert_eq!((copied.entries, copied.bytes), (901, 8));
        assert_eq!(fs::read(to.join(&deep).join("data")).unwrap(), b"precious");
        for tree in [&from, &to] {
            file::remove_all(tree).unwrap();
        }
    }
}
