//! The agent's process: started, started again, ended with all that it started.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal as Kill, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::Signal;
use tokio::time::{Instant, sleep, timeout};
use windlass_contract::agent::POWERED_OFF;
use windlass_durable::kill_point;

use super::Ended;
use super::console::{Console, Notes};
use crate::machine::Machine;
use crate::process_tree::{self, MARK};
use crate::state::VmRecord;

/// An agent that ended in order, as it does to take new settings, starts again after this.
const SOON: Duration = Duration::from_millis(100);

/// The longest pause before an agent that keeps failing starts again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// An agent that ran for this long was fine.
const FINE: Duration = Duration::from_secs(10);

/// How long an agent has to end.
const GRACE: Duration = Duration::from_secs(5);

pub(super) struct Agent {
    command: Command,
    state: State,
    pause: Duration,
}

enum State {
    Running { pid: Pid, since: Instant },
    Pausing { until: Instant },
}

impl Agent {
    /// The agent of a VM that is a folder.
    pub(super) fn of_process(vm: &VmRecord, machine: &Machine, console: &Console) -> io::Result<Self> {
        let mut command = Command::new(&vm.agent);
        if vm.agent.file_name() != Some(OsStr::new("bosh-agent")) {
            // A program that is several is this one by that name.
            command.arg0("bosh-agent");
        }
        command
            .args(["-P", "directory", "-C"])
            .arg(machine.agent_config())
            .arg("-b")
            .arg(machine.base())
            .current_dir(machine.base())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env(MARK, machine.folder())
            .stdout(console.pipe().try_clone()?)
            .stderr(console.pipe().try_clone()?);
        Ok(Self::new(command))
    }

    pub(super) fn new(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self { command, state: State::Pausing { until: Instant::now() }, pause: SOON }
    }

    pub(super) fn start(&mut self) -> io::Result<()> {
        kill_point("before the agent starts");
        let child = self.command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("the agent has no pid"))?;
        self.state = State::Running { pid, since: Instant::now() };
        Ok(())
    }

    /// Returns when the agent is due to start again.
    pub(super) async fn due(&self) {
        match self.state {
            State::Running { .. } => std::future::pending().await,
            State::Pausing { until } => tokio::time::sleep_until(until).await,
        }
    }

    pub(super) fn restart(&mut self, notes: &mut impl Notes) {
        if let Err(error) = self.start() {
            notes.note(&format!("cannot start the agent: {error}"));
            self.pause_longer();
        }
    }

    /// Collects the processes that ended: the agent, and orphans that became ours.
    pub(super) fn reap(&mut self, notes: &mut impl Notes) -> Ended {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            match self.state {
                State::Running { pid: agent, since } if agent == pid => {
                    notes.note(&format!("the agent ended with {}", describe(status)));
                    if status.exit_status() == Some(i32::from(POWERED_OFF)) {
                        self.state = State::Pausing { until: Instant::now() };
                        return Ended::PoweredOff;
                    }
                    if status.exit_status() == Some(0) || since.elapsed() > FINE {
                        self.pause = SOON;
                        self.state = State::Pausing { until: Instant::now() + SOON };
                    } else {
                        self.pause_longer();
                    }
                }
                _ => {}
            }
        }
        Ended::Others
    }

    fn pause_longer(&mut self) {
        self.state = State::Pausing { until: Instant::now() + self.pause };
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Asks the agent to end, then ends whatever is left. Each killed process leaves us its children, so this goes on until
    /// there are none.
    pub(super) async fn end(self, child_ended: &mut Signal) {
        if let State::Running { pid, .. } = self.state {
            let _ = kill_process(pid, Kill::TERM);
            let gone = async {
                loop {
                    while let Ok(Some((ended, _))) = wait(WaitOptions::NOHANG) {
                        if ended == pid {
                            return;
                        }
                    }
                    child_ended.recv().await;
                }
            };
            let _ = timeout(GRACE, gone).await;
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    for child in process_tree::children().unwrap_or_default() {
                        let _ = kill_process(child, Kill::KILL);
                    }
                    sleep(Duration::from_millis(2)).await;
                }
                // No children at all.
                Err(_) => return,
            }
        }
    }
}

pub(super) fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
