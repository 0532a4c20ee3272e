//! The supervisor as a process, for tests: `supervisor run FOLDER CYCLE [GROUP]` with a cycle in milliseconds and perhaps the
//! control group of services, and its launcher.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use windlass_supervise::Settings;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match &arguments[..] {
        [verb, rest @ ..] if verb == "launch" => windlass_supervise::launch(rest),
        [verb, folder, cycle, groups @ ..] if verb == "run" => {
            let Some(cycle) = cycle.to_str().and_then(|cycle| cycle.parse().ok()) else { return ExitCode::FAILURE };
            let mut settings = Settings::new(folder, vec!["/proc/self/exe".into(), "launch".into()]);
            settings.cycle = Duration::from_millis(cycle);
            settings.groups = groups.first().map(Into::into);
            match windlass_supervise::run(&settings) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    let _ = writeln!(std::io::stderr(), "{error}: {:?}", std::error::Error::source(&error));
                    ExitCode::FAILURE
                }
            }
        }
        _ => ExitCode::FAILURE,
    }
}
