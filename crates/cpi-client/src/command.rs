//! The executable of a CPI and the environment it runs in.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::CallError;

/// How a CPI is started.
#[derive(Debug, Clone)]
pub struct CpiCommand {
    pub executable: PathBuf,
    /// Its arguments; the originals pass none.
    pub arguments: Vec<OsString>,
    /// What it inherits.
    pub environment: Environment,
}

/// The environment variables of a CPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// As under the original director: a fixed `PATH`, and `TMPDIR` and `HOME` where they are set.
    Director,
    /// As under the original command line: everything that the caller has.
    CommandLine,
}

const DIRECTOR_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

impl CpiCommand {
    /// A command in a process group of its own, with all three streams piped.
    pub(crate) fn build(&self) -> Result<Command, CallError> {
        let not_executable = || CallError::NotExecutable { executable: self.executable.clone() };
        let metadata = std::fs::metadata(&self.executable).map_err(|_| not_executable())?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(not_executable());
        }
        // A bare name would be looked up in PATH, which is not the file that was checked.
        let executable = std::path::absolute(&self.executable).map_err(|_| not_executable())?;
        let mut command = Command::new(executable);
        command.args(&self.arguments);
        if self.environment == Environment::Director {
            command.env_clear().env("PATH", DIRECTOR_PATH);
            for name in ["TMPDIR", "HOME"] {
                if let Some(value) = std::env::var_os(name) {
                    command.env(name, value);
                }
            }
        }
        // Our kill point is not for the CPI.
        command.env_remove(windlass_durable::kill_point::KILL_AT);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}
