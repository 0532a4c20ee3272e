//! Files and folders that are there as a whole or not at all.

#![expect(clippy::disallowed_methods, reason = "this is where changes pass the hook")]

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use crate::kill_point;

/// Permissions of files that only their owner may read.
pub const PRIVATE: u32 = 0o600;

static FLUSHES: AtomicBool = AtomicBool::new(true);

/// What this process writes from now on survives the end of every process, but a power cut may take it back: for a simulation,
/// whose VMs do not survive that either. Flushing takes a millisecond each time, from everybody on the same disk.
pub fn leave_flushing_to_the_kernel() {
    FLUSHES.store(false, Ordering::Relaxed);
}

fn flush(file: &File) -> io::Result<()> {
    if FLUSHES.load(Ordering::Relaxed) { file.sync_all() } else { Ok(()) }
}

/// Replaces `path` by `bytes` with the given permissions: afterwards, also after a power cut, the file holds either the
/// old content or the new, never a part.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = beside(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| flush(&file)).and_then(|()| rename(&temporary, path));
    if written.is_err() {
        discard(&temporary);
    }
    written
}

/// [`write()`]s `value` as JSON that a person can read.
pub fn write_json(path: &Path, value: &impl Serialize, mode: u32) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    write(path, &bytes, mode)
}

/// Adds `bytes` at the end of a file so that they last. A kill, a power cut or a full disk may leave a part of them.
pub fn append(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    kill_point("before append");
    file.write_all(bytes)?;
    kill_point("after append");
    if FLUSHES.load(Ordering::Relaxed) { file.sync_data() } else { Ok(()) }
}

/// Writes into a file without replacing it: one that the kernel or a container's runtime has put there, or one of which a part
/// does as well as the whole.
pub fn write_in_place(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    kill_point("before a file is written in place");
    fs::write(path, bytes)?;
    kill_point("after a file is written in place");
    Ok(())
}

/// Copies a file so that the copy is there as a whole or not at all.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let temporary = beside(to)?;
    let copied =
        fs::copy(from, &temporary).and_then(|_| flush(&File::open(&temporary)?)).and_then(|()| rename(&temporary, to));
    if copied.is_err() {
        discard(&temporary);
    }
    copied
}

/// Renames, and flushes the folder so that the rename lasts.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    kill_point("before rename");
    fs::rename(from, to)?;
    kill_point("after rename");
    sync_folder_of(to)
}

/// Renames a tree that was just made, so that it is there with all of its content, also after a power cut.
pub fn rename_tree(from: &Path, to: &Path) -> io::Result<()> {
    if FLUSHES.load(Ordering::Relaxed) {
        // One call for thousands of files; what others wrote to the same file system comes along.
        rustix::fs::syncfs(File::open(from)?)?;
    }
    rename(from, to)
}

/// Replaces the symlink at `path`, atomically, by one to `target`.
pub fn symlink(target: &Path, path: &Path) -> io::Result<()> {
    let temporary = beside(path)?;
    std::os::unix::fs::symlink(target, &temporary)?;
    rename(&temporary, path).inspect_err(|_| discard(&temporary))
}

/// Makes a folder, and those above it, that only the owner may enter.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a file; one that is gone already is a success.
pub fn remove_file(path: &Path) -> io::Result<()> {
    kill_point("before remove");
    match fs::remove_file(path) {
        // A folder that goes with the file needs no flush.
        Ok(()) => unless_gone(sync_folder_of(path)),
        error => unless_gone(error),
    }
}

/// Removes a temporary file of our own, if it is there. Nobody reads it, so a kill before this harms nothing.
pub fn discard(temporary: &Path) {
    let _ = fs::remove_file(temporary);
}

/// Removes a file, a link, or a folder with everything in it; what is gone already is a success. Others may see half of a folder
/// meanwhile, and a power cut may bring some of it back: [`remove_tree`] hides it first.
pub fn remove(path: &Path) -> io::Result<()> {
    kill_point("before remove");
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_all(path),
        Ok(_) => unless_gone(fs::remove_file(path)),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(()),
        Err(error) => unless_gone(Err(error)),
    }
}

