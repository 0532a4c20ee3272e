//! A folder with credentials that goes with the process that needs it, also when that is killed.
//!
//! A small shell in a process group of its own waits for the end of a pipe whose other end only we hold. When we are gone, however
//! that came, the pipe ends, and it removes the folder.

use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use windlass_durable::file;

const SCRIPT: &str = "trap '' HUP INT TERM; read -r word; [ \"$word\" = keep ] || rm -rf -- \"$FOLDER\"";

/// A private folder. Dropping it removes it.
#[derive(Debug)]
pub struct SecretFolder {
    path: PathBuf,
    watcher: Option<Child>,
}

impl SecretFolder {
    /// Makes the folder; what an earlier run left there goes first.
    pub fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let mut shell = Command::new("/bin/sh");
        // In its environment: everybody on the machine reads command lines, and could make the folder first.
        shell.args(["-c", SCRIPT]).env("FOLDER", &path).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watcher = std::os::unix::process::CommandExt::process_group(&mut shell, 0).spawn()?;
        let folder = Self { path, watcher: Some(watcher) };
        // The watcher runs already: secrets of an earlier run are gone however this one ends.
        file::remove(&folder.path)?;
        if let Some(parent) = folder.path.parent() {
            file::create_private_dir(parent)?;
        }
        // One that is there by now is somebody else's.
        std::fs::DirBuilder::new().mode(0o700).create(&folder.path)?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on the folder stays.
    pub fn keep(mut self) -> io::Result<PathBuf> {
        if let Some(mut watcher) = self.watcher.take() {
            if let Some(mut pipe) = watcher.stdin.take() {
                pipe.write_all(b"keep\n")?;
            }
            watcher.wait()?;
        }
        Ok(self.path.clone())
    }
}

impl Drop for SecretFolder {
    fn drop(&mut self) {
        let Some(mut watcher) = self.watcher.take() else { return };
        // In place: the watcher of a process that is killed meanwhile knows no other name.
        if let Err(error) = file::remove(&self.path) {
            // The watcher tries again.
            let _ = writeln!(io::stderr(), "cannot remove {}: {error}", self.path.display());
        }
        drop(watcher.stdin.take());
        let _ = watcher.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::mode;

    /// Who made it would put programs of theirs into it.
    #[test]
    fn a_folder_that_somebody_makes_meanwhile_is_not_used() {
        use std::os::unix::fs::MetadataExt;
        use std::sync::atomic::{AtomicBool, Ordering};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("releases");
        let ended = AtomicBool::new(false);
        let is_ours = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777 == 0o700;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let _ = std::fs::create_dir(&path);
                }
            });
            for _ in 0..50 {
                if let Ok(secret) = SecretFolder::new(&path) {
                    assert!(is_ours(secret.path()));
                }
            }
            ended.store(true, Ordering::Relaxed);
        });
        let watched = SecretFolder::new(&path).unwrap();
        let pid = watched.watcher.as_ref().unwrap().id();
        let told = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!told.contains("releases"), "{told}");
    }

    #[test]
    fn it_goes_when_it_is_dropped_or_its_process_dies_and_stays_when_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs");
        let secret = SecretFolder::new(&path).unwrap();
        std::fs::write(secret.path().join("key"), "secret").unwrap();
        assert_eq!(mode(&path), 0o700);
        drop(secret);
        assert!(!path.exists());

        // A kill closes the pipe and does nothing else.
        let mut killed = SecretFolder::new(&path).unwrap();
        std::fs::write(path.join("key"), "secret").unwrap();
        let mut watcher = killed.watcher.take().unwrap();
        drop(watcher.stdin.take());
        watcher.wait().unwrap();
        assert!(!path.exists());

        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("old"), "secret").unwrap();
        let kept = SecretFolder::new(&path).unwrap();
        assert!(!path.join("old").exists(), "what an earlier run left is gone");
        assert_eq!(kept.keep().unwrap(), path);
        assert!(path.exists());
    }
}
