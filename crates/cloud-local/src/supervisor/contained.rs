//! What a supervisor keeps as a whole: a container, whose first process is its child, or a root file system of the VM's own, whose
//! keeper is.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal as Kill, WaitOptions, wait};
use tokio::signal::unix::Signal;
use tokio::time::{Instant, timeout_at};
use windlass_contract::explain;

use super::agent::describe;
use super::console::{Console, Notes};
use super::{Ended, RecordedProcesses, write_record};
use crate::container::running::{self, ContainerError};
use crate::container::users;
use crate::machine::{Machine, Started};
use crate::own_root::start;
use crate::state::{ContainerRecord, VmRecord};

/// How long a VM has to end its processes in order.
const GRACE: Duration = Duration::from_secs(8);

pub(super) struct Contained {
    end_signal: Kill,
    processes: RecordedProcesses,
    /// Our child, while it runs.
    child: Option<Pid>,
}

/// Whether a VM could not start because this machine gives none users of its own. Where others have them, it is the stemcell's fault, or of one
/// of the others who has taken something that the kernel has once for all: neither chooses that a VM is made without.
fn machine_has_none(error: &ContainerError, reason: &str, worked: bool) -> bool {
    const PASSING: [Errno; 6] = [Errno::NFILE, Errno::MFILE, Errno::AGAIN, Errno::NOMEM, Errno::BUSY, Errno::IO];
    // The container library has words of the kernel without their number.
    let is_told = |errno: &Errno| {
        let words = io::Error::from(*errno).to_string();
        words.split(" (os error").next().is_some_and(|words| reason.contains(words))
    };
    let passes = PASSING.iter().any(is_told);
    matches!(error, ContainerError::Users(_) | ContainerError::Create(_)) && !worked && !passes
}

impl Contained {
    pub(super) fn start(
        vm: &VmRecord,
        container: &ContainerRecord,
        machine: &Machine,
        console: &Console,
    ) -> Result<Self, Started> {
        let made = |init| write_record(machine, false, RecordedProcesses { init: Some(init), keeper: None });
        let has_own_users = container.users.ids().is_some();
        let init = running::start(vm, container, machine, console.pipe(), made).map_err(|error| {
            let reason = explain(&error);
            match has_own_users && machine_has_none(&error, &reason, users::worked(machine.state())) {
                true => Started::NoOwnUsers(reason),
                false => Started::Failed(reason),
            }
        })?;
        if has_own_users {
            // If this fails, the next VM notes it.
            let _ = users::note_worked(machine.state());
        }
        Ok(Self {
            end_signal: container.boot.end_signal(),
            processes: RecordedProcesses { init: Some(init), keeper: None },
            child: Pid::from_raw(init.pid.cast_signed()),
        })
    }

    /// The agent in a root of its own.
    pub(super) fn start_in_own_root(machine: &Machine, console: &Console) -> Result<Self, Started> {
        let recorded = |made: start::Processes| RecordedProcesses { init: Some(made.first), keeper: Some(made.keeper) };
        let made = |made| write_record(machine, false, recorded(made));
        let made = start::start(machine, console.pipe(), made).map_err(|error| Started::Failed(explain(&error)))?;
        Ok(Self {
            end_signal: Kill::TERM,
            processes: recorded(made),
            child: Pid::from_raw(made.keeper.pid.cast_signed()),
        })
    }

    pub(super) fn processes(&self) -> RecordedProcesses {
        self.processes
    }

    /// The VM ends with its first process.
    pub(super) fn reap(&mut self, notes: &mut impl Notes) -> Ended {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if Some(pid) == self.child {
                notes.note(&format!("the VM's first process ended with {}", describe(status)));
                self.child = None;
                return Ended::PoweredOff;
            }
        }
        Ended::Others
    }

    /// Asks the VM to end its processes, then ends whatever is left: with the first process, the kernel ends all others.
    pub(super) async fn end(mut self, console: &mut Console, child_ended: &mut Signal) {
        for (signal, patience) in [(self.end_signal, GRACE), (Kill::KILL, crate::machine::STOP)] {
            if self.child.is_none() {
                return;
            }
            if let Some(init) = self.processes.init {
                let _ = init.signal(signal);
            }
            let deadline = Instant::now() + patience;
            while self.reap(console) != Ended::PoweredOff {
                let more = async {
                    tokio::select! {
                        _ = child_ended.recv() => {}
                        () = console.copy() => {}
                    }
                };
                if timeout_at(deadline, more).await.is_err() {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM that took all open files of the machine made others, whose root then was root of the machine.
    #[test]
    fn only_a_machine_that_never_could_makes_vms_without_users_of_their_own() {
        let has_none = |error: &ContainerError, worked| machine_has_none(error, &explain(error), worked);
        let users = |errno: Errno| ContainerError::Users(errno.into());
        assert!(has_none(&users(Errno::PERM), false) && has_none(&users(Errno::INVAL), false));
        assert!(!has_none(&users(Errno::PERM), true));
        assert!(!has_none(&users(Errno::NFILE), false) && !has_none(&users(Errno::NFILE), true));
        assert!(!has_none(&ContainerError::NotRunning("it ended".to_owned()), false));
    }
}
