//! `windlass director`: runs a director in the foreground.

use windlass_cpi_client::{CpiCommand, Environment};
use windlass_director::{CpiSource, DirectorOptions};

use crate::cli::{DirectorArgs, Global};
use crate::failure::Failure;
use crate::foreground::{Stop, log_to_stderr, say};
use crate::own_cpi;

pub(crate) async fn run(flags: &Global, arguments: DirectorArgs) -> Result<(), Failure> {
    log_to_stderr();
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    let (executable, arguments_before) =
        own_cpi::command().map_err(|error| Failure::Process("cannot find this program's own file", error))?;
    let cpi = CpiCommand { executable, arguments: arguments_before, environment: Environment::Director };
    let mut stop = Stop::listen()?;
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
    stop.wanted().await;
    say("Stopping: running tasks are finished first.");
    running.stop().await;
    Ok(())
}
