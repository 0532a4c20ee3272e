//! The agent in the VM: mounts disks where their hints say, keeps the instance's spec, and does what the director asks.
//!
//! [`run`] is the whole program. At start it reads its settings ([`settings`]), mounts the disk that was mounted before
//! ([`boot`]) and listens for messages over HTTPS ([`server`]). A message names an action ([`actions`], one file each); what
//! takes long becomes a task ([`tasks`]), one at a time, so that a ping is never kept waiting. What depends on the machine is
//! behind [`platform::Platform`]. Everything it remembers is in files under its base directory ([`layout`]), in the
//! original agent's formats, so that either agent can take over from the other. Jobs and packages are in [`software`], and who
//! runs their processes is behind [`supervisor`].
//!
//! [`Embedded`] is the same agent without a process of its own, for simulations.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod actions;
mod agent;
mod alerts;
mod blobs;
mod boot;
mod bpm;
mod command_line;
mod config;
mod control_group;
mod disks;
mod dns;
mod embedded;
mod layout;
mod log_file;
mod log_walk;
mod logs;
mod mbus;
mod platform;
mod scripts;
mod server;
mod settings;
mod software;
mod sources;
mod spec;
mod supervisor;
mod tasks;
mod vitals;
mod way_in;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use command_line::Command;
pub use dns::measured::NameServer;
pub use embedded::{Embedded, EmbeddedError, Ended, Handling, Simulation};

/// Runs the agent with the arguments of a process, the program's name first.
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    windlass_durable::core_files::forbid();
    let options = match command_line::parse(arguments.skip(1)) {
        Ok(Command::Run(options)) => options,
        Ok(Command::Version) => {
            let _ = writeln!(std::io::stdout(), "windlass-agent {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Ok(Command::Monit { base, arguments }) => return supervisor::monit_command(&base, &arguments),
        Ok(Command::Bpm { base, arguments }) => return bpm::run(&base, &arguments),
        Ok(Command::WayIn { base, order }) => return way_in::own_program::run(&base, &order),
        Ok(Command::BpmLaunch) => return bpm::launch(),
        Ok(Command::Launch(arguments)) => return windlass_supervise::launch(&arguments),
        Ok(Command::Supervise { base }) => {
            log_to_stderr();
            return supervisor::run(&base);
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            return ExitCode::FAILURE;
        }
    };
    log_to_stderr();
    match boot::boot(&options).and_then(boot::serve) {
        Ok(boot::Ending::Restart) => ExitCode::SUCCESS,
        Ok(boot::Ending::Shutdown) => ExitCode::from(windlass_contract::agent::POWERED_OFF),
        Ok(boot::Ending::Signal) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!("{}", windlass_contract::explain(&error));
            ExitCode::FAILURE
        }
    }
}

fn log_to_stderr() {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    // Levels and modules are enough here: a filter with regular expressions would make every agent larger.
    let filter: Option<Targets> = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    // A second agent in one process, as in tests, keeps the first one's log.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
}
