//! Locks between processes. The kernel releases them when their holder dies, however it dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A lock that is held as long as this lives.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

/// How often a waiting process looks again.
const RETRY: Duration = Duration::from_millis(5);

impl FileLock {
    /// Takes the lock at `path`, waiting for it up to `patience`.
    pub fn acquire(path: &Path, patience: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(lock);
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("another process holds {} for more than {patience:?}", path.display()),
                ));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Takes the lock at `path` if nobody holds it.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                // The process that held it may have removed the file: a lock on a removed file keeps nobody out.
                Ok(()) if is_at(&file, path)? => return Ok(Some(Self { file })),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Takes the lock at `path` if nobody keeps it. A process that is killed while it starts another one holds its locks until that
    /// one has begun, so a lock that is free within a second counts as free.
    pub fn acquire_unless_kept(path: &Path) -> io::Result<Option<Self>> {
        match Self::acquire(path, Duration::from_secs(1)) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// From now on the children of this process hold the lock with it: whatever they are in the middle of when it is
    /// killed, the next holder finds it done.
    pub fn share_with_children(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty())?)
    }

    /// Whether somebody holds the lock at `path`.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        if !path.try_exists()? {
            return Ok(false);
        }
        Ok(Self::try_acquire(path)?.is_none())
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing is emptied, and a lock file has nothing in it")]
fn open(path: &Path) -> io::Result<File> {
    // Where others can write, a link could have us make a file elsewhere.
    let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).custom_flags(flags).open(path)
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A folder of locks, one per resource.
#[derive(Debug, Clone)]
pub struct Locks {
    folder: PathBuf,
}

impl Locks {
    /// Locks in `folder`, which must exist.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Takes the lock of `resource`, a name without slashes.
    pub fn acquire(&self, resource: &str, patience: Duration) -> io::Result<FileLock> {
        if resource.contains('/') || resource.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("'{resource}' cannot name a lock")));
        }
        FileLock::acquire(&self.folder.join(resource), patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_keeps_others_out_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        assert!(!FileLock::is_held(&path).unwrap());
        let held = FileLock::acquire(&path, Duration::ZERO).unwrap();
        assert!(FileLock::is_held(&path).unwrap());
        let refused = FileLock::acquire(&path, Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(held);
        FileLock::acquire(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_lock_that_is_let_go_at_once_is_taken_and_one_that_is_kept_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = FileLock::acquire(&path, Duration::ZERO).unwrap();
        let begun = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                std::thread::sleep(Duration::from_millis(50));
                drop(held);
            });
            begun.wait();
            let taken = FileLock::acquire_unless_kept(&path).unwrap();
            assert!(taken.is_some());
            assert!(FileLock::acquire_unless_kept(&path).unwrap().is_none());
        });
    }

    #[test]
    fn a_child_that_shares_the_lock_keeps_it_when_its_parent_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = FileLock::acquire(&path, Duration::ZERO).unwrap();
        lock.share_with_children().unwrap();
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        drop(lock);
        assert!(FileLock::is_held(&path).unwrap());
        drop(child.stdin.take());
        child.wait().unwrap();
        FileLock::acquire(&path, Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_removed_by_its_holder_is_not_mistaken_for_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = FileLock::acquire(&path, Duration::ZERO).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = FileLock::acquire(&path, Duration::ZERO).unwrap();
        drop(first);
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        drop(second);
    }
}
