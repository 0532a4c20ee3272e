//! What a supervisor keeps as a whole: a container, whose first process is its child, or a root file system of the VM's own, whose
//! keeper is.

use std::time::Duration;

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

impl Contained {
    pub(super) fn start(
        vm: &VmRecord,
        container: &ContainerRecord,
        machine: &Machine,
        console: &Console,
    ) -> Result<Self, Started> {
        let made = |init| write_record(machine, false, RecordedProcesses { init: Some(init), keeper: None });
        let has_own_users = container.users.ids().is_some();
        let init = running::start(vm, container, machine, console.pipe(), made).map_err(|error| match &error {
            ContainerError::Users(_) if has_own_users => Started::NoOwnUsers(explain(&error)),
            // It is the stemcell's fault where others have them: it does not choose to be made without.
            ContainerError::Create(_) if has_own_users && !users::worked(machine.state()) => {
                Started::NoOwnUsers(explain(&error))
            }
            _ => Started::Failed(explain(&error)),
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
