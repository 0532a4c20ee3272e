//! A VM from the inside: the process that keeps it running.
//!
//! One per VM, in a session of its own. It holds the VM's lock and addresses, collects what the VM prints, and leaves no
//! process behind when it is told to end. In process isolation it keeps the agent running itself: it starts it again when it
//! ends (which agents do to take new settings), and adopts and reaps the agent's orphans. In container isolation, and where a
//! VM has a root of its own, the first process inside does that, and the supervisor keeps the whole.

mod agent;
mod console;
mod contained;

use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_contract::agent::POWERED_OFF;
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_durable::process::ProcessIdentity;

use self::agent::Agent;
use self::console::{Console, Notes};
use self::contained::Contained;
use crate::address;
use crate::container::boot::AGENT_LOG;
use crate::machine::{Machine, Started, SupervisorRecord};
use crate::state::VmRecord;
use windlass_contract::explain;

/// How long we wait for the lock: a program that looks whether it is held, holds it for a moment.
const LOCK_PATIENCE: Duration = Duration::from_millis(200);

/// What became of a process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It was what the VM runs for.
    PoweredOff,
    /// The agent, to be started again, or processes that nobody waits for.
    Others,
}

/// What a supervisor keeps running.
enum Inside {
    Agent(Agent),
    Contained(Contained),
}

/// What of the VM is on record beside the supervisor.
#[derive(Debug, Clone, Copy, Default)]
struct RecordedProcesses {
    init: Option<ProcessIdentity>,
    keeper: Option<ProcessIdentity>,
}

/// Is the supervisor of the VM in `folder` until it is told to end, or the VM powers itself off (`windlass vm-run DIR`). Says
/// on stdout, in one line, how the start went.
pub fn vm_run(folder: &Path) -> ExitCode {
    // Not when we lead a process group already, as under a shell; then the session is the shell's.
    let _ = rustix::process::setsid();
    let started = rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| failed("cannot start the supervisor", &error.into()))
        .and_then(|()| supervise(folder));
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&problem);
            ExitCode::FAILURE
        }
    }
}

/// Everything that can keep the VM from starting comes before the first line that is said.
fn supervise(folder: &Path) -> Result<(), Started> {
    let machine = Machine::new(folder);
    machine.end_orphans().map_err(|error| failed("processes of its last run remain", &error))?;
    let _lock = match FileLock::acquire(&machine.lock(), LOCK_PATIENCE) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(Started::Busy),
        Err(error) => return Err(failed("cannot lock the VM", &error)),
    };
    machine.clean_up_after_supervisor().map_err(|error| failed("processes of its last run remain", &error))?;
    let vm = read_record(folder)?;
    record(&machine, false, RecordedProcesses::default())?;
    let supervised = run(&vm, &machine);
    let cleared = match &vm.container {
        Some(container) => {
            crate::container::running::clear(&vm, container, &machine).map_err(|error| Started::Failed(explain(&error)))
        }
        None => Ok(()),
    };
    // Only now is everything gone that the record's presence warns of.
    let removed = cleared.and_then(|()| {
        file::remove_file(&machine.supervisor()).map_err(|error| failed("cannot remove the record", &error))
    });
    supervised.and(removed)
}

fn run(vm: &VmRecord, machine: &Machine) -> Result<(), Started> {
    let claims = claim(vm, machine.folder())?;
    // What is started first in a container, or in a root of its own, keeps the agent's log.
    let log = (vm.container.is_none() && vm.own_root.is_none()).then(|| machine.agent_log());
    let mut console =
        Console::of_vm(machine.console(), log).map_err(|error| failed("cannot open the console", &error))?;
    // A container is a copy of this process, so it comes before anything that has threads or handles signals.
    let contained = match (&vm.container, &vm.own_root) {
        (Some(container), _) => Some(Contained::start(vm, container, machine, &console)?),
        (None, Some(_)) => Some(Contained::start_in_own_root(machine, &console)?),
        (None, None) => None,
    };
    let cannot = |error: &io::Error| failed("cannot start the supervisor", error);
    let runtime = runtime().map_err(|error| cannot(&error))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(|error| failed("cannot watch signals", &error))?;
        let mut inside = match contained {
            Some(contained) => Inside::Contained(contained),
            None => {
                let mut agent = Agent::of_process(vm, machine, &console).map_err(|error| cannot(&error))?;
                agent.start().map_err(|error| failed(&format!("cannot run {}", vm.agent.display()), &error))?;
                Inside::Agent(agent)
            }
        };
        record(machine, true, inside.processes())?;
        say(&Started::Ready);
        for claim in claims {
            let claim = listener(claim).map_err(|error| failed("cannot hold the VM's addresses", &error))?;
            tokio::spawn(tell_holder(claim, format!("VM '{}' in {}", vm.cid, machine.folder().display())));
        }
        watch(&mut inside, &mut console, &mut signals).await;
        inside.end(&mut console, &mut signals.child).await;
        Ok(())
    })
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn watch(inside: &mut Inside, console: &mut Console, signals: &mut Signals) {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return,
            _ = signals.interrupt.recv() => return,
            _ = signals.child.recv() => {
                if inside.reap(console) == Ended::PoweredOff {
                    return;
                }
            }
            () = inside.due() => inside.restart(console),
            () = console.copy() => {}
        }
    }
}

