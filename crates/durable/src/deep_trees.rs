//! Removing trees that others made: folders of any depth, and ones that forbid it.
//!
//! The standard library keeps each folder on the way open, and a part of its stack for it. So folders in folders, deep enough, are a
//! tree that it cannot remove, or that ends the process. Here such a tree is made flat first: what is too deep moves up.

#![expect(clippy::disallowed_methods, reason = "nobody sees the tree any more, or its removal has passed the hook")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::file::unless_gone;

/// How many folders are open at a time.
const DEEPEST: u32 = 64;

/// A folder, and no link to one.
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a tree, whatever is in it. Gone already is a success. Nobody may add to it meanwhile.
pub fn remove_all(path: &Path) -> io::Result<()> {
    match remove_shallow(path) {
        // What somebody else removes meanwhile need not be opened.
        Err(error) if is_stubborn(&error) => {
            unless_gone(flatten(path))?;
            unless_gone(remove_shallow(path))
        }
        removed => unless_gone(removed),
    }
}

/// Removes a tree, if it is not too deep.
fn remove_shallow(path: &Path) -> io::Result<()> {
    let folder = match rustix::fs::open(path, FOLDER, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) if path.is_symlink() => return fs::remove_file(path),
        folder => folder?,
    };
    empty(folder.as_fd(), 0)?;
    Ok(rustix::fs::unlinkat(CWD, path, AtFlags::REMOVEDIR)?)
}

fn empty(folder: BorrowedFd<'_>, depth: u32) -> Result<(), Errno> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let Some((name, kind)) = inside(folder, &entry)? else { continue };
        if kind != FileType::Directory {
            unless_missing(rustix::fs::unlinkat(folder, name, AtFlags::empty()))?;
            continue;
        }
        if depth == DEEPEST {
            return Err(Errno::NAMETOOLONG);
        }
        if let Some(inner) = unless_missing(rustix::fs::openat(folder, name, FOLDER, Mode::empty()))? {
            empty(inner.as_fd(), depth + 1)?;
        }
        unless_missing(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR))?;
    }
    Ok(())
}

fn unless_missing<T>(done: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match done {
        Err(Errno::NOENT) => Ok(None),
        done => done.map(Some),
    }
}

fn is_stubborn(error: &io::Error) -> bool {
    let errors = [Errno::ACCESS, Errno::PERM, Errno::MFILE, Errno::NFILE, Errno::NAMETOOLONG];
    Errno::from_io_error(error).is_some_and(|error| errors.contains(&error))
}

/// Opens all folders of a tree for their owner, and moves those that are too deep to its top.
fn flatten(path: &Path) -> io::Result<()> {
    let top = match open(CWD, path.as_os_str()) {
        Err(Errno::NOENT) => return Ok(()),
        top => top?,
    };
    let mut moved = 0_u64;
    let mut left = folders(top.as_fd())?;
    while let Some(name) = left.pop() {
        descend(open(top.as_fd(), &name)?, 1, &mut |folder, name| {
            let new = OsString::from(format!(".deep-{}-{moved}", std::process::id()));
            moved += 1;
            rustix::fs::renameat(folder, name, &top, &new)?;
            left.push(new);
            Ok(())
        })?;
    }
    Ok(())
}

type Move<'m> = dyn FnMut(BorrowedFd<'_>, &OsStr) -> io::Result<()> + 'm;

fn descend(folder: OwnedFd, depth: u32, move_up: &mut Move<'_>) -> io::Result<()> {
    for name in folders(folder.as_fd())? {
        if depth == DEEPEST {
            // What is moved to another folder must be writable itself.
            drop(open(folder.as_fd(), &name)?);
            move_up(folder.as_fd(), &name)?;
        } else {
            descend(open(folder.as_fd(), &name)?, depth + 1, move_up)?;
        }
    }
    Ok(())
}

/// Opens a folder, and no link to one, so that its owner may do everything in it.
fn open(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let opened = match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(folder, name, FOLDER, Mode::empty())?
        }
        opened => opened?,
    };
    rustix::fs::fchmod(&opened, Mode::RWXU)?;
    Ok(opened)
}

fn folders(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if let Some((name, FileType::Directory)) = inside(folder, &entry)? {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// The name of an entry, and what it is; none if it is the folder itself or the one above, or gone.
fn inside<'e>(folder: BorrowedFd<'_>, entry: &'e DirEntry) -> Result<Option<(&'e OsStr, FileType)>, Errno> {
    let name = OsStr::from_bytes(entry.file_name().to_bytes());
    if name == "." || name == ".." {
        return Ok(None);
    }
    let kind = match entry.file_type() {
        FileType::Unknown => {
            let found = unless_missing(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))?;
            found.map(|found| FileType::from_raw_mode(found.st_mode))
        }
        kind => Some(kind),
    };
    Ok(kind.map(|kind| (name, kind)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// In memory, where there is such a folder: it is made and removed in no time.
    fn base() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
    }

    fn make(tree: &Path, depth: usize) {
        fs::create_dir(tree).unwrap();
        let mut deep = open(CWD, tree.as_os_str()).unwrap();
        for depth in 0..depth {
            rustix::fs::mkdirat(&deep, "d", Mode::RWXU).unwrap();
            if depth % 250 == 0 {
                rustix::fs::symlinkat(tree.parent().unwrap(), &deep, "link").unwrap();
                rustix::fs::mkdirat(&deep, "beside", Mode::empty()).unwrap();
            }
            deep = open(deep.as_fd(), OsStr::new("d")).unwrap();
        }
    }

    #[test]
    fn folders_in_folders_are_removed_however_many_there_are() {
        let base = base();
        let tree = base.path().join("tree");
        fs::write(base.path().join("precious"), "kept").unwrap();
        make(&tree, 1000);
        // Services may have a thousand by default; fewer take less time here.
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let few = rustix::process::Rlimit { current: Some(256), ..before };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
        let removed = remove_all(&tree);
        rustix::process::setrlimit(rustix::process::Resource::Nofile, before).unwrap();
        removed.unwrap();
        assert!(!tree.exists());
        remove_all(&tree).unwrap();
        assert_eq!(fs::read_to_string(base.path().join("precious")).unwrap(), "kept");
    }

    #[test]
    fn folders_in_folders_do_not_end_the_process_where_many_files_may_be_open() {
        let base = base();
        let tree = base.path().join("tree");
        make(&tree, 3000);
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let many = rustix::process::Rlimit { current: before.maximum, ..before };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, many).unwrap();
        let tree_in_thread = tree.clone();
        // As threads have of a megabyte or two, with a tree of tens of thousands.
        let small = std::thread::Builder::new().stack_size(192 << 10);
        small.spawn(move || remove_all(&tree_in_thread)).unwrap().join().unwrap().unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_link_is_removed_and_not_what_it_leads_to() {
        let base = base();
        fs::write(base.path().join("precious"), "kept").unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        remove_all(&link).unwrap();
        assert!(!link.is_symlink() && base.path().join("precious").exists());
        remove_all(&base.path().join("precious")).unwrap_err();
    }

    #[test]
    fn folders_that_forbid_it_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let tree = base.path().join("tree");
        fs::create_dir_all(tree.join("closed/inside")).unwrap();
        fs::write(tree.join("closed/inside/file"), "").unwrap();
        for folder in ["closed/inside", "closed"] {
            fs::set_permissions(tree.join(folder), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_all(&tree).unwrap();
        assert!(!tree.exists());
    }
}