/// Removes a tree so that nobody ever sees half of it: first it is renamed to a name that starts with
/// [`TRASH_PREFIX`], which readers skip and [`empty_trash`] finishes. One that is gone already is a success.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let trash = beside_with(path, TRASH_PREFIX)?;
    match rename(path, &trash) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    // A process that empties the trash meanwhile does the same.
    remove_all(&trash)
}

pub use crate::deep_trees::remove_all;

pub(crate) fn unless_gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Names of half-written and half-removed things start with one of these; readers of a folder skip them.
pub const TRASH_PREFIX: &str = ".trash-";
const TEMPORARY_PREFIX: &str = ".new-";

/// Whether `name` is something half-written or half-removed.
pub fn is_leftover(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(TRASH_PREFIX) || name.starts_with(TEMPORARY_PREFIX))
}

/// A name beside `path` for building a tree there that [`rename`] then puts in place.
pub fn beside(path: &Path) -> io::Result<PathBuf> {
    beside_with(path, TEMPORARY_PREFIX)
}

fn beside_with(path: &Path, prefix: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::other(format!("{} has no name", path.display())))?;
    let mut unique = std::ffi::OsString::from(prefix);
    unique.push(name);
    unique.push(format!("-{}-{:x}", std::process::id(), unique_number()));
    Ok(path.with_file_name(unique))
}

/// The first is random: a process that was killed may have left its files to one that has the same pid after a boot.
fn unique_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish()));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Finishes removals that were interrupted. Only for folders that the caller has locked.
pub fn empty_trash(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(TRASH_PREFIX)) {
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => flush(&File::open(folder)?),
        _ => flush(&File::open(".")?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        write(&path, b"old", PRIVATE).unwrap();
        write(&path, b"new", PRIVATE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn what_a_killed_process_with_the_same_pid_left_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..1_000 {
            let left = format!("{TEMPORARY_PREFIX}state.json-{}-{number:x}", std::process::id());
            fs::write(folder.path().join(left), b"half").unwrap();
        }
        write(&folder.path().join("state.json"), b"whole", PRIVATE).unwrap();
    }

    #[test]
    fn a_symlink_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("store");
        symlink(Path::new("/a"), &link).unwrap();
        symlink(Path::new("/b"), &link).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/b"));
    }

    #[test]
    fn removing_twice_is_fine_and_trash_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("vm-1");
        fs::create_dir_all(tree.join("deep")).unwrap();
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        fs::create_dir(folder.path().join(".trash-vm-2-1-1")).unwrap();
        empty_trash(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn whatever_stands_there_is_removed_and_nothing_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("tree/deep")).unwrap();
        fs::write(at("file"), "").unwrap();
        symlink(&at("tree"), &at("link")).unwrap();
        for name in ["link", "file", "file/below", "never"] {
            remove(&at(name)).unwrap();
        }
        assert!(at("tree/deep").exists() && !at("file").exists() && fs::symlink_metadata(at("link")).is_err());
        remove(&at("tree")).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_copy_replaces_a_file_or_leaves_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::write(&to, "old").unwrap();
        assert_eq!(copy(&from, &to).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read(&to).unwrap(), b"old");
        fs::write(&from, "new").unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left over");
    }

    #[test]
    fn two_who_remove_a_tree_at_once_both_succeed() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..200 {
            let tree = folder.path().join("vm-1");
            fs::create_dir_all(tree.join("deep")).unwrap();
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    start.wait();
                    remove_tree(&tree).and_then(|()| empty_trash(folder.path()))
                });
                start.wait();
                remove_tree(&tree).and_then(|()| empty_trash(folder.path())).unwrap();
                other.join().unwrap().unwrap();
            });
            assert!(!tree.exists());
        }
    }
}
