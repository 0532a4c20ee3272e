//! A root file system for a VM that is no container, so that jobs of releases find what is theirs at `/var/vcap`, and nothing of
//! this machine that they could change. It needs no privileges, only user namespaces.
//!
//! Three processes of this program, each the child of the one before:
//!
//! | process | where | what it does |
//! |---|---|---|
//! | supervisor ([`start`]) | outside | says which ids there are inside, and waits |
//! | keeper ([`keeper`]) | a user and a mount namespace in which this machine's files are all visible | shows disks, which calls of the CPI do in its namespaces as well ([`disks`]) |
//! | first process ([`first`]) | the root that it made ([`tree`]); pid 1 of a process namespace | keeps the agent running |
//!
//! The first process leaves for a second user namespace once the root is made: the kernel then holds what is read-only to be so,
//! whatever the root of the inner namespace tries. All of it goes with the processes: mounts are in their namespaces, files
//! are in the VM's folder. Each ends with its parent.
//!
//! - [`ids`]: who is who inside. [`trial`]: whether this machine allows it, found out by trying.

mod disks;
mod first;
mod ids;
mod keeper;
pub(crate) mod start;
mod tree;
mod trial;

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::container::users;
pub(crate) use disks::{Visibility, set_visibility};
pub use trial::{Refusal, try_own_root};

/// The word by which this program knows that it is one of these processes.
const VERB: &str = "vm-root";

/// What a VM with a root of its own is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnRoot {
    /// The stemcell's files, to which those of this machine are added.
    pub(crate) stemcell: PathBuf,
}

/// What a root is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Vm,
    /// To see whether it can be made.
    Trial,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Trial => "trial",
        }
    }
}

/// What a process tells the one that started it, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    /// It is in a new user namespace, and has no ids yet.
    Unshared,
    /// The first process is there, and waits.
    First { pid: u32 },
    /// The VM runs.
    Ready,
    /// It does not, and why.
    Failed(String),
}

/// This program as the holder of a user namespace.
pub(crate) fn users_holder(program: &Path) -> Command {
    part(program, users::HOLDER, Purpose::Vm, Path::new("/"))
}

/// Is one of the processes around a VM's root (`windlass vm-root …`); `words` follow that word.
pub fn vm_root(words: &[OsString]) -> ExitCode {
    let [part, what, folder] = words else { return ExitCode::FAILURE };
    let (Some(part), Some(what)) = (part.to_str(), what.to_str()) else { return ExitCode::FAILURE };
    let folder = Path::new(folder);
    let purpose = if what == Purpose::Trial.word() { Purpose::Trial } else { Purpose::Vm };
    match part {
        "keep" => keeper::run(folder, purpose),
        "first" => first::run(folder, purpose),
        users::HOLDER => users::hold(),
        "show" => disks::run(folder, what, Visibility::Shown),
        "hide" => disks::run(folder, what, Visibility::Hidden),
        _ => ExitCode::FAILURE,
    }
}

/// This program as one of the processes.
fn part(program: &Path, part: &str, purpose: Purpose, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args([VERB, part, purpose.word()]).arg(folder);
    command
}

/// Ends with the process that started this one. What changes the ids of a process may undo it.
fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

fn say(to: &mut impl Write, said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// What the other side says next; none if it ended.
fn hear(from: &mut impl BufRead) -> io::Result<Option<Said>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

fn tell_to_go_on(to: &mut impl Write) -> io::Result<()> {
    to.write_all(b"\n")?;
    to.flush()
}

/// Waits until the other side lets us go on; fails if it ended.
fn wait_to_go_on(from: &mut impl BufRead) -> io::Result<()> {
    match from.read_line(&mut String::new())? {
        0 => Err(io::Error::other("the process that started this one ended")),
        _ => Ok(()),
    }
}
