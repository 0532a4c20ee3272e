//! How a visit ends when somebody wants the program to end: programs that it started are asked to, and what was set up for the
//! visit is undone before the program ends.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::Failure;

/// How long work has to end when its programs were asked to.
const GRACE: Duration = Duration::from_secs(5);

/// Ctrl-C, a `kill`, and the end of the terminal.
const SIGNALS: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// Tells that the program is to end, and ends what it started.
#[derive(Debug, Clone)]
pub(crate) struct Departure {
    /// The number of the last signal, and how many there were.
    asked: watch::Receiver<(i32, u32)>,
    /// By handles: a process that has ended is never mistaken for another one.
    programs: Arc<Mutex<Vec<OwnedFd>>>,
}

impl Departure {
    /// From here on signals do not end the program by themselves. A signal that was ignored at the start, as with `nohup`,
    /// stays ignored.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let (told, asked) = watch::channel((0, 0));
        let ignored = ignored();
        for kind in SIGNALS {
            let number = kind.as_raw_value();
            if ignored >> (number - 1) & 1 == 1 {
                continue;
            }
            let mut signals = signal(kind).map_err(|error| Failure::Process("cannot listen for signals", error))?;
            let told = told.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    told.send_modify(|(last, times)| (*last, *times) = (number, *times + 1));
                }
            });
        }
        Ok(Self { asked, programs: Arc::default() })
    }

    /// Does something that can be left at any time; none if the program is to end.
    pub(crate) async fn unless_asked<T>(&self, doing: impl Future<Output = T>) -> Option<T> {
        let mut asked = self.asked.clone();
        tokio::select! {
            biased;
            done = doing => Some(done),
            _ = asked.wait_for(|(_, times)| *times > 0) => None,
        }
    }

    /// A program that the visit started: it ends with the visit.
    pub(crate) fn started(&self, child: &Child) {
        let handle = Pid::from_raw(child.id().cast_signed()).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let Some(handle) = handle else { return };
        let mut programs = self.programs.lock().unwrap_or_else(|broken| broken.into_inner());
        if self.asked.borrow().1 > 0 {
            let _ = pidfd_send_signal(&handle, Signal::TERM);
        }
        programs.push(handle);
    }

    /// Asks them to end. False if there are none.
    fn end_programs(&self) -> bool {
        let programs = self.programs.lock().unwrap_or_else(|broken| broken.into_inner());
        for program in programs.iter() {
            // One that has ended cannot be told.
            let _ = pidfd_send_signal(program, Signal::TERM);
        }
        !programs.is_empty()
    }

    /// Does some work in this thread. It ends with its programs; when it does not, or waits for the user alone, `abandoned` is
    /// done beside it and the program ends.
    pub(crate) fn during<T>(
        &self,
        work: impl FnOnce() -> T,
        abandoned: impl Future<Output = ()> + Send + 'static,
    ) -> T {
        let departure = self.clone();
        let watch = tokio::spawn(async move {
            let mut asked = departure.asked.clone();
            if asked.wait_for(|(_, times)| *times > 0).await.is_err() {
                return;
            }
            if departure.end_programs() {
                // A second signal ends the wait.
                let _ = tokio::time::timeout(GRACE, asked.wait_for(|(_, times)| *times > 1)).await;
            }
            abandoned.await;
            let number = asked.borrow().0;
            std::process::exit(128 + number);
        });
        let done = work();
        watch.abort();
        done
    }
}

/// The signals that this program ignores since its start, one bit for each.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
