//! `windlass exec`: a command on instances, through their agents.

use std::io::Write;

use windlass_contract::way_in::{WayIn, Work};

use crate::cli::ExecArgs;
use crate::failure::Failure;
use crate::own_terminal::{self, RawTerminal};
use crate::session::Session;
use crate::way_in::{RunningWork, WorkOutput, interrupts, on_each, places, standard_input};

pub(super) async fn run(session: &mut Session<'_>, arguments: &ExecArgs) -> Result<(), Failure> {
    let deployment = session.deployment()?;
    let places = places(session, &deployment, Some(&arguments.instances)).await?;
    let command = arguments.command.clone();
    let work = match arguments.terminal {
        false => Work::Run { command },
        true if places.len() > 1 => return Err(Failure::TerminalSeveral(places.len())),
        true if !own_terminal::is_there() => return Err(Failure::NoTerminal),
        true => {
            let kind = std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned());
            Work::Terminal { command, size: own_terminal::size(), kind }
        }
    };
    let wanted = WayIn { root: arguments.root, work };
    let [place] = places.as_slice() else {
        let done = on_each(session.screen, &session.director, &deployment, &places, &wanted).await;
        return done.map_err(|(number, lost)| lost.at(&places[number]));
    };
    let input = Some(standard_input());
    let mut work = RunningWork::begin(&session.director, &deployment, place, &wanted, input, interrupts());
    let raw = match arguments.terminal {
        true => {
            work.resized(own_terminal::sizes());
            Some(RawTerminal::begin()?)
        }
        false => None,
    };
    // As if it ran here: what it writes comes as it is.
    while let Some(said) = work.said.recv().await {
        let written = match said {
            WorkOutput::Output(bytes) => write(std::io::stdout().lock(), &bytes),
            WorkOutput::Errors(bytes) => write(std::io::stderr().lock(), &bytes),
        };
        if written.is_err() {
            // The reader has seen enough, so the command need not go on.
            return Ok(());
        }
    }
    let ended = work.end().await;
    drop(raw);
    let code = ended.map_err(|lost| lost.at(place))?;
    session.screen.end_with(u8::try_from(code).unwrap_or(u8::MAX));
    Ok(())
}

fn write(mut to: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
