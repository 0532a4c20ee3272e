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
    if own_machine::is_inside() {
        own_machine::settle().map_err(failed)?;
    } else if rustix::process::geteuid().is_root() {
        let status = own_machine::again(wait).map_err(failed)?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)));
    }
    Ok(None)
}

/// An interrupt is for the program inside, which tidies up; the one with which services are stopped is passed on to it.
fn wait(command: Command) -> io::Result<ExitStatus> {
    // One thread: none can be made beside processes that are in another namespace.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
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
