//! The control groups below one. A VM that may make groups may make them deeper than a path is long and than a process may have files open,
//! so each is reached from the one above it, with one descriptor at a time.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags};

use super::cgroup::is_gone;

const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Goes through `top` and all groups below it: `enter` sees each group before those below it, and `leave` each but `top` after them, from the
/// group above it and by its name. What goes meanwhile is passed over.
pub(super) fn walk(
    top: &Path,
    mut enter: impl FnMut(BorrowedFd<'_>) -> io::Result<()>,
    mut leave: impl FnMut(BorrowedFd<'_>, &OsString) -> io::Result<()>,
) -> io::Result<()> {
    let Some(mut here) = unless_gone(rustix::fs::open(top, FLAGS, Mode::empty()))? else { return Ok(()) };
    enter(here.as_fd())?;
    // Of each group from `top` to here, those below it that are still to be seen; and what each is called, but for `top`.
    let mut unseen = vec![children(&here)?];
    let mut names = Vec::new();
    while let Some(children_left) = unseen.last_mut() {
        match children_left.pop() {
            Some(name) => {
                if let Some(child) = unless_gone(rustix::fs::openat(&here, &name, FLAGS, Mode::empty()))? {
                    here = child;
                    enter(here.as_fd())?;
                    unseen.push(children(&here)?);
                    names.push(name);
                }
            }
            None => {
                unseen.pop();
                if let Some(name) = names.pop() {
                    here = rustix::fs::openat(&here, "..", FLAGS, Mode::empty())?;
                    leave(here.as_fd(), &name)?;
                }
            }
        }
    }
    Ok(())
}

fn children(group: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(group)? {
        let Some(entry) = unless_gone(entry)? else { break };
        let name = entry.file_name().to_bytes();
        if entry.file_type() == FileType::Directory && name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_owned()));
        }
    }
    Ok(names)
}

fn unless_gone<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result.map_err(io::Error::from) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
