//! `windlass demo`: the whole system in a minute, on this machine: as root with containers on a machine of its own, otherwise with
//! processes on loopback addresses.
//!
//! [`story`] tells it with the very verbs a user would type, each a process of its own: [`service`] with software, and [`bare`]
//! where none can run. [`telling`] is how. [`place`] is where it happens, and clears itself away again, whatever happens meanwhile.

mod bare;
mod place;
mod release;
mod service;
mod story;
mod telling;

use std::io::{self, Write};
use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};
use windlass_cloud_local::LoopbackNet;
use windlass_cloud_local::{Isolation, own_machine};
use windlass_director_client::environment::EnvironmentError;
use windlass_durable::file;

use crate::cli::{DemoArgs, Global};
use crate::failure::chain;
use place::DemoFolder;
pub(crate) use place::of_the_past;

/// why the demo failed
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error("interrupted")]
    Interrupted,
    #[error("cannot prepare the demo's folder '{}'", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "'{}' is not empty; the demo needs a state directory of its own ('windlass demo --end' removes that of an earlier one)",
        .0.display()
    )]
    NotEmpty(PathBuf),
    #[error("no demo was in '{}', or it still runs", .0.display())]
    NoDemo(PathBuf),
    #[error("cannot start {what}")]
    Spawn { what: &'static str, source: io::Error },
    #[error("the director did not start: {0}")]
    DirectorStart(String),
    #[error("cannot claim loopback addresses")]
    Addresses(#[source] io::Error),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("'{command}' failed")]
    Verb { command: String },
    #[error("cannot ask the demo's director")]
    Director(#[source] windlass_director_client::ClientError),
    #[error("cannot use the file '{}' on the disk", path.display())]
    Data { path: PathBuf, source: io::Error },
    #[error("the demo did not show what it should: {0}")]
    Broken(String),
    #[error("the demo did not clean up everything in '{}': {problems}", state_dir.display())]
    CleanUp { state_dir: PathBuf, problems: String },
}

/// For VMs that are containers; nothing else is on a machine of the demo's own.
const CONTAINER_NET: &str = "10.84.0.";

/// What the story plays on.
pub(super) struct Stage {
    place: DemoFolder,
    isolation: Isolation,
    net: LoopbackNet,
}

/// Runs the demo, or ends those that were kept or killed.
pub(crate) async fn run(flags: &Global, arguments: &DemoArgs) -> Result<(), DemoError> {
    if arguments.end {
        return end(flags).await;
    }
    let deaf = |source| DemoError::Spawn { what: "listening for signals", source };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(deaf)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(deaf)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(deaf)?;
    let best = if own_machine::is_inside() { Isolation::Container } else { Isolation::Process };
    let mut stage = Stage::prepare(flags, arguments.isolation.unwrap_or(best))?;
    let told = tokio::select! {
        told = story::tell(&mut stage, arguments.keep) => told,
        _ = interrupt.recv() => Err(DemoError::Interrupted),
        _ = terminate.recv() => Err(DemoError::Interrupted),
        _ = hang_up.recv() => Err(DemoError::Interrupted),
    };
    if arguments.keep && told.is_ok() {
        return Ok(());
    }
    if told.is_err() {
        // A verb may have been stopped in the middle of a line.
        say("\n\nCleaning up.");
    }
    match (told, stage.place.clear().await) {
        (Ok(()), cleared) => cleared,
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(left)) => {
            // The first failure is the one that explains the others, but nothing is left behind silently.
            say(&chain(&left));
            Err(error)
        }
    }
}

/// Ends the demo in the state directory that is named, or all of this user's.
async fn end(flags: &Global) -> Result<(), DemoError> {
    let places = match &flags.state_dir {
        Some(named) if place::has_ended(named) => vec![named.clone()],
        Some(named) => return Err(DemoError::NoDemo(named.clone())),
        None => of_the_past(),
    };
    if places.is_empty() {
        say("No demo was kept or killed.");
    }
    for state_dir in places {
        if let Some(place) = DemoFolder::of_the_past(&state_dir)? {
            place.clear().await?;
            say(&format!("Ended and removed: {}", state_dir.display()));
        }
    }
    Ok(())
}

impl Stage {
    fn prepare(flags: &Global, isolation: Isolation) -> Result<Self, DemoError> {
        let place = DemoFolder::new(flags.state_dir.as_deref())?;
        let settings = place.state_dir.join("director.yml");
        file::write(&settings, telling::QUICK_RESURRECTOR.as_bytes(), file::PRIVATE)
            .map_err(|source| DemoError::Folder { path: settings, source })?;
        let net = LoopbackNet::claim().map_err(DemoError::Addresses)?;
        Ok(Self { place, isolation, net })
    }

    /// The first three numbers of the VMs' addresses.
    fn net_prefix(&self) -> &str {
        match self.isolation {
            Isolation::Container => CONTAINER_NET,
            Isolation::Process => &self.net.prefix,
        }
    }
}

/// Says something, wherever the demo's output goes.
fn say(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
