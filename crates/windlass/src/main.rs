//! The one binary.
//!
//! It is six programs: the agent inside a VM, the CPI of a built-in cloud, the supervisor of a VM of the embedded one, the host
//! of the agents of the simulated one, what cages a Ruby that renders, and the command line. The others are told apart here, before the command line's parser
//! and the async runtime start, so that a CPI call costs little more than a process.
//!
//! - [`cli`]: every verb and flag. [`verbs`]: one file per verb.
//! - [`session`]: a verb's conversation with its user and with a director, whose calls are in `windlass_director_client`.
//! - [`screen`], [`table`], [`task_view`], [`event_lines`]: what people and scripts see, as BOSH prints it; [`terminal_table`]: tables on a terminal.
//! - [`chosen_instances`]: which instances somebody means.
//! - [`packets`]: captures of several machines in one file. [`visit`]: being on instances over ssh, for as long as it takes.
//!   [`way_in`]: the same through their agents; [`own_terminal`]: with the user's terminal.
//! - [`interpolation`]: operations files and variables, for every document that is sent.
//! - [`foreground`]: what programs that run until they are stopped have in common. [`background_director`], [`director_log`]: a
//!   director that runs in the background, and its log.
//! - [`freed_memory`]: what a director keeps of memory that it does not need.
//! - [`own_machine`]: where demos and measurements touch nothing. The measurements themselves are in `windlass_bench`.
//! - [`demo`]: the whole system in a minute.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod background_director;
mod chosen_instances;
mod cli;
mod demo;
mod diff_view;
mod director_log;
mod event_lines;
mod failure;
mod foreground;
mod formats;
mod freed_memory;
mod interpolation;
mod live_tree;
mod own_machine;
mod own_terminal;
mod packets;
mod screen;
mod session;
mod table;
mod task_view;
mod terminal_table;
mod verbs;
mod visit;
mod way_in;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue};

fn main() -> ExitCode {
    windlass_durable::core_files::forbid();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if matches!(called_as(&arguments), Some("bosh-agent" | "windlass-agent")) {
        return windlass_agent::run(arguments.into_iter());
    }
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    match words.as_slice() {
        [_, "agent", ..] if !asks_for_help(&words) => windlass_agent::run(arguments.into_iter().skip(1)),
        [_, "cpi", "incus", "--config", _] => windlass_cloud_incus::serve(Path::new(&arguments[4])),
        [_, "cpi", "local", "--config", _] => windlass_cloud_local::serve(Path::new(&arguments[4])),
        [_, "cpi", "sim"] => windlass_cloud_sim::serve(None),
        [_, "cpi", "sim", "--config", _] => windlass_cloud_sim::serve(Some(Path::new(&arguments[4]))),
        [_, "vm-run", _] => windlass_cloud_local::vm_run(Path::new(&arguments[2])),
        [_, "vm-root", ..] => windlass_cloud_local::vm_root(&arguments[2..]),
        [_, "render-cage", ..] => windlass_render::render_cage(&arguments[2..]),
        [_, "sim-host", _] => verbs::sim_host(Path::new(&arguments[2])),
        _ => match parse(&arguments) {
            Ok(cli) => verbs::run(cli.complete()),
            Err(error) => explain_usage(&error),
        },
    }
}

fn parse(arguments: &[OsString]) -> Result<cli::Cli, clap::Error> {
    let mut matches = cli::command().try_get_matches_from(arguments).map_err(with_few_tips)?;
    cli::Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut cli::command()))
}

/// The shorter a name, the more it is like others: aliases of a letter or two are no help for a misspelt verb.
fn with_few_tips(mut error: clap::Error) -> clap::Error {
    const FEW: usize = 2;
    const SHORT: usize = 3;
    if let Some(ContextValue::Strings(tips)) = error.get(ContextKind::SuggestedSubcommand) {
        // The best stands last.
        let tips: Vec<String> = tips.iter().rev().filter(|tip| tip.len() > SHORT).take(FEW).cloned().collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(tips));
    }
    error
}

fn called_as(arguments: &[OsString]) -> Option<&str> {
    arguments.first().map(Path::new).and_then(Path::file_name).and_then(OsStr::to_str)
}

/// Whether scripts take us for BOSH's client.
pub(crate) fn is_called_bosh() -> bool {
    called_as(&std::env::args_os().take(1).collect::<Vec<_>>()) == Some("bosh")
}

/// Prints help, or what is wrong with the command line. A mistake ends with 1, as with BOSH's client: 2 means that a plan changes
/// something. Scripts that call us by the name of that client know the empty line that it prints when it fails.
fn explain_usage(error: &clap::Error) -> ExitCode {
    // Nobody reads it: there is nothing else to say.
    let _ = error.print();
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ => {
            if is_called_bosh() {
                let _ = writeln!(std::io::stdout());
            }
            ExitCode::FAILURE
        }
    }
}

fn asks_for_help(words: &[&str]) -> bool {
    words.iter().any(|word| matches!(*word, "--help" | "-h"))
}
