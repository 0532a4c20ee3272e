//! A busybox: one static program that is a shell and the usual commands.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use windlass_durable::kill_point;

use crate::program;

/// A static busybox and the names under which it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Busybox {
    pub(crate) program: PathBuf,
    pub(crate) applets: Vec<String>,
}

/// Not linked: who finds an init takes it for the one that starts the agent.
const LEFT_OUT: [&str; 3] = ["busybox", "init", "linuxrc"];

impl Busybox {
    /// Asks the program at `path` what it can do.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        if !program::is_static(path) {
            return Err(io::Error::other("it is not a static program; the package 'busybox-static' has one"));
        }
        kill_point("before busybox is asked for its commands");
        let output = Command::new(path).arg("--list").stdin(Stdio::null()).output()?;
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_name = |name: &&str| !name.is_empty() && !name.contains('/') && !LEFT_OUT.contains(name);
        let applets: Vec<String> = names.lines().map(str::trim).filter(is_name).map(str::to_owned).collect();
        if !output.status.success() || !applets.iter().any(|name| name == "sh") {
            return Err(io::Error::other("it does not list its commands with --list, or has no 'sh' among them"));
        }
        Ok(Self { program: path.to_owned(), applets })
    }
}

/// A static busybox on the path of this process, if there is one.
pub fn find_busybox() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join("busybox")).find(|path| program::is_static(path))
}
