//! A machine of one's own, as far as a program can tell: network, mount and process namespaces that end with it. Trials and
//! demonstrations run there, because containers change networks and mounts.

use std::env;
use std::io;
use std::process::{Command, ExitStatus};

use nix::sched::CloneFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::network::netlink::Netlink;

/// Set in the namespaces: which of the processes there one is.
const INSIDE: &str = "WINDLASS_OWN_MACHINE";
const FIRST: &str = "first";
const PROGRAM: &str = "program";

fn is(role: &str) -> bool {
    env::var_os(INSIDE).is_some_and(|inside| inside == role)
}

/// Whether this process is the first one of a machine of its own, which [`again`] starts: it [`settle`]s, starts the
/// [`program`], and waits for whatever loses its parent, as the first process of every machine does.
pub fn is_first() -> bool {
    is(FIRST) && std::process::id() == 1
}

/// Whether this is the program on a machine of its own. Programs that it starts are not.
pub fn is_inside() -> bool {
    is(PROGRAM) && rustix::process::getppid() == Some(Pid::INIT)
}

/// Starts this program again, with the same arguments, on a machine of its own, and waits for its end. Everything that it
/// started ends with it, and it ends with us. Needs root, and must be called before there are threads.
///
/// `wait` gets the command, and waits for it as the caller likes, for example without being ended by an interrupt that is
/// meant for the program inside.
pub fn again(wait: impl FnOnce(Command) -> io::Result<ExitStatus>) -> io::Result<ExitStatus> {
    let flags =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    nix::sched::unshare(flags)?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    wait(same_program(FIRST)?)
}

/// The program, for which the first process makes the machine.
pub fn program() -> io::Result<Command> {
    same_program(PROGRAM)
}

fn same_program(role: &str) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(INSIDE, role);
    Ok(command)
}

/// Waits for the program's end, and for that of every process whose parent ended: until somebody waits for it, a process that
/// ended still looks alive to others. The program's exit code; none if a signal ended it.
pub fn reap_until_end_of(program: Pid) -> io::Result<Option<i32>> {
    loop {
        match rustix::process::wait(WaitOptions::empty())? {
            Some((pid, status)) if pid == program => return Ok(status.exit_status()),
            _ => {}
        }
    }
}

/// Makes the machine usable; the first thing that its first process does.
#[expect(clippy::disallowed_methods, reason = "the mount namespace ends with this process")]
pub fn settle() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::mount::mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index("lo")?;
    netlink.set_up(loopback)
}
