//! A VM from the inside: the process that keeps its agent running.
//!
//! One per VM, in a session of its own. It holds the VM's lock and addresses, starts the agent again when it ends (which
//! agents do to take new settings), collects what the agent prints, adopts and reaps the agent's orphans, and leaves no
//! process behind when it is told to end.

mod agent;
mod console;

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;

use self::agent::{Agent, Ended};
use self::console::Console;
use crate::address;
use crate::machine::{Machine, Started, SupervisorRecord};
use crate::state::VmRecord;

/// How long we wait for the lock: whoever asks whether it is held, holds it for a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// Is the supervisor of the VM in `folder` until it is told to end, or its agent powers it off (`windlass vm-run DIR`). Says on stdout, in one line,
/// how the start went.
pub fn vm_run(folder: &Path) -> ExitCode {
    // Not when we lead a process group already, as under a shell; then the session is the shell's.
    let _ = rustix::process::setsid();
    let started = rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)
        .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
        .map(|runtime| runtime.block_on(supervise(folder)));
    match started.unwrap_or_else(|error| Err(failed("cannot start the supervisor", &error))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&problem);
            ExitCode::FAILURE
        }
    }
}

/// Everything that can keep the VM from starting comes before the first line that is said.
async fn supervise(folder: &Path) -> Result<(), Started> {
    let machine = Machine::new(folder);
    let _lock = match FileLock::acquire(&machine.lock(), LOCK_PATIENCE) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Started::Busy),
        Err(error) => return Err(failed("cannot lock the VM", &error)),
    };
    machine.clean_up_after_supervisor().map_err(|error| failed("processes of its last run remain", &error))?;
    let vm = read_record(folder)?;
    record(&machine, false)?;
    let supervised = async {
        let claims = claim(&vm, folder)?;
        let mut signals = Signals::new().map_err(|error| failed("cannot watch signals", &error))?;
        let mut console =
            Console::open(machine.console()).map_err(|error| failed("cannot open the console", &error))?;
        let mut agent = Agent::new(&vm, &machine);
        agent.start(&console).map_err(|error| failed(&format!("cannot run {}", vm.agent.display()), &error))?;
        record(&machine, true)?;
        say(&Started::Ready);
        for claim in claims {
            tokio::spawn(tell_holder(claim, format!("VM '{}' in {}", vm.cid, folder.display())));
        }
        run(&mut agent, &mut console, &mut signals).await;
        agent.end(&mut signals.child).await;
        Ok(())
    }
    .await;
    // Only now is everything gone that the record's presence warns of.
    let removed = file::remove_file(&machine.supervisor()).map_err(|error| failed("cannot remove the record", &error));
    supervised.and(removed)
}

async fn run(agent: &mut Agent, console: &mut Console, signals: &mut Signals) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.child.recv() => {
                if agent.reap(console) == Ended::PoweredOff {
                    return;
                }
            }
            () = agent.due() => agent.restart(console),
            () = console.copy() => {}
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    child: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            child: signal(SignalKind::child())?,
        })
    }
}

fn read_record(folder: &Path) -> Result<VmRecord, Started> {
    let path: PathBuf = folder.join("vm.json");
    let bytes = fs::read(&path).map_err(|error| failed("cannot read vm.json", &error))?;
    serde_json::from_slice(&bytes).map_err(|error| failed("vm.json is not a record of this cloud", &error.into()))
}

fn record(machine: &Machine, ready: bool) -> Result<(), Started> {
    ProcessIdentity::of(std::process::id())
        .map(|process| SupervisorRecord { process, ready, init: None })
        .and_then(|record| file::write_json(&machine.supervisor(), &record, file::PRIVATE))
        .map_err(|error| failed("cannot write supervisor.json", &error))
}

fn claim(vm: &VmRecord, folder: &Path) -> Result<Vec<tokio::net::UnixListener>, Started> {
    let mut claims = Vec::new();
    for address in &vm.addresses {
        let claimed = address::claim(*address).and_then(|claim| claim.map(listener).transpose());
        match claimed.map_err(|error| failed(&format!("cannot claim {address} for {}", folder.display()), &error))? {
            Some(claim) => claims.push(claim),
            None => {
                let holder = address::holder(*address).ok().flatten();
                let holder = holder.unwrap_or_else(|| "another process".to_owned());
                return Err(Started::AddressTaken { address: *address, holder });
            }
        }
    }
    Ok(claims)
}

fn listener(claim: UnixListener) -> io::Result<tokio::net::UnixListener> {
    claim.set_nonblocking(true)?;
    tokio::net::UnixListener::from_std(claim)
}

/// Tells whoever asks which VM has the address.
async fn tell_holder(claim: tokio::net::UnixListener, holder: String) {
    loop {
        match claim.accept().await {
            Ok((mut stream, _)) => {
                let _ = stream.write_all(holder.as_bytes()).await;
            }
            // Out of descriptors, most likely; the claim itself stands.
            Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

fn failed(what: &str, error: &io::Error) -> Started {
    Started::Failed(format!("{what}: {error}"))
}

/// Says how the start went, and closes stdout: nobody listens afterwards.
fn say(started: &Started) {
    if let Ok(mut line) = serde_json::to_vec(started) {
        line.push(b'\n');
        // A caller that was killed does not listen, and the VM runs all the same.
        let mut stdout = io::stdout();
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }
    if let Ok(null) = fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
