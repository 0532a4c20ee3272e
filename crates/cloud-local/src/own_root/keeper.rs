//! The process between the supervisor and the root: it sees this machine's files, and shows the VM its disks.

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};

use nix::sched::CloneFlags;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};

use super::{Purpose, Said, disks, end_with_parent, hear, ids, part, say, tell_to_go_on, tree, wait_to_go_on};
use crate::machine::Machine;

/// Is the keeper of the VM in `folder`, for as long as its first process runs.
pub(super) fn run(folder: &Path, purpose: Purpose) -> ExitCode {
    match prepare(folder, purpose) {
        Ok(mut first) => {
            // Nobody listens any more.
            let status = first.wait().ok().and_then(|status| status.code());
            status.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            let _ = say(&mut io::stdout(), &Said::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the mount namespace ends with this process")]
fn prepare(folder: &Path, purpose: Purpose) -> io::Result<Child> {
    let (mut supervisor, mut to_supervisor) = (io::stdin().lock(), io::stdout());
    end_with_parent()?;
    let flags =
        CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    nix::sched::unshare(flags).map_err(|error| context("make a user namespace", error.into()))?;
    say(&mut to_supervisor, &Said::Unshared)?;
    wait_to_go_on(&mut supervisor)?;
    end_with_parent()?;
    // What this machine mounts appears here as well; what is mounted here does not appear there.
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|error| context("leave the mounts of this machine", error.into()))?;
    // The first process runs this program, and root inside may have the number of its owner: by `/proc/1/exe` it could change it.
    let program = std::env::current_exe()?;
    mount_bind(&program, &program)
        .map_err(io::Error::from)
        .and_then(|()| tree::restrict(&program))
        .map_err(|error| context(&format!("protect {}", program.display()), error))?;
    if purpose == Purpose::Vm {
        disks::open(&Machine::new(folder)).map_err(|error| context("show the VM's disks", error))?;
    }
    let mut first = part(&program, "first", purpose, folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut to_first), Some(from_first)) = (first.stdin.take(), first.stdout.take()) else {
        return Err(io::Error::other("no pipes"));
    };
    let mut from_first = BufReader::new(from_first);
    say(&mut to_supervisor, &Said::First { pid: first.id() })?;
    wait_to_go_on(&mut supervisor)?;
    tell_to_go_on(&mut to_first)?;
    match hear(&mut from_first)? {
        Some(Said::Unshared) => ids::give(first.id()).map_err(|error| context("give the VM its ids", error))?,
        Some(Said::Failed(why)) => return Err(io::Error::other(why)),
        _ => return Err(io::Error::other("the VM's first process ended without a word")),
    }
    tell_to_go_on(&mut to_first)?;
    let mut problem = String::new();
    from_first.read_to_string(&mut problem)?;
    if !problem.is_empty() {
        return Err(io::Error::other(problem));
    }
    say(&mut to_supervisor, &Said::Ready)?;
    Ok(first)
}

pub(super) fn context(doing: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {doing}: {error}"))
}
