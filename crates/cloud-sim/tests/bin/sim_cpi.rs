//! The CPI as a process, for tests: `sim-cpi [CONFIG]`.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let config = std::env::args_os().nth(1).map(PathBuf::from);
    windlass_cloud_sim::serve(config.as_deref())
}
