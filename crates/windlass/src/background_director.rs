//! A director that runs in the background: a process of its own, which writes its log into its state directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;
use windlass_durable::{file, kill_point};

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);
/// What the kernel counts in for programs, on all machines that we are built for.
const TICKS_PER_SECOND: i64 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Where a director keeps its log.
pub(crate) fn log_of(state_dir: &Path) -> PathBuf {
    state_dir.join("director.log")
}

/// Where it is noted which process the director of a state directory is.
fn note_in(state_dir: &Path) -> PathBuf {
    state_dir.join("director.pid")
}

/// A director that runs.
#[derive(Debug)]
pub(crate) struct BackgroundDirector {
    identity: ProcessIdentity,
    /// None for a director that another process started.
    _child: Option<Child>,
}

/// What a director said before it ended.
#[derive(Debug)]
pub(crate) struct NotStarted(pub(crate) String);

impl BackgroundDirector {
    /// Starts a director, which does not answer yet, and notes in its state directory which process it is.
    pub(crate) fn spawn(executable: &Path, state_dir: &Path, arguments: &[&str]) -> io::Result<Self> {
        file::create_private_dir(state_dir)?;
        if FileLock::is_held(&state_dir.join("lock"))? {
            return Err(io::Error::other("a director of which nothing is noted uses it; stop it where it was started"));
        }
        // That of an earlier run does not say that this one answers.
        file::remove_file(&state_dir.join("env.sh"))?;
        // What it says before it has a log, or when it ends badly, goes there as well.
        let log = File::options().create(true).append(true).mode(file::PRIVATE).open(log_of(state_dir))?;
        kill_point("before the director is spawned");
        let child = Command::new(executable)
            .args(["director", "--background", "--state-dir"])
            .arg(state_dir)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        let director = Self { identity: ProcessIdentity::of(pid)?, _child: Some(child) };
        note(state_dir, &director.identity)?;
        Ok(director)
    }

    /// The director of a state directory, if it runs.
    pub(crate) fn found(state_dir: &Path) -> Option<Self> {
        let identity: ProcessIdentity = serde_json::from_slice(&std::fs::read(note_in(state_dir)).ok()?).ok()?;
        identity.is_running().then_some(Self { identity, _child: None })
    }

    /// Waits until it answers.
    pub(crate) async fn ready(&mut self, state_dir: &Path) -> Result<(), NotStarted> {
        let deadline = Instant::now() + START;
        // The director writes it last.
        while !state_dir.join("env.sh").exists() {
            if !self.identity.is_running() || Instant::now() > deadline {
                return Err(NotStarted(last_words(&log_of(state_dir))));
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Since when it runs, in seconds since 1970; none if that cannot be told.
    pub(crate) fn started_at(&self) -> Option<i64> {
        let boot = std::fs::read_to_string("/proc/stat").ok()?;
        let boot: i64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        let ticks = i64::try_from(self.identity.start_time).ok()?;
        Some(boot + ticks / TICKS_PER_SECOND)
    }

    /// Asks it to stop: running tasks are finished first. After a while it is asked to stop them after the step that they are
    /// at, and then made to.
    pub(crate) async fn stop(&mut self) -> io::Result<()> {
        for signal in [Signal::TERM, Signal::TERM, Signal::KILL] {
            self.identity.signal(signal)?;
            let deadline = Instant::now() + STOP;
            while self.identity.is_running() && Instant::now() < deadline {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            if !self.identity.is_running() {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("the process {} does not end", self.identity.pid)))
    }
}

/// Notes which process this director is, for those that look for it.
pub(crate) fn note_own_process(state_dir: &Path) -> io::Result<()> {
    note(state_dir, &ProcessIdentity::of(std::process::id())?)
}

fn note(state_dir: &Path, identity: &ProcessIdentity) -> io::Result<()> {
    file::write_json(&note_in(state_dir), identity, file::PRIVATE)
}

/// Why it ended: the last line of its log that is not about how it ended.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let words = text.lines().map(str::trim).rfind(|line| !line.is_empty() && *line != "Exit code 1");
    words.unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A director of an earlier version notes nothing; who talks to it needs its `env.sh`.
    #[tokio::test]
    async fn a_director_that_uses_the_state_directory_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let _used = FileLock::try_acquire(&folder.path().join("lock")).unwrap().unwrap();
        std::fs::write(folder.path().join("env.sh"), "").unwrap();
        let refused = BackgroundDirector::spawn(Path::new("/bin/false"), folder.path(), &[]).unwrap_err();
        assert!(refused.to_string().contains("stop it where it was started"), "{refused}");
        assert!(folder.path().join("env.sh").exists());
    }

    #[test]
    fn who_starts_a_director_is_told_why_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(last_words(&log), "it said nothing");
        std::fs::write(&log, "INFO begins\ncannot listen on 127.0.0.1:1\n\nExit code 1\n").unwrap();
        assert_eq!(last_words(&log), "cannot listen on 127.0.0.1:1");
    }
}
