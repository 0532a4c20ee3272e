//! The process that all agents of a state folder live in.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use windlass_cpi::resources::Resources;
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;

use super::hosted::Hosted;
use super::line::socket;
use super::{DONE, LOCK, PROCESS, SOCKET};
use crate::records::VmRecord;

/// How long a host waits for the lock: one that ends needs a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// How often it looks whether its state folder is still there, and for VMs that nobody told it about.
const ROUND: Duration = Duration::from_millis(500);
/// How long a host that was started on demand stays without VMs.
const IDLE: Duration = Duration::from_secs(3);
/// How long a caller may take to say which VM it means.
const CALLER_PATIENCE: Duration = Duration::from_secs(5);
/// More than any cid.
const LONGEST_CID: u64 = 1024;
/// Threads for what waits for files and registries.
const BLOCKING_THREADS: usize = 64;

/// How long a host stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Until it is told to end, or its state folder is removed.
    UntilToldToEnd,
    /// In a session of its own, and not without VMs.
    WhileNeeded,
}

/// why agents cannot be hosted
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// another process does it
    #[error("the simulated agents in {} have a host already; end it first, or leave them to it", state.display())]
    AnotherHost { state: PathBuf },
    /// something cannot be had
    #[error("cannot {doing} in {}", state.display())]
    Io {
        doing: &'static str,
        state: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Hosts the agents of all VMs in the folder `state` until the end. `started` learns which VMs there are at the start.
pub fn host(state: &Path, stay: Stay, started: impl FnOnce(&[VmRecord])) -> Result<(), HostError> {
    if stay == Stay::WhileNeeded {
        // Not when we lead a process group already, as under a shell; then the session is the shell's.
        let _ = rustix::process::setsid();
    }
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(failed("start threads for the agents", state))?;
    let ended = runtime.block_on(run(state, stay, started));
    // What an agent still writes is whole or not at all.
    runtime.shutdown_background();
    ended
}

fn failed<'a>(doing: &'static str, state: &'a Path) -> impl FnOnce(io::Error) -> HostError + 'a {
    move |source| HostError::Io { doing, state: state.to_owned(), source }
}

/// Every agent has a listening socket, and connections.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn run(state: &Path, stay: Stay, started: impl FnOnce(&[VmRecord])) -> Result<(), HostError> {
    file::create_private_dir(state).map_err(failed("make the state folder", state))?;
    let place = Place::take(state)?;
    let process = ProcessIdentity::of(std::process::id());
    process
        .and_then(|process| file::write_json(&state.join(PROCESS), &process, file::PRIVATE))
        .map_err(failed("note the host's process", state))?;
    let listener = listen(state).map_err(failed("listen for CPI calls", state))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed("listen for signals", state))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed("listen for signals", state))?;
    let host = Arc::new(Host::new(state));
    host.look_around().await;
    started(&host.vms.all().unwrap_or_default());
    let mut round = interval(ROUND);
    round.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut needed = Instant::now();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    needed = Instant::now();
                    tokio::spawn(answer(stream, host.clone()));
                }
                Err(error) => {
                    tracing::warn!("cannot accept a CPI call: {error}");
                    tokio::time::sleep(ROUND).await;
                }
            },
            _ = round.tick() => {
                if !place.is_there() {
                    return Ok(());
                }
                host.look_around().await;
                if host.has_vms().await {
                    needed = Instant::now();
                } else if stay == Stay::WhileNeeded && needed.elapsed() > IDLE {
                    break;
                }
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    // Later calls find no host and start the next one, which waits for our lock.
    let _ = file::remove_file(&state.join(SOCKET));
    drop(listener);
    let _ = file::remove_file(&state.join(PROCESS));
    Ok(())
}

/// The host's place in a state folder: as long as its lock is there, there is no other.
struct Place {
    path: PathBuf,
    inode: (u64, u64),
    _lock: FileLock,
}

impl Place {
    fn take(state: &Path) -> Result<Self, HostError> {
        let path = state.join(LOCK);
        let lock = FileLock::acquire(&path, LOCK_PATIENCE).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => HostError::AnotherHost { state: state.to_owned() },
            _ => failed("take the host's lock", state)(error),
        })?;
        let inode = inode(&path).map_err(failed("find the host's lock", state))?;
        Ok(Self { path, inode, _lock: lock })
    }

    /// A folder that was removed and made again is another one.
    fn is_there(&self) -> bool {
        inode(&self.path).is_ok_and(|inode| inode == self.inode)
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// One that is left was a killed host's: we hold the lock.
fn listen(state: &Path) -> io::Result<UnixListener> {
    file::remove_file(&state.join(SOCKET))?;
    let (_folder, path) = socket(state)?;
    UnixListener::bind(path)
}

/// Looks at the VM that the caller names.
async fn answer(mut stream: UnixStream, host: Arc<Host>) {
    let mut cid = String::new();
    let read = timeout(CALLER_PATIENCE, (&mut stream).take(LONGEST_CID).read_to_string(&mut cid)).await;
    if matches!(read, Ok(Ok(_))) && host.look_at(cid.trim()).await {
        let _ = stream.write_all(DONE).await;
    }
}

struct Host {
    vms: Resources<VmRecord>,
    hosted: Mutex<HashMap<String, Hosted>>,
}

impl Host {
    fn new(state: &Path) -> Self {
        Self { vms: Resources::new(state), hosted: Mutex::default() }
    }

    /// Starts and ends agents for VMs that came and went.
    async fn look_around(self: &Arc<Self>) {
        let there = match self.vms.cids() {
            Ok(there) => there,
            Err(error) => return tracing::warn!("cannot look for VMs: {error}"),
        };
        let changed: Vec<String> = {
            let hosted = self.hosted.lock().await;
            let gone = hosted.keys().filter(|cid| !there.contains(*cid)).cloned();
            gone.chain(there.iter().filter(|cid| !hosted.contains_key(*cid)).cloned()).collect()
        };
        for cid in changed {
            self.look_at(&cid).await;
        }
    }

    /// Makes the agent of a VM what its record says; says whether it did.
    async fn look_at(self: &Arc<Self>, cid: &str) -> bool {
        // Held throughout, so that of two looks the later one decides.
        let mut hosted = self.hosted.lock().await;
        let vm = match self.vms.read(cid) {
            Ok(vm) => vm,
            Err(error) => {
                tracing::warn!("cannot look at {cid}: {error}");
                return false;
            }
        };
        if let (Some(known), Some(vm)) = (hosted.get(cid), &vm)
            && known.is_up_to_date(vm)
        {
            return true;
        }
        if let Some(outdated) = hosted.remove(cid) {
            outdated.stop().await;
        }
        if let (Some(vm), Some(folder)) = (vm, self.vms.path(cid)) {
            let (host, name) = (self.clone(), cid.to_owned());
            hosted.insert(cid.to_owned(), Hosted::start(&vm, &folder, move || host.switch_off(name)));
        }
        true
    }

    /// Notes that an agent powered its VM off. It waits for calls that change the VM, and they may wait for us.
    fn switch_off(self: Arc<Self>, cid: String) {
        tokio::task::spawn_blocking(move || {
            let noted = self.vms.lock_existing(&cid).and_then(|vm| match vm {
                Some((_lock, mut vm)) => {
                    vm.is_off = true;
                    self.vms.write(&cid, &vm)
                }
                None => Ok(()),
            });
            if let Err(error) = noted {
                tracing::warn!("{cid} is off and will be on again after the next start of its host: {error}");
            }
        });
    }

    async fn has_vms(&self) -> bool {
        !self.hosted.lock().await.is_empty()
    }
}
