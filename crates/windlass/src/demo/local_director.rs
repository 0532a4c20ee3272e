//! The demo's director: a child process of its own, as a user would start it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use windlass_cloud_local::Isolation;
use windlass_durable::kill_point;
use windlass_durable::process::ProcessIdentity;

use super::DemoError;

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A director that runs.
#[derive(Debug)]
pub(super) struct LocalDirector {
    child: Child,
    identity: ProcessIdentity,
}

impl LocalDirector {
    /// Starts a director, which does not answer yet.
    pub(super) fn spawn(executable: &Path, state_dir: &Path, isolation: Isolation) -> io::Result<Self> {
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
        Ok(Self { child, identity: ProcessIdentity::of(pid)? })
    }

    /// Waits until it answers.
    pub(super) async fn ready(&mut self, state_dir: &Path) -> Result<(), DemoError> {
        let deadline = Instant::now() + START;
        // The director writes it last.
        while !state_dir.join("env.sh").exists() {
            let ended = self.child.try_wait().ok().flatten().is_some();
            if ended || Instant::now() > deadline {
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
        self.identity.signal(Signal::TERM)?;
        if tokio::time::timeout(STOP, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}

fn log_of(state_dir: &Path) -> PathBuf {
    state_dir.join("director.log")
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}
