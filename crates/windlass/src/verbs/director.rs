//! `windlass director`: runs a director in the foreground.

use std::io::{IsTerminal, Write};

use tokio::signal::unix::{SignalKind, signal};
use windlass_cpi_client::{CpiCommand, Environment};
use windlass_director::{CpiSource, DirectorOptions};

use crate::cli::{DirectorArgs, Global};
use crate::failure::Failure;
use crate::own_cpi;

pub(crate) async fn run(flags: &Global, arguments: DirectorArgs) -> Result<(), Failure> {
    log_to_stderr();
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    let (executable, arguments_before) =
        own_cpi::command().map_err(|error| Failure::Process("cannot find this program's own file", error))?;
    let cpi = CpiCommand { executable, arguments: arguments_before, environment: Environment::Director };
    let deaf = |error| Failure::Process("cannot listen for signals", error);
    // Before the start: whoever stops us while we start wants a clean end, too.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    let options = DirectorOptions {
        state_dir: state_dir.clone(),
        listen: arguments.listen,
        db: arguments.db.map(|url| url.reveal().to_owned()),
        name: arguments.name,
        cpi: CpiSource::Local(cpi),
    };
    let running = windlass_director::start(options).await.map_err(Failure::DirectorStart)?;
    let env_sh = running.env_sh().display();
    let here = if flags.state_dir.is_some() { format!(" --state-dir {}", state_dir.display()) } else { String::new() };
    say(&format!(
        "The director listens on https://{}\n\n\
         On this machine:  windlass{here} env\n\
         With bosh:        . {env_sh} && bosh env\n\n\
         Ctrl-C stops it; deployments keep running.",
        running.address(),
    ));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    say("Stopping: running tasks are finished first.");
    running.stop().await;
    Ok(())
}

/// People read it wherever it goes; a log that nobody reads any more is no reason to stop.
fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

fn log_to_stderr() {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let colours = std::io::stderr().is_terminal();
    // Only the first log of a process counts; there is one director in it.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    let _ = log.try_init();
}
