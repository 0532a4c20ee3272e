//! The programs that are installed beside this one, and those of the machine.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The command to which `local …` or `sim …` is added: the program for CPI calls if it stands beside this one, as it does
/// in every build, and otherwise this one.
pub fn cpi_command() -> io::Result<(PathBuf, Vec<OsString>)> {
    let this = std::env::current_exe()?;
    let small = this.with_file_name("windlass-cpi");
    Ok(if small.is_file() { (small, Vec::new()) } else { (this, vec!["cpi".into()]) })
}

/// The agent beside this program, which is small and needs no libraries. Without one it is this program, which is the agent
/// when it is called `bosh-agent`.
pub fn agent() -> io::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let beside = this.with_file_name("windlass-agent");
    Ok(if beside.is_file() { beside } else { this })
}

/// Where a program of this machine is. Debian keeps some in folders that are not in the `PATH` of ordinary users.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
