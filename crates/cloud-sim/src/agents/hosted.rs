//! The agent of one simulated VM, from the VM's start to its end.

use std::future::Future;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use windlass_agent::{Embedded, Ended, Handling, Simulation};
use windlass_contract::version::SettingsFrom;
use windlass_cpi::resources::Kept;
use windlass_durable::file;

use super::AgentBehaviour;
use crate::records::{BASE, DiskRecord, LATE_USER_DATA, USER_DATA, VmRecord};

/// How long an agent that cannot start waits before it tries again, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// A VM that the host has looked at.
#[derive(Debug)]
pub(super) struct Hosted {
    boots: u64,
    is_off: bool,
    agent: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// Dropped, it ends the agent.
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Hosted {
    /// Starts the VM's agent, if it is to have one. `switch_off` is for the VM that its agent powers off.
    pub(super) fn start(vm: &VmRecord, folder: &Path, switch_off: impl FnOnce() + Send + 'static) -> Self {
        let agent = vm.agent_address().filter(|_| !vm.is_off && !vm.agent.never_up).map(|address| {
            let (end, ended) = oneshot::channel();
            let up = Instant::now() + left_of_delay(vm);
            let mut agent = agent_of(vm, folder, address);
            if vm.agent.settings_delay > 0 {
                agent.user_data = late(folder, up + Duration::from_millis(vm.agent.settings_delay));
            }
            Running { end, task: tokio::spawn(live(agent, up, ended, switch_off)) }
        });
        Self { boots: vm.boots, is_off: vm.is_off, agent }
    }

    /// Whether the VM has not been started or switched off since.
    pub(super) fn is_up_to_date(&self, vm: &VmRecord) -> bool {
        (self.boots, self.is_off) == (vm.boots, vm.is_off)
    }

    /// Ends the agent, and waits until it is gone.
    pub(super) async fn stop(self) {
        if let Some(Running { end, task }) = self.agent {
            drop(end);
            let _ = task.await;
        }
    }
}

fn agent_of(vm: &VmRecord, folder: &Path, address: IpAddr) -> Embedded {
    Embedded {
        base: folder.join(BASE),
        user_data: folder.join(USER_DATA),
        from_registry: vm.settings_from == SettingsFrom::Registry,
        address,
        runs_jobs: vm.agent.runs_jobs,
        simulation: Arc::new(Simulated {
            behaviour: vm.agent,
            store: folder.join(BASE).join("store"),
            first: OnceLock::new(),
            messages: AtomicU64::new(0),
        }),
    }
}

/// Where an agent finds its settings that appear only then.
fn late(folder: &Path, then: Instant) -> PathBuf {
    let path = folder.join(LATE_USER_DATA);
    let appear = {
        let path = path.clone();
        move || file::symlink(Path::new(USER_DATA), &path)
    };
    let report = |done: std::io::Result<()>| {
        if let Err(error) = done {
            tracing::warn!("settings cannot appear late: {error}");
        }
    };
    report(file::remove_file(&path));
    tokio::spawn(async move {
        sleep_until(then).await;
        report(appear());
    });
    path
}

/// The host may have started long after the VM, and the VM is on only when the call that starts it has said so.
fn left_of_delay(vm: &VmRecord) -> Duration {
    let up = UNIX_EPOCH + Duration::from_millis(vm.started_at.saturating_add(vm.agent.delay));
    up.duration_since(SystemTime::now()).unwrap_or_default()
}

async fn live(agent: Embedded, mut up: Instant, mut end: oneshot::Receiver<()>, switch_off: impl FnOnce()) {
    let mut pause = RETRY.0;
    loop {
        tokio::select! {
            _ = &mut end => return,
            () = sleep_until(up) => {}
        }
        let told = async {
            let _ = (&mut end).await;
        };
        match agent.run(told).await {
            Ok(Ended::Told) => return,
            Ok(Ended::PoweredOff) => return switch_off(),
            Err(error) => {
                let why = windlass_contract::explain(&error);
                tracing::warn!("the agent in {} does not start: {why}", agent.base.display());
            }
        }
        up = Instant::now() + pause;
        pause = (pause * 2).min(RETRY.1);
    }
}

/// Slow, silent and clumsy as told.
#[derive(Debug)]
struct Simulated {
    behaviour: AgentBehaviour,
    /// Where its disk is mounted.
    store: PathBuf,
    /// When its first message came.
    first: OnceLock<Instant>,
    messages: AtomicU64,
}

impl Simulation for Simulated {
    /// The store leads to the folder with the content of a disk, beside which its record is.
    fn persistent_disk_kib(&self, store: &Path) -> Option<u64> {
        let record = store.canonicalize().ok()?.parent()?.join(<DiskRecord as Kept>::FILE);
        let disk: DiskRecord = serde_json::from_slice(&std::fs::read(record).ok()?).ok()?;
        Some(disk.size_mib * 1024)
    }

    fn before<'a>(&'a self, method: &'a str) -> Pin<Box<dyn Future<Output = Handling> + Send + 'a>> {
        Box::pin(async move {
            let AgentBehaviour { latency, silent_after_messages, silent_after, .. } = self.behaviour;
            let number = self.messages.fetch_add(1, Ordering::Relaxed) + 1;
            let first = *self.first.get_or_init(Instant::now);
            if silent_after_messages.is_some_and(|most| number > most)
                || silent_after.is_some_and(|most| number > 1 && first.elapsed() >= Duration::from_millis(most))
            {
                std::future::pending::<()>().await;
            }
            if latency > 0 {
                sleep(Duration::from_millis(latency)).await;
            }
            if self.behaviour.fails_to_migrate && method == "migrate_disk" {
                let _ = file::remove_file(&self.store);
            }
            self.behaviour.handling(number, method)
        })
    }
}
