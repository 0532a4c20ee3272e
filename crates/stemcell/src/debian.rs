//! A Debian system, made by `mmdebstrap`.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Child, ChildStdout, Command, Stdio};

use windlass_durable::kill_point;

/// Which system to make.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Debian {
    /// The release, such as `bookworm`.
    pub suite: String,
    /// Where packages come from; mmdebstrap knows if nobody says.
    pub mirror: Option<String>,
    /// Packages on top of the smallest system.
    pub packages: Vec<String>,
}

/// a Debian system that cannot be made
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// mmdebstrap is not there
    #[error(
        "mmdebstrap is not installed; install the package 'mmdebstrap', or name a root file system of your own with --rootfs"
    )]
    NotInstalled,
    /// mmdebstrap cannot be started
    #[error("mmdebstrap cannot be started")]
    Start(#[source] io::Error),
    /// a word that would be taken for something else
    #[error("'{0}' is neither a suite, a mirror nor a package")]
    Word(String),
    #[error("mmdebstrap could not make '{suite}' and ended with {status}{}; it said: {said}", remedy(said))]
    Failed {
        suite: String,
        /// How it ended.
        status: String,
        /// Its last words.
        said: String,
    },
}

/// What helps against what mmdebstrap says most often.
fn remedy(said: &str) -> &'static str {
    if said.contains("Temporary failure resolving") || said.contains("Could not connect") {
        "; check that this machine reaches the internet, or name a mirror that it reaches with --mirror"
    } else if said.contains("chroot mode") {
        "; run it as root, or install the package 'uidmap' and give this user a line in /etc/subuid and /etc/subgid"
    } else if said.contains("does not have a Release file") || said.contains("404") {
        "; check the name of the suite, such as bookworm"
    } else {
        ""
    }
}

/// What jobs and agents use and the smallest system lacks.
const PACKAGES: [&str; 3] = ["ca-certificates", "iproute2", "procps"];

/// An mmdebstrap that writes a tar. It is always waited for, so that it can remove what it made.
pub(crate) struct Bootstrap {
    child: Child,
    output: Option<ChildStdout>,
    log: File,
    suite: String,
}

impl Bootstrap {
    pub(crate) fn start(debian: &Debian) -> Result<Self, DebianError> {
        let words = debian.packages.iter().chain([&debian.suite]).chain(&debian.mirror);
        for word in words {
            if word.is_empty()
                || word.starts_with('-')
                || word.contains(|letter: char| letter.is_whitespace() || letter == ',')
            {
                return Err(DebianError::Word(word.clone()));
            }
        }
        let packages: Vec<&str> = PACKAGES.into_iter().chain(debian.packages.iter().map(String::as_str)).collect();
        let log = tempfile::tempfile().map_err(DebianError::Start)?;
        let mut command = Command::new("mmdebstrap");
        command
            .args(["--variant=minbase", "--format=tar"])
            .arg(format!("--include={}", packages.join(",")))
            .args([debian.suite.as_str(), "-"])
            .args(debian.mirror.as_deref())
            // Dates inside files, such as that of the last change of a password, become the same each time.
            .env("SOURCE_DATE_EPOCH", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().map_err(DebianError::Start)?);
        kill_point("before mmdebstrap starts");
        let mut child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DebianError::NotInstalled,
            _ => DebianError::Start(error),
        })?;
        let output = child.stdout.take();
        Ok(Self { child, output, log, suite: debian.suite.clone() })
    }

    /// The tar.
    pub(crate) fn output(&mut self) -> Option<&mut ChildStdout> {
        self.output.as_mut()
    }

    /// Waits for its end. What it said is told if it failed, because then the tar ended too early as well.
    pub(crate) fn end(mut self) -> Result<(), DebianError> {
        drop(self.output.take());
        let status = self.child.wait().map_err(DebianError::Start)?;
        if status.success() {
            return Ok(());
        }
        let mut said = String::new();
        let _ = self.log.rewind().and_then(|()| (&mut self.log).take(1024 * 1024).read_to_string(&mut said));
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let errors: Vec<&str> = lines.iter().filter(|line| line.starts_with("E:")).copied().collect();
        let last = if errors.is_empty() { &lines[lines.len().saturating_sub(3)..] } else { &errors[..] };
        Err(DebianError::Failed { suite: self.suite.clone(), status: status.to_string(), said: last.join("; ") })
    }
}

impl Drop for Bootstrap {
    fn drop(&mut self) {
        // Nobody reads on: its next write ends it, and it cleans up. Asked as well, because that may take long.
        drop(self.output.take());
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed())
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What mmdebstrap 1.3 said on a machine without a network, and to a user without subordinate ids.
    #[test]
    fn who_cannot_make_a_debian_is_told_what_helps() {
        let failed = |said: &str| {
            let (suite, status) = ("bookworm".to_owned(), "exit status: 25".to_owned());
            DebianError::Failed { suite, status, said: said.to_owned() }.to_string()
        };
        let offline = failed("E: Failed to fetch InRelease Temporary failure resolving 'deb.debian.org'");
        assert!(
            offline.contains("reaches the internet, or name a mirror that it reaches with --mirror; it said: E:"),
            "{offline}"
        );
        let user = failed("E: unable to pick chroot mode automatically (use --mode for manual selection)");
        assert!(user.contains("run it as root, or install the package 'uidmap'"), "{user}");
        assert_eq!(
            failed("E: no"),
            "mmdebstrap could not make 'bookworm' and ended with exit status: 25; it said: E: no"
        );
    }
}
