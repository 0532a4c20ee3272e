//! The demo's director: a child process of its own, as a user would start it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::Instant;
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
    /// Starts a director and waits until it answers.
    pub(super) async fn start(executable: &Path, state_dir: &Path, log: &Path) -> Result<Self, DemoError> {
        let spawn = || -> io::Result<(Child, ProcessIdentity)> {
            let output = File::create(log)?;
            kill_point("before the director is spawned");
            let child = Command::new(executable)
                .args(["director", "--listen", "127.0.0.1:0", "--name", "demo", "--state-dir"])
                .arg(state_dir)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output)
                // Ctrl-C is for the demo, which needs the director to clean up.
                .process_group(0)
                .spawn()?;
            let pid = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
            Ok((child, ProcessIdentity::of(pid)?))
        };
        let (child, identity) = spawn().map_err(|source| DemoError::Spawn { what: "the director", source })?;
        let mut director = Self { child, identity };
        let deadline = Instant::now() + START;
        while !env_sh(state_dir).exists() {
            let ended = director.child.try_wait().ok().flatten().is_some();
            if ended || Instant::now() > deadline {
                let _ = director.stop().await;
                return Err(DemoError::DirectorStart(last_line(log)));
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(director)
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

fn env_sh(state_dir: &Path) -> PathBuf {
    state_dir.join("env.sh")
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}
