//! A folder with credentials that goes with the process that needs it, also when that is killed.
//!
//! A small shell in a process group of its own waits for the end of a pipe whose other end only we hold. When we are gone, however
//! that came, the pipe ends, and it removes the folder.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use windlass_durable::file;

const SCRIPT: &str = "trap '' HUP INT TERM; read -r word; [ \"$word\" = keep ] || rm -rf -- \"$1\"";

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
        shell.args(["-c", SCRIPT, "sh"]).arg(&path).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watcher = std::os::unix::process::CommandExt::process_group(&mut shell, 0).spawn()?;
        let folder = Self { path, watcher: Some(watcher) };
        // The watcher runs already: secrets of an earlier run are gone however this one ends.
        file::remove(&folder.path)?;
        file::create_private_dir(&folder.path)?;
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
