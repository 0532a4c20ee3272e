//! `--watch`: a verb that lists is carried out again and again, each time in the place of what it showed before.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::{Cli, Global, RemoteVerb, Verb};
use crate::failure::{Failure, chain};
use crate::foreground::Stop;
use crate::formats;
use crate::screen::Screen;

pub(super) fn run(flags: Global, verb: Verb, seconds: u16) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Process("cannot start the async runtime", error));
    let outcome = runtime.and_then(|runtime| runtime.block_on(draw(&flags, &verb, seconds)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

async fn draw(flags: &Global, verb: &Verb, seconds: u16) -> Result<(), Failure> {
    if !lists(verb) {
        return Err(Failure::NotToWatch);
    }
    let mut stop = Stop::listen()?;
    let mut first = true;
    loop {
        let mut screen = Screen::watched(flags).ok_or(Failure::WatchNeedsTerminal)?;
        // A director that is away for a while comes back.
        let outcome = tokio::select! {
            outcome = super::act(again()?, flags, &mut screen) => outcome,
            () = stop.wanted() => return Ok(()),
        };
        if let Err(error) = outcome {
            screen.told_apart(&chain(&error));
        }
        let title = format!("every {seconds} s, {} UTC; Ctrl-C ends it", formats::clock(formats::now()));
        screen.redraw(&title, first);
        first = false;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(seconds.into())) => {}
            () = stop.wanted() => {
                screen.told("");
                return Ok(());
            }
        }
    }
}

/// The verb of this process's command line, which was understood once.
fn again() -> Result<Verb, Failure> {
    Cli::try_parse_from(std::env::args_os()).map(|cli| cli.verb).map_err(|_| Failure::NotToWatch)
}

fn lists(verb: &Verb) -> bool {
    use RemoteVerb::{
        CloudCheck, Deployment, Deployments, Disks, Env, Errands, Events, Instances, Leaks, Locks, OrphanedVms,
        Releases, Snapshots, Stemcells, Tasks, Vms,
    };
    match verb {
        Verb::Status => true,
        Verb::Remote(CloudCheck(arguments)) => arguments.report,
        Verb::Remote(Leaks(arguments)) => arguments.delete.is_empty(),
        Verb::Remote(verb) => matches!(
            verb,
            Deployment
                | Deployments
                | Disks { .. }
                | Env { .. }
                | Errands
                | Events(_)
                | Instances(_)
                | Locks
                | OrphanedVms
                | Releases
                | Snapshots { .. }
                | Stemcells
                | Tasks(_)
                | Vms(_)
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lists_is_repeated() {
        let verb = |line: &str| Cli::parse_from(line.split(' ')).verb;
        for line in
            ["windlass vms --watch", "windlass tasks --watch=5", "windlass status --watch", "windlass cck -r --watch"]
        {
            assert!(lists(&verb(line)), "{line}");
        }
        for line in ["windlass recreate --watch", "windlass cck --auto --watch", "windlass doctor --watch"] {
            assert!(!lists(&verb(line)), "{line}");
        }
    }
}
