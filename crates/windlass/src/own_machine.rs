//! Some verbs run on a machine of their own where they can: as root, in namespaces that end with them.

use std::io;
use std::process::{Command, ExitCode, ExitStatus};

use rustix::process::{Pid, Signal, kill_process};
use windlass_cloud_local::own_machine;

use crate::failure::Failure;
use crate::foreground::Stop;

/// Goes on, on a machine of its own if this is root. Otherwise the verb has run there by the time this returns, and ended so.
pub(crate) fn enter() -> Result<Option<ExitCode>, Failure> {
    let failed = |error| Failure::Process("cannot make a machine of its own for this", error);
    if own_machine::is_inside() || !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let code = if own_machine::is_first() {
        own_machine::settle().and_then(|()| run_program()).map_err(failed)?
    } else {
        own_machine::again(wait).map_err(failed)?.code()
    };
    Ok(Some(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// As the first process of the machine.
fn run_program() -> io::Result<Option<i32>> {
    one_thread()?.block_on(async {
        let mut stop = Stop::listen().map_err(io::Error::other)?;
        let program = Pid::from_child(&own_machine::program()?.spawn()?);
        let mut end = tokio::task::spawn_blocking(move || own_machine::reap_until_end_of(program));
        loop {
            tokio::select! {
                end = &mut end => return end.map_err(io::Error::other)?,
                () = stop.wanted() => drop(kill_process(program, Signal::TERM)),
            }
        }
    })
}

/// An interrupt is for the program inside, which tidies up; the one with which services are stopped is passed on to it.
fn wait(command: Command) -> io::Result<ExitStatus> {
    // One thread: none can be made beside processes that are in another namespace.
    one_thread()?.block_on(async {
        let mut stop = Stop::listen().map_err(io::Error::other)?;
        let mut child = tokio::process::Command::from(command).spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        loop {
            tokio::select! {
                status = child.wait() => return status,
                () = stop.wanted() => {
                    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
                }
            }
        }
    })
}

fn one_thread() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
