//! Programs of this machine that do what needs them: make, check and grow file systems, find loop devices, freeze.
//!
//! The loop device's own calls would need either unsafe code or a crate that wants a C compiler's headers at build time;
//! `mount` and `losetup` come with every system that can run containers, and `mount` lets the kernel release the
//! loop device with the last mount, also after a kill.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use windlass_durable::kill_point;

/// A program, and the package that has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool {
    program: &'static str,
    package: &'static str,
}

pub(super) const MKFS: Tool = Tool { program: "mkfs.ext4", package: "e2fsprogs" };
pub(super) const E2FSCK: Tool = Tool { program: "e2fsck", package: "e2fsprogs" };
pub(super) const RESIZE2FS: Tool = Tool { program: "resize2fs", package: "e2fsprogs" };
pub(super) const MOUNT: Tool = Tool { program: "mount", package: "mount" };
pub(super) const LOSETUP: Tool = Tool { program: "losetup", package: "mount" };
pub(super) const FSFREEZE: Tool = Tool { program: "fsfreeze", package: "util-linux" };

/// Where these programs are, whatever the caller's PATH says: they seldom are on that of a service.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// why a program did not do its work
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// it is not installed
    #[error("'{program}' is missing on this machine; install the package {package}")]
    Missing { program: &'static str, package: &'static str },
    /// it could not be started
    #[error("cannot run '{program}'")]
    Run {
        program: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("'{program}' failed: {said}")]
    Failed { program: &'static str, code: Option<i32>, said: String },
}

impl Tool {
    /// The program itself.
    pub(super) fn path(self) -> Result<PathBuf, ToolError> {
        let named = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&named)
            .chain(FOLDERS.map(PathBuf::from))
            .map(|folder| folder.join(self.program))
            .find(|path| path.is_absolute() && path.is_file())
            .ok_or(ToolError::Missing { program: self.program, package: self.package })
    }

    /// Runs it and answers what it printed.
    pub(super) fn run<I>(self, arguments: I) -> Result<String, ToolError>
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut command = Command::new(self.path()?);
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
        kill_point("before a tool runs");
        let output = command.output().map_err(|source| ToolError::Run { program: self.program, source })?;
        kill_point("after a tool ran");
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        let said = if said.is_empty() { output.status.to_string() } else { said };
        Err(ToolError::Failed { program: self.program, code: output.status.code(), said })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_named_with_its_package() {
        let error = Tool { program: "windlass-no-such-tool", package: "e2fsprogs" }.run(["x"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "'windlass-no-such-tool' is missing on this machine; install the package e2fsprogs"
        );
    }

    #[test]
    fn what_a_tool_complains_of_is_told() {
        let error = Tool { program: "ls", package: "coreutils" }.run(["/nowhere/at/all"]).unwrap_err();
        assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    }
}
