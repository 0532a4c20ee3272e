//! The CPI and the supervisor as a process, for tests: `local-cpi cpi CONFIG`, `local-cpi vm-run DIR` and `local-cpi vm-root …`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cpi", config] => windlass_cloud_local::serve(Path::new(config)),
        ["vm-run", folder] => windlass_cloud_local::vm_run(Path::new(folder)),
        ["vm-root", ..] => windlass_cloud_local::vm_root(&std::env::args_os().skip(2).collect::<Vec<_>>()),
        _ => ExitCode::FAILURE,
    }
}
