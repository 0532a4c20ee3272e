//! The one place where programs of the machine are run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use windlass_durable::kill_point;

/// How long a program may take: a file system on a large disk is made in minutes.
const PATIENCE: Duration = Duration::from_secs(600);
/// How much of what a failed program said is told, of its beginning and of its end: some tell why first, others last.
const TOLD: usize = 200;

/// why a program did not do what it should
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// it cannot be started
    #[error("cannot run {command}; check that the stemcell has it")]
    Start {
        command: String,
        #[source]
        source: io::Error,
    },
    #[error("{command} failed ({status}): {said}")]
    Failed { command: String, status: ExitStatus, said: String },
    /// it did not end
    #[error("{command} did not end within {patience:?} and was ended")]
    Hung { command: String, patience: Duration },
}

/// A program with its arguments.
#[derive(Debug)]
pub(super) struct Tool {
    command: std::process::Command,
    shown: String,
    input: Option<Vec<u8>>,
    patience: Duration,
}

/// The program `name` with `arguments`.
pub(super) fn tool<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Tool {
    let mut command = std::process::Command::new(name);
    let mut shown = name.to_owned();
    for argument in arguments {
        shown.push(' ');
        shown.push_str(&argument.as_ref().to_string_lossy());
        command.arg(argument);
    }
    // What a program says is read by this one, so it must not be translated.
    command.env("LC_ALL", "C");
    Tool { command, shown, input: None, patience: PATIENCE }
}

/// Whether the machine has a program.
pub(super) fn exists(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

impl Tool {
    /// What the program reads; not shown anywhere, so that it may be a secret.
    pub(super) fn reading(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// How long it may take.
    pub(super) fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs it to its end and returns what it said. Files in memory take the output, because a daemon that the program
    /// leaves behind would keep a pipe open.
    pub(super) fn run(mut self) -> Result<String, CommandError> {
        let start = |source| CommandError::Start { command: self.shown.clone(), source };
        let (output, errors) = (memory().map_err(start)?, memory().map_err(start)?);
        let stdin = match self.input.take() {
            Some(input) => {
                let mut file = memory().map_err(start)?;
                file.write_all(&input).and_then(|()| file.rewind()).map_err(start)?;
                Stdio::from(file)
            }
            None => Stdio::null(),
        };
        let (stdout, stderr) = (output.try_clone().map_err(start)?, errors.try_clone().map_err(start)?);
        kill_point("before a program is run");
        let child = self.command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().map_err(start)?;
        let status = wait(child, self.patience).map_err(start)?;
        kill_point("after a program was run");
        match status {
            None => Err(CommandError::Hung { command: self.shown, patience: self.patience }),
            Some(status) if status.success() => Ok(text(output)),
            Some(status) => {
                let said = [text(errors), text(output)].into_iter().find(|said| !said.is_empty()).unwrap_or_default();
                Err(CommandError::Failed { command: self.shown, status, said: shortened(said) })
            }
        }
    }
}

fn memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("program", MemfdFlags::CLOEXEC)?.into())
}

/// How it ended; none if it had to be ended.
fn wait(mut child: Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

fn text(mut file: File) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is not told; whether the program failed is known without it.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn shortened(said: String) -> String {
    let (first, last) = (said.char_indices().nth(TOLD), said.char_indices().nth_back(TOLD));
    match (first, last) {
        (Some((end, _)), Some((start, _))) if end < start => format!("{}…{}", &said[..end], &said[start..]),
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_heard_and_its_failure_is_told() {
        assert_eq!(tool("sh", ["-c", "cat; echo b"]).reading("a\n").run().unwrap(), "a\nb");
        let error = tool("sh", ["-c", "echo why >&2; exit 3"]).run().unwrap_err();
        assert_eq!(error.to_string(), "sh -c echo why >&2; exit 3 failed (exit status: 3): why");
        assert!(matches!(tool("no-such-program", [""; 0]).run(), Err(CommandError::Start { .. })));
    }

    #[test]
    fn of_a_long_complaint_both_ends_are_told() {
        assert_eq!(shortened("short".to_owned()), "short");
        let told = shortened(format!("why{}end", "ä".repeat(1000)));
        assert!(told.starts_with("why") && told.ends_with("end") && told.chars().count() < 2 * TOLD + 3, "{told}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_a_daemon_keeps_nobody_waiting() {
        let hung = tool("sleep", ["1000"]).within(Duration::from_millis(50)).run();
        assert!(matches!(hung, Err(CommandError::Hung { .. })));
        assert_eq!(tool("sh", ["-c", "sleep 2 & echo started"]).run().unwrap(), "started");
    }
}