impl Inside {
    fn processes(&self) -> RecordedProcesses {
        match self {
            Self::Agent(_) => RecordedProcesses::default(),
            Self::Contained(contained) => contained.processes(),
        }
    }

    fn reap(&mut self, notes: &mut impl Notes) -> Ended {
        match self {
            Self::Agent(agent) => agent.reap(notes),
            Self::Contained(contained) => contained.reap(notes),
        }
    }

    async fn due(&self) {
        match self {
            Self::Agent(agent) => agent.due().await,
            Self::Contained(_) => std::future::pending().await,
        }
    }

    fn restart(&mut self, notes: &mut impl Notes) {
        if let Self::Agent(agent) = self {
            agent.restart(notes);
        }
    }

    async fn end(self, console: &mut Console, child_ended: &mut Signal) {
        match self {
            Self::Agent(agent) => console.copy_during(agent.end(child_ended)).await,
            Self::Contained(contained) => contained.end(console, child_ended).await,
        }
    }
}

/// Keeps `command`, an agent, running as the first process of a VM, and ends with it. `problems` hears why it cannot be
/// started, and closes once it runs.
pub(crate) fn keep_running_as_init(mut command: Command, mut problems: PipeWriter) -> ! {
    let program = command.get_program().display().to_string();
    let started = runtime().and_then(|runtime| {
        let _context = runtime.enter();
        let signals = Signals::new()?;
        let console = Console::in_vm(AGENT_LOG.into())?;
        command.stdout(console.pipe().try_clone()?).stderr(console.pipe().try_clone()?);
        let mut agent = Agent::new(command);
        agent.start()?;
        Ok((runtime, signals, console, agent))
    });
    let (runtime, mut signals, mut console, agent) = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = problems.write_all(format!("cannot run {program}: {error}").as_bytes());
            std::process::exit(1);
        }
    };
    drop(problems);
    let mut inside = Inside::Agent(agent);
    let status = runtime.block_on(async {
        let status = loop {
            tokio::select! {
                _ = signals.terminate.recv() => break 0,
                _ = signals.child.recv() => {
                    if inside.reap(&mut console) == Ended::PoweredOff {
                        break POWERED_OFF;
                    }
                }
                () = inside.due() => inside.restart(&mut console),
                () = console.copy() => {}
            }
        };
        inside.end(&mut console, &mut signals.child).await;
        status
    });
    std::process::exit(i32::from(status))
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

fn record(machine: &Machine, ready: bool, processes: RecordedProcesses) -> Result<(), Started> {
    write_record(machine, ready, processes).map_err(|error| failed("cannot write supervisor.json", &error))
}

fn write_record(
    machine: &Machine,
    ready: bool,
    RecordedProcesses { init, keeper }: RecordedProcesses,
) -> io::Result<()> {
    let process = ProcessIdentity::of(std::process::id())?;
    file::write_json(&machine.supervisor(), &SupervisorRecord { process, ready, init, keeper }, file::PRIVATE)
}

fn claim(vm: &VmRecord, folder: &Path) -> Result<Vec<UnixListener>, Started> {
    let mut claims = Vec::new();
    for address in &vm.addresses {
        let cannot = |error| failed(&format!("cannot claim {address} for {}", folder.display()), &error);
        match address::claim(*address).map_err(cannot)? {
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

/// Tells every client that connects which VM has the address.
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
