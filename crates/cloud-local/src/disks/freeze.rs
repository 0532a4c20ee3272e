//! A mounted file system that holds still while its image is copied.
//!
//! A keeper freezes it and thaws it when we say so, or when we are gone: it waits for the end of a pipe that ends with
//! us. Should the keeper be killed as well, a mark in the disk's folder tells the next call what to thaw.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use windlass_durable::{file, kill_point};

use super::error::{DiskError, io_error};
use super::tool::{FSFREEZE, ToolError};

/// The mark in a disk's folder: a file with the mount point that is frozen.
const MARK: &str = "frozen";

/// Says when it is done, and waits for us.
const KEEPER: &str = r#""$1" --freeze "$2" || exit; echo frozen; cat > /dev/null; "$1" --unfreeze "$2""#;

/// What it says of a file system that is not frozen, or not there any more; that is what we want.
const NOT_FROZEN: [&str; 3] = ["Invalid argument", "No such file", "not a directory"];

/// A frozen file system. Thawed at the latest when this is dropped.
#[derive(Debug)]
pub(super) struct Frozen {
    keeper: Child,
    disk: PathBuf,
}

/// Freezes what is mounted at `point` for the disk in the folder `disk`. The caller has made sure that it is the disk's own
/// file system, and holds the disk's lock, which the keeper shares.
pub(super) fn freeze(disk: &Path, point: &Path) -> Result<Frozen, DiskError> {
    let program = FSFREEZE.path()?;
    let mark = disk.join(MARK);
    file::write(&mark, point.as_os_str().as_bytes(), file::PRIVATE).map_err(io_error("write", &mark))?;
    let mut keeper = Command::new("sh");
    // In a group of its own: a caller that loses patience kills ours.
    keeper.args(["-c", KEEPER, "sh"]).arg(program).arg(point).process_group(0);
    keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    kill_point("before the freeze");
    let keeper = keeper.spawn().map_err(io_error("freeze", point))?;
    let mut frozen = Frozen { keeper, disk: disk.to_owned() };
    let mut line = String::new();
    let stdout = frozen.keeper.stdout.take();
    let read = stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
    kill_point("after the freeze");
    read.map_err(io_error("freeze", point))?;
    if line.trim() == "frozen" {
        return Ok(frozen);
    }
    let mut said = String::new();
    if let Some(mut stderr) = frozen.keeper.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
    }
    Err(ToolError::Failed { program: "fsfreeze", code: None, said: said.trim().to_owned() }.into())
}

impl Frozen {
    /// Lets the file system go on.
    pub(super) fn thaw(mut self) -> Result<(), DiskError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DiskError> {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
        kill_point("after the thaw");
        thaw_leftover(&self.disk)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Whether a call has frozen the disk in the folder `disk`, or was killed when it had.
pub(crate) fn is_marked(disk: &Path) -> bool {
    disk.join(MARK).exists()
}

/// Thaws what a killed call may have left frozen. Called after the disk is locked, before anything else.
pub(super) fn thaw_leftover(disk: &Path) -> Result<(), DiskError> {
    let mark = disk.join(MARK);
    let point = match fs::read(&mark) {
        Ok(point) => PathBuf::from(OsStr::from_bytes(&point)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("read", &mark)(error)),
    };
    match FSFREEZE.run([OsStr::new("--unfreeze"), point.as_os_str()]) {
        Err(ToolError::Failed { said, .. }) if NOT_FROZEN.iter().any(|words| said.contains(words)) => {}
        other => {
            other?;
        }
    }
    file::remove_file(&mark).map_err(io_error("remove", &mark))
}
