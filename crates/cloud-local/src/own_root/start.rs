//! The supervisor's part: it starts the others, gives them their ids, and notes them before they do anything.

use std::io::{self, BufReader, PipeWriter};
use std::path::Path;
use std::process::{Child, Stdio};

use windlass_durable::kill_point;
use windlass_durable::process::ProcessIdentity;

use super::{Purpose, Said, hear, ids, part, tell_to_go_on};
use crate::machine::{Machine, STOP};
use crate::process_tree::{self, MARK};

/// why a VM has no root of its own
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    /// the processes cannot be started or talked to
    #[error("cannot start the processes of a root file system of its own")]
    Io(#[from] io::Error),
    /// the kernel gives no user namespace, or no ids in it
    #[error("cannot give a user namespace its ids")]
    Ids(#[source] io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("what makes its root file system ended without a word; the console may say why")]
    Silent,
}

/// The processes of a root that was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Processes {
    /// Our child: disks are shown in its namespaces.
    pub(crate) keeper: ProcessIdentity,
    /// What all others inside descend from.
    pub(crate) first: ProcessIdentity,
}

/// Makes the root of a VM and starts its agent there. `made` is told the processes before they do anything.
pub(crate) fn start(
    machine: &Machine,
    console: &PipeWriter,
    made: impl FnOnce(Processes) -> io::Result<()>,
) -> Result<Processes, RootError> {
    let program = std::env::current_exe()?;
    kill_point("before the VM's root is made");
    let result = run(&program, machine.folder(), Purpose::Vm, console.try_clone()?.into(), made);
    kill_point("after the VM's root is made");
    if result.is_err() {
        // What was started ends with us; nothing else may be told until it did.
        process_tree::kill_marked(machine.folder(), STOP)?;
    }
    result
}

/// Tries whether a root can be made, in `folder`.
pub(super) fn attempt(program: &Path, folder: &Path) -> Result<(), RootError> {
    run(program, folder, Purpose::Trial, Stdio::null(), |_| Ok(())).map(|_| ())
}

fn run(
    program: &Path,
    folder: &Path,
    purpose: Purpose,
    errors: Stdio,
    made: impl FnOnce(Processes) -> io::Result<()>,
) -> Result<Processes, RootError> {
    let mut keeper = part(program, "keep", purpose, folder)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env(MARK, folder)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()?;
    let result = converse(&mut keeper, made);
    if result.is_err() || purpose == Purpose::Trial {
        let _ = keeper.kill();
        let _ = keeper.wait();
    }
    result
}

fn converse(keeper: &mut Child, made: impl FnOnce(Processes) -> io::Result<()>) -> Result<Processes, RootError> {
    let (Some(mut to), Some(from)) = (keeper.stdin.take(), keeper.stdout.take()) else {
        return Err(io::Error::other("no pipes").into());
    };
    let mut from = BufReader::new(from);
    match hear(&mut from)? {
        Some(Said::Unshared) => ids::give(keeper.id()).map_err(RootError::Ids)?,
        other => return Err(failed(other)),
    }
    tell_to_go_on(&mut to)?;
    let first = match hear(&mut from)? {
        Some(Said::First { pid }) => pid,
        other => return Err(failed(other)),
    };
    let processes = Processes { keeper: ProcessIdentity::of(keeper.id())?, first: ProcessIdentity::of(first)? };
    made(processes)?;
    tell_to_go_on(&mut to)?;
    match hear(&mut from)? {
        Some(Said::Ready) => Ok(processes),
        other => Err(failed(other)),
    }
}

fn failed(said: Option<Said>) -> RootError {
    match said {
        Some(Said::Failed(why)) => RootError::Failed(why),
        _ => RootError::Silent,
    }
}
