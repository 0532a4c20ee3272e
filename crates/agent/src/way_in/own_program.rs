//! The agent's program as a process that works for somebody who came in: it gives up its rights, and then copies, shows logs, or becomes a program on a terminal.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Gid, Uid, ioctl_tiocsctty, setsid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use serde::{Deserialize, Serialize};
use windlass_contract::explain;
use windlass_contract::way_in::Work;

use super::{copies, log_tails};
use crate::layout::Base;

/// The word by which the program does that.
pub(crate) const WAY_IN: &str = "way-in";

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) work: Work,
    /// The user and the group that it becomes first.
    pub(super) ids: Option<(u32, u32)>,
    pub(super) system_logs: Option<PathBuf>,
}

/// Does it for the VM whose base directory this is.
pub(crate) fn run(base: &Path, order: &str) -> ExitCode {
    match done(base, order) {
        Ok(code) => code,
        Err(why) => {
            let _ = writeln!(io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}

fn done(base: &Path, order: &str) -> Result<ExitCode, String> {
    let order: Order = serde_json::from_str(order).map_err(|error| error.to_string())?;
    if matches!(order.work, Work::Terminal { .. }) {
        own_terminal().map_err(|error| format!("cannot have the terminal for itself: {error}"))?;
    }
    become_user(order.ids).map_err(|error| format!("cannot become the user of jobs: {error}"))?;
    match order.work {
        Work::Send { path, recursive } => copies::send(Path::new(&path), recursive).map_err(|error| explain(&error)),
        Work::Receive { path } => copies::receive(Path::new(&path)).map_err(|error| explain(&error)),
        Work::Logs(logs) => {
            log_tails::show(&Base::at(base), order.system_logs.as_deref(), &logs).map_err(|error| explain(&error))
        }
        Work::Terminal { command, .. } => Ok(run_instead(&command)),
        Work::Run { .. } => Err("commands are run by the agent".to_owned()),
    }
}

/// What is typed there interrupts this session alone.
fn own_terminal() -> rustix::io::Result<()> {
    setsid()?;
    ioctl_tiocsctty(io::stdin())
}

/// Becomes a program. That there is none, or that it cannot be run, is told by the codes that shells have for it.
fn run_instead(words: &[String]) -> ExitCode {
    let Some((name, arguments)) = words.split_first() else { return ExitCode::FAILURE };
    let error = Command::new(name).args(arguments).exec();
    let _ = writeln!(io::stderr(), "cannot run '{name}': {error}");
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// This process has one thread, which is all of it.
fn become_user(ids: Option<(u32, u32)>) -> rustix::io::Result<()> {
    // Where root is the only user there is, groups cannot be set either.
    let Some((user, group)) = ids.filter(|ids| *ids != (0, 0)) else { return Ok(()) };
    set_thread_groups(&[])?;
    set_thread_gid(Gid::from_raw(group))?;
    set_thread_uid(Uid::from_raw(user))
}
