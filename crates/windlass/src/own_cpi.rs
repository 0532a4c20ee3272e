//! How our own CPIs are started.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The command to which `local …` or `sim …` is added: the program for CPI calls if it stands beside this one, as it does
/// in every build, and otherwise this one.
pub(crate) fn command() -> io::Result<(PathBuf, Vec<OsString>)> {
    let this = std::env::current_exe()?;
    let small = this.with_file_name("windlass-cpi");
    Ok(if small.is_file() { (small, Vec::new()) } else { (this, vec!["cpi".into()]) })
}
