//! The container that a supervisor keeps: its first process is a child of the supervisor's.

use std::time::Duration;

use rustix::process::{Pid, Signal as Kill, WaitOptions, kill_process, wait};
use tokio::signal::unix::Signal;
use tokio::time::{Instant, timeout_at};
use windlass_contract::explain;
use windlass_durable::process::ProcessIdentity;

use super::agent::describe;
use super::console::{Console, Notes};
use super::{Ended, write_record};
use crate::container::boot::Boot;
use crate::container::running;
use crate::machine::{Machine, Started};
use crate::state::{ContainerRecord, VmRecord};

/// How long a VM has to end its processes in order.
const GRACE: Duration = Duration::from_secs(8);

pub(super) struct Contained {
    boot: Boot,
    init: ProcessIdentity,
    pid: Option<Pid>,
}

impl Contained {
    pub(super) fn start(
        vm: &VmRecord,
        container: &ContainerRecord,
        machine: &Machine,
        console: &Console,
    ) -> Result<Self, Started> {
        let made = |init| write_record(machine, false, Some(init));
        let init = running::start(vm, container, machine, console.pipe(), made)
            .map_err(|error| Started::Failed(explain(&error)))?;
        Ok(Self { boot: container.boot.clone(), init, pid: Pid::from_raw(init.pid.cast_signed()) })
    }

    pub(super) fn init(&self) -> ProcessIdentity {
        self.init
    }

    /// The VM ends with its first process.
    pub(super) fn reap(&mut self, notes: &mut impl Notes) -> Ended {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if Some(pid) == self.pid {
                notes.note(&format!("the VM's first process ended with {}", describe(status)));
                self.pid = None;
                return Ended::PoweredOff;
            }
        }
        Ended::Others
    }

    /// Asks the VM to end its processes, then ends whatever is left: with the first process, the kernel ends all others.
    pub(super) async fn end(mut self, console: &mut Console, child_ended: &mut Signal) {
        for (signal, patience) in [(self.boot.end_signal(), GRACE), (Kill::KILL, crate::machine::STOP)] {
            let Some(pid) = self.pid else { return };
            let _ = kill_process(pid, signal);
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
