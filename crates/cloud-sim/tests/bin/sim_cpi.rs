//! The CPI as a process, for tests: `sim-cpi [CONFIG]`, and the host of the agents: `sim-cpi sim-host DIR`.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match words.as_slice() {
        [verb, state] if verb.as_os_str() == "sim-host" => windlass_cloud_sim::sim_host(state),
        words => windlass_cloud_sim::serve(words.first().map(PathBuf::as_path)),
    }
}
