//! `create-release --final --tarball FILE` as a process, for tests that kill it: `create-release DIRECTORY CACHE FILE`.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use windlass_release_author::{AuthorError, Create, ReleaseDirectory};

fn create(directory: &Path, cache: &Path, tarball: &Path) -> Result<(), AuthorError> {
    let directory = ReleaseDirectory::at(directory)?.with_cache(cache);
    let options = Create { is_final: true, force: true, ..Create::default() };
    directory.create(&options, &mut |_| {})?.write_tarball(tarball, &[])
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [directory, cache, tarball] = &arguments[..] else { return ExitCode::FAILURE };
    match create(directory.as_ref(), cache.as_ref(), tarball.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}
