//! Files in folders that jobs can write to, opened by the agent, which may be root.
//!
//! A job could put a link in the place of a log or a folder and have root write, or give away, what it leads to. So links are not
//! followed there, and only plain files are written to.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Opens a log to write at its end, and makes it if it is not there.
pub(crate) fn append(path: &Path, mode: u32) -> io::Result<File> {
    // Opening a pipe would block.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().create(true).append(true).mode(mode).custom_flags(flags).open(path)?;
    let found = opened.metadata()?;
    if !found.is_file() || found.nlink() > 1 {
        return Err(io::Error::other("it is not a plain file of its own; remove it"));
    }
    Ok(opened)
}

/// Makes a folder that belongs to `owner` from now on, if there is one, and to nobody else.
pub(crate) fn give_folder(folder: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let opened = open_folder(folder)?;
    opened.set_permissions(fs::Permissions::from_mode(0o770))?;
    match owner {
        Some((user, group)) => fchown(&opened, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// Makes a folder that others may look into, and only we may write to.
pub(crate) fn own_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let opened = open_folder(folder)?;
    // What stands in it is believed, for example which process is ours to end.
    let owner = opened.metadata()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        let reason =
            format!("{} belongs to user {owner}, who could have put anything there; remove it", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    opened.set_permissions(fs::Permissions::from_mode(0o755))
}

/// Opens a folder, and nothing that a link in its place leads to.
pub(crate) fn open_folder(folder: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(folder)
}

/// A name for what is open, whatever stands at its old name by now.
pub(crate) fn name_of(opened: &File) -> PathBuf {
    format!("/proc/self/fd/{}", opened.as_raw_fd()).into()
}

/// Opens a log to read it; none if it is not a plain file of its own. A second name of a file may lead to what root alone may read.
pub(crate) fn read(path: &Path) -> io::Result<Option<File>> {
    let Some(opened) = read_plain(path)? else { return Ok(None) };
    if opened.metadata()?.nlink() > 1 {
        tracing::warn!("{} is left out of logs: the file has another name, too", path.display());
        return Ok(None);
    }
    Ok(Some(opened))
}

/// Opens a file to read it; none if it is not a plain one.
pub(crate) fn read_plain(path: &Path) -> io::Result<Option<File>> {
    // Opening a pipe would block.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(opened) => Ok(opened.metadata()?.is_file().then_some(opened)),
        // A link, a socket, or gone by now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NXIO)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_job_puts_in_the_place_of_a_log_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "root's").unwrap();
        symlink(at("precious"), at("link.log")).unwrap();
        symlink(at("not there"), at("new.log")).unwrap();
        fs::hard_link(at("precious"), at("second.log")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.log"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for name in ["link.log", "new.log", "second.log", "pipe.log"] {
            append(&at(name), 0o640).unwrap_err();
        }
        assert!(!at("not there").exists());
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "root's");
        append(&at("plain.log"), 0o640).unwrap().write_all(b"a").unwrap();
        append(&at("plain.log"), 0o640).unwrap().write_all(b"b").unwrap();
        assert_eq!(fs::read_to_string(at("plain.log")).unwrap(), "ab");
    }

    #[test]
    fn only_plain_files_are_read_as_logs() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("plain.log"), "a").unwrap();
        symlink(at("plain.log"), at("link.log")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe.log"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket.log")).unwrap();
        assert!(read(&at("plain.log")).unwrap().is_some());
        // Root's file under a name of a job.
        fs::write(at("settings.json"), "secret").unwrap();
        fs::hard_link(at("settings.json"), at("second.log")).unwrap();
        for name in ["link.log", "pipe.log", "socket.log", "gone.log", "second.log"] {
            assert!(read(&at(name)).unwrap().is_none(), "{name}");
        }
    }

    #[test]
    fn a_folder_of_somebody_else_is_not_taken_over() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bpm");
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        let error = own_folder(&path).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534") && error.contains("remove it"), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().uid(), 65534);
    }

    #[test]
    fn what_a_job_puts_in_the_place_of_a_folder_is_not_given_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("etc")).unwrap();
        fs::set_permissions(at("etc"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(at("etc"), at("tmp")).unwrap();
        give_folder(&at("tmp"), None).unwrap_err();
        own_folder(&at("tmp")).unwrap_err();
        assert_eq!(fs::metadata(at("etc")).unwrap().mode() & 0o777, 0o700);
        give_folder(&at("a/b"), None).unwrap();
        assert_eq!(fs::metadata(at("a/b")).unwrap().mode() & 0o777, 0o770);
        own_folder(&at("a/b")).unwrap();
        assert_eq!(fs::metadata(at("a/b")).unwrap().mode() & 0o777, 0o755);
    }
}
