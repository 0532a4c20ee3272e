//! What programs that run until somebody stops them have in common.

use std::io::{self, IsTerminal, Write};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::cli::LogFormat;
use crate::director_log::is_watched;
use crate::failure::Failure;

/// People read it wherever it goes, unless a shell has us in the background; a log that nobody reads any more is no reason to
/// stop.
pub(crate) fn say(text: &str) {
    if !is_watched(io::stdout()) {
        return;
    }
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// What happens goes to stderr; `RUST_LOG` says how much of it.
pub(crate) fn log_to_stderr(format: LogFormat) {
    use tracing_subscriber::filter::{EnvFilter, LevelFilter};
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let colours = io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr);
    // Only the first log of a process counts; one such program runs in it.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// Shells allow few open files, and systems many: a connection is one. Where it cannot be raised, fewer are served at once.
pub(crate) fn raise_descriptor_limit(most: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(most);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = if wanted == u64::MAX { None } else { Some(wanted) };
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Ctrl-C, or the signal with which services are stopped.
#[derive(Debug)]
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Taken before the start: a signal during the start ends us cleanly, too.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let deaf = |error| Failure::Process("cannot listen for signals", error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(deaf)?,
            terminate: signal(SignalKind::terminate()).map_err(deaf)?,
        })
    }

    /// Until somebody wants us to stop.
    pub(crate) async fn wanted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
