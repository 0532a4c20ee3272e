//! Files of the VM, to somebody and from somebody.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use windlass_archive::copies::{CopyError, pack, unpack};

/// Gives a file or folder as an archive. What is left out of it is told, and makes the copy fail in the end.
pub(super) fn send(path: &Path, recursive: bool) -> Result<ExitCode, CopyError> {
    let mut is_whole = true;
    let mut leave_out = |path: &Path, why: &str| {
        is_whole = false;
        let _ = writeln!(io::stderr(), "{} is left out: {why}", path.display());
    };
    pack(&[path.to_owned()], recursive, BufWriter::with_capacity(1 << 16, io::stdout().lock()), &mut leave_out)?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes an archive.
pub(super) fn receive(path: &Path) -> Result<ExitCode, CopyError> {
    unpack(io::stdin().lock(), path, &[], true).map(|()| ExitCode::SUCCESS)
}
