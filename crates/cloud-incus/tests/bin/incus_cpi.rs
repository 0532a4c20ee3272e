//! `windlass cpi incus` alone, for the tests of this crate.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match arguments.get(1) {
        Some(config) => windlass_cloud_incus::serve(Path::new(config)),
        None => ExitCode::from(2),
    }
}
