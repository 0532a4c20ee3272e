//! `windlass director`: runs a director until it is stopped. `windlass up` runs it in the background.

use std::path::{Path, PathBuf};

use windlass_certify::CommandLine;
use windlass_cpi_client::{CpiCommand, Environment};
use windlass_director::DirectorOptions;
use windlass_director::settings::{CpiChoice, Settings};
use windlass_installation::own_programs;

use crate::background_director::{log_of, note_own_process};
use crate::cli::{DirectorArgs, Global};
use crate::director_log;
use crate::failure::Failure;
use crate::foreground::{Stop, raise_descriptor_limit, say};

/// Enough for all connections, the database and many CPIs at once. CPIs inherit it, and some look at every number up to it.
const OPEN_FILES: u64 = 8192;

pub(crate) async fn run(flags: &Global, arguments: DirectorArgs) -> Result<(), Failure> {
    if arguments.background {
        // The terminal that it was started in may be closed; it fails only for a process that leads a session already.
        let _ = rustix::process::setsid();
    }
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    let log = log_of(&state_dir);
    director_log::begin(&log, arguments.log_format);
    let (executable, arguments_before) =
        own_programs::cpi_command().map_err(|error| Failure::Process("cannot find this program's own file", error))?;
    let own_cpi = CpiCommand { executable, arguments: arguments_before, environment: Environment::Director };
    let settings = settings(&state_dir, arguments)?;
    raise_descriptor_limit(OPEN_FILES);
    let mut stop = Stop::listen()?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "the director starts");
    let options = DirectorOptions { state_dir: state_dir.clone(), settings, own_cpi };
    let started = windlass_director::start(options, stop.wanted()).await.map_err(Failure::DirectorStart)?;
    let Some(running) = started else { return Ok(()) };
    note_own_process(&state_dir).map_err(|source| Failure::StateDir { path: state_dir.clone(), source })?;
    tracing::info!(address = %running.address(), "the director listens");
    let env_sh = running.env_sh().display();
    let here = if flags.state_dir.is_some() { format!(" --state-dir {}", state_dir.display()) } else { String::new() };
    say(&format!(
        "The director listens on https://{}\n\n\
         On this machine:  windlass{here} env\n\
         With bosh:        . {env_sh} && bosh env\n\
         Its log:          {}\n\n\
         Ctrl-C stops it; deployments keep running.",
        running.address(),
        log.display(),
    ));
    tokio::select! {
        () = stop.wanted() => {}
        () = running.is_deposed() => return Err(Failure::Deposed),
    }
    say("Stopping: running tasks are finished first. Ctrl-C once more stops them after the step that they are at.");
    running.stop(stop.wanted()).await;
    tracing::info!("the director stopped");
    Ok(())
}

/// The file, and over it what the flags say.
fn settings(state_dir: &Path, flags: DirectorArgs) -> Result<Settings, Failure> {
    let mut settings = Settings::load(flags.config.as_deref(), state_dir).map_err(Failure::DirectorSettings)?;
    settings.listen = flags.listen.unwrap_or(settings.listen);
    settings.name = flags.name.unwrap_or(settings.name);
    settings.db = flags.db.or(settings.db);
    settings.isolation = flags.isolation.unwrap_or(settings.isolation);
    if let Some(cpi) = flags.cpi {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let (name, arguments) = match cpi.as_str() {
            "local" | "incus" | "sim" => (cpi, Vec::new()),
            // A file's name may have blanks in it.
            path if Path::new(path).is_file() => (absolute(path.into()).display().to_string(), Vec::new()),
            line => {
                let line: CommandLine = line.parse().map_err(Failure::CpiCommand)?;
                let arguments = line.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
                (line.executable.display().to_string(), arguments)
            }
        };
        settings.cpi = CpiChoice::named(&name, flags.cpi_config.map(absolute), arguments);
    }
    Ok(settings)
}
