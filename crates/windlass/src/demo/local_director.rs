//! The demo's director: a process of its own, as a user would start it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use windlass_cloud_local::Isolation;
use windlass_durable::process::ProcessIdentity;
use windlass_durable::{file, kill_point};

use super::DemoError;

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A director that runs.
#[derive(Debug)]
pub(super) struct LocalDirector {
    identity: ProcessIdentity,
    /// None for the director of an earlier demo.
    _child: Option<Child>,
}

impl LocalDirector {
    /// Starts a director, which does not answer yet, and notes in the demo's `files` which it is.
    pub(super) fn spawn(
        executable: &Path,
        state_dir: &Path,
        files: &Path,
        isolation: Isolation,
    ) -> Result<Self, io::Error> {
        let log = File::create(log_of(state_dir))?;
        kill_point("before the director is spawned");
        let child = Command::new(executable)
            .args(["director", "--listen", "127.0.0.1:0", "--name", "demo"])
            .args(["--isolation", &isolation.to_string(), "--state-dir"])
            .arg(state_dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for the demo, which needs the director to clean up.
            .process_group(0)
            .spawn()?;
        let pid = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        let director = Self { identity: ProcessIdentity::of(pid)?, _child: Some(child) };
        file::write_json(&note_in(files), &director.identity, file::PRIVATE)?;
        Ok(director)
    }

    /// The director of an earlier demo, if it still runs.
    pub(super) fn found(files: &Path) -> Option<Self> {
        let identity: ProcessIdentity = serde_json::from_slice(&std::fs::read(note_in(files)).ok()?).ok()?;
        identity.is_running().then_some(Self { identity, _child: None })
    }

    /// Waits until it answers.
    pub(super) async fn ready(&mut self, state_dir: &Path) -> Result<(), DemoError> {
        let deadline = Instant::now() + START;
        // The director writes it last.
        while !state_dir.join("env.sh").exists() {
            if !self.identity.is_running() || Instant::now() > deadline {
                return Err(DemoError::DirectorStart(last_line(&log_of(state_dir))));
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Asks it to stop; insists if it does not.
    pub(super) async fn stop(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + STOP;
        self.identity.signal(Signal::TERM)?;
        while self.identity.is_running() {
            if Instant::now() > deadline {
                self.identity.signal(Signal::KILL)?;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }
}

fn note_in(files: &Path) -> PathBuf {
    files.join("director.json")
}

fn log_of(state_dir: &Path) -> PathBuf {
    state_dir.join("director.log")
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}
