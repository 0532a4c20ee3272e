//! Copies of whole folders, also of ones that are in use.
//!
//! What vanishes during the copy is not in it. Owners are kept where we may, modes, times, links and holes always;
//! sockets are left out, because nobody listens on a copy. A VM that uses the folder may put a link in the place of anything while
//! it is copied, and must not get files of this machine by that: folders are read by handles, and links are not followed.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, mknodat, utimensat};

use windlass_durable::kill_point;

use super::copy;

/// Copies the folder `from` to `to`, which must not be there, and flushes it.
pub(super) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    kill_point("before a tree is copied");
    let mut copied = Copy { files: HashMap::new(), may_chown: rustix::process::geteuid().is_root() };
    copied.folder(from, to, &fs::metadata(from)?)?;
    rustix::fs::syncfs(File::open(to)?)?;
    kill_point("after a tree is copied");
    Ok(())
}

/// The space that a copy of the folder takes where blocks are not shared.
pub(super) fn allocated(folder: &Path) -> io::Result<u64> {
    let mut bytes = copy::allocated(&fs::metadata(folder)?);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(metadata) = unless_gone(fs::symlink_metadata(entry.path()))? else { continue };
        bytes += if metadata.is_dir() {
            unless_gone(allocated(&entry.path()))?.unwrap_or(0)
        } else {
            copy::allocated(&metadata)
        };
    }
    Ok(bytes)
}

struct Copy {
    /// Files with several names, by device and inode, and their first copy.
    files: HashMap<(u64, u64), PathBuf>,
    may_chown: bool,
}

impl Copy {
    /// A folder may forbid writing into its copy, so it gets its mode last.
    fn folder(&mut self, from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
        let opened = copy::open_itself(from, OFlags::DIRECTORY)?;
        let from = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        DirBuilder::new().mode(0o700).create(to)?;
        for entry in unless_gone(fs::read_dir(&from))?.into_iter().flatten() {
            let entry = entry?;
            let (from, to) = (from.join(entry.file_name()), to.join(entry.file_name()));
            let Some(metadata) = unless_gone(fs::symlink_metadata(&from))? else { continue };
            unless_gone(self.entry(&from, &to, &metadata))?;
        }
        self.dress(to, metadata)
    }

    #[expect(clippy::disallowed_methods, reason = "a copy that nobody sees until it is renamed")]
    fn entry(&mut self, from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
        let kind = metadata.file_type();
        if kind.is_dir() {
            return self.folder(from, to, metadata);
        }
        if kind.is_socket() {
            return Ok(());
        }
        let id = (metadata.dev(), metadata.ino());
        if let Some(first) = self.files.get(&id) {
            return fs::hard_link(first, to);
        }
        if kind.is_symlink() {
            symlink(fs::read_link(from)?, to)?;
        } else if kind.is_file() {
            copy::copy_content(from, to)?;
        } else {
            let kind = FileType::from_raw_mode(metadata.mode());
            mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), metadata.rdev())?;
        }
        self.dress(to, metadata)?;
        if metadata.nlink() > 1 {
            self.files.insert(id, to.to_owned());
        }
        Ok(())
    }

    /// Owner first, because a change of it clears some bits of the mode.
    fn dress(&self, to: &Path, metadata: &Metadata) -> io::Result<()> {
        if self.may_chown {
            lchown(to, Some(metadata.uid()), Some(metadata.gid()))?;
        }
        if !metadata.is_symlink() {
            fs::set_permissions(to, Permissions::from_mode(metadata.mode() & 0o7777))?;
        }
        let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec()),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
        };
        Ok(utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

    use super::*;

    #[test]
    fn a_copy_has_the_modes_links_and_times_of_the_tree() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("deep/read-only")).unwrap();
        fs::write(from.join("deep/file"), "text").unwrap();
        fs::set_permissions(from.join("deep/file"), Permissions::from_mode(0o4750)).unwrap();
        fs::hard_link(from.join("deep/file"), from.join("second name")).unwrap();
        symlink("/nowhere", from.join("dangling")).unwrap();
        fs::write(from.join("deep/read-only/inner"), "inner").unwrap();
        fs::set_permissions(from.join("deep/read-only"), Permissions::from_mode(0o500)).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        File::open(&from).unwrap().set_times(FileTimes::new().set_modified(old)).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        mknodat(CWD, from.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        File::open(&from).unwrap().set_times(FileTimes::new().set_modified(old)).unwrap();

        copy_tree(&from, &to).unwrap();

        assert_eq!(fs::read_to_string(to.join("deep/file")).unwrap(), "text");
        assert_eq!(fs::metadata(to.join("deep/file")).unwrap().mode() & 0o7777, 0o4750);
        let ino = |name: &str| fs::metadata(to.join(name)).unwrap().ino();
        assert_eq!(ino("deep/file"), ino("second name"));
        assert_eq!(fs::read_link(to.join("dangling")).unwrap(), Path::new("/nowhere"));
        assert_eq!(fs::read_to_string(to.join("deep/read-only/inner")).unwrap(), "inner");
        assert_eq!(fs::metadata(to.join("deep/read-only")).unwrap().mode() & 0o777, 0o500);
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), old);
        assert!(fs::symlink_metadata(to.join("fifo")).unwrap().file_type().is_fifo());
        assert!(!to.join("socket").exists());
        assert!(allocated(&from).unwrap() > 0);
        for tree in [from, to] {
            fs::set_permissions(tree.join("deep/read-only"), Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn what_becomes_a_link_while_it_is_copied_shows_nothing_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["from", "from/folder", "from/file", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::remove_dir(at("from/file")).unwrap();
        fs::write(at("from/file"), "").unwrap();
        fs::write(at("outside/secret"), "of this machine").unwrap();
        let mut copy = Copy { files: HashMap::new(), may_chown: false };
        for (name, target) in [("folder", "outside"), ("file", "outside/secret")] {
            let (from, to) = (at("from").join(name), at(name));
            let seen = fs::symlink_metadata(&from).unwrap();
            fs::rename(&from, at("from/before")).unwrap();
            symlink(at(target), &from).unwrap();
            let error = copy.entry(&from, &to, &seen).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
            assert!(!to.exists(), "{name}");
            fs::remove_file(&from).unwrap();
            // Nor is a pipe waited for that nobody writes to.
            mknodat(CWD, &from, FileType::Fifo, Mode::RUSR, 0).unwrap();
            assert_eq!(copy.entry(&from, &to, &seen).unwrap_err().kind(), io::ErrorKind::NotFound, "{name}");
            fs::remove_file(&from).unwrap();
            fs::rename(at("from/before"), &from).unwrap();
        }
    }
}
