//! A machine of one's own, as far as a program can tell: network, mount and process namespaces that end with it. Trials and
//! demonstrations run there, because containers change networks and mounts.

use std::env;
use std::io;
use std::process::{Command, ExitStatus};

use nix::sched::CloneFlags;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::Signal;

use crate::network::netlink::Netlink;

/// Set in the namespaces.
const INSIDE: &str = "WINDLASS_OWN_MACHINE";

/// Whether this process is the first one of a machine of its own, which [`again`] starts.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some() && std::process::id() == 1
}

/// Starts this program again, with the same arguments, as the first process of a machine of its own, and waits for its end.
/// Everything that it started ends with it, and it ends with us. Needs root, and must be called before there are threads.
///
/// `wait` gets the command, and waits for it as the caller likes, for example without being ended by an interrupt that is
/// meant for the program inside.
pub fn again(wait: impl FnOnce(Command) -> io::Result<ExitStatus>) -> io::Result<ExitStatus> {
    let flags =
        CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    nix::sched::unshare(flags)?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(INSIDE, "1");
    wait(command)
}

/// Makes the machine usable; the first thing that the program inside does.
pub fn settle() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::mount::mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index("lo")?;
    netlink.set_up(loopback)
}
