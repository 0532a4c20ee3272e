//! The CPIs of the built-in clouds, and the supervisor of a VM, in a program of their own.
//!
//! A director starts a CPI for every call, so what it costs to start one counts. `windlass cpi …` does the same, but a
//! process of that size takes longer to start than most calls take; where this program stands beside it, it is used.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_durable::core_files::forbid();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        ["incus", "--config", _] => windlass_cloud_incus::serve(Path::new(&arguments[2])),
        ["local", "--config", _] => windlass_cloud_local::serve(Path::new(&arguments[2])),
        ["sim"] => windlass_cloud_sim::serve(None),
        ["sim", "--config", _] => windlass_cloud_sim::serve(Some(Path::new(&arguments[2]))),
        ["vm-root", ..] => windlass_cloud_local::vm_root(&arguments[1..]),
        ["vm-run", _] => windlass_cloud_local::vm_run(Path::new(&arguments[1])),
        _ => {
            let _ = writeln!(
                std::io::stderr(),
                "usage: windlass-cpi incus --config FILE | local --config FILE | sim [--config FILE]"
            );
            ExitCode::from(2)
        }
    }
}
