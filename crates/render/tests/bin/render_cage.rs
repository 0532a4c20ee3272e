//! What `windlass render-cage` is in the one binary, for the tests of this crate alone; and somebody who asks Ruby for what never
//! ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use windlass_release::{Job, JobSpec};
use windlass_render::{Renderer as _, Ruby, RubySetup, render_cage};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.first().and_then(|word| word.to_str()) {
        Some("render-cage") => render_cage(&words[1..]),
        _ => ask_endlessly(),
    }
}

fn ask_endlessly() -> ExitCode {
    let (Ok(program), Ok(spec)) = (std::env::current_exe(), JobSpec::parse("name: app\n", "app")) else {
        return ExitCode::FAILURE;
    };
    let ruby = Ruby::new(RubySetup { patience: Duration::from_secs(600), ..RubySetup::caged(program) });
    let monit = BTreeMap::from([("monit".to_owned(), "<% loop { } %>".to_owned())]);
    let _ = ruby.render(&Job { spec, templates: BTreeMap::new(), monit }, &json!({}));
    ExitCode::SUCCESS
}
