//! A container from its supervisor's point of view: made, connected, started; ended.

use std::fs;
use std::io::{self, PipeWriter, Read};
use std::path::PathBuf;
use std::sync::Arc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::error::LibcontainerError;
use libcontainer::syscall::syscall::SyscallType;
use nix::sched::CloneFlags;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use windlass_durable::file;
use windlass_durable::kill_point;
use windlass_durable::process::ProcessIdentity;

use super::boot::Boot;
use super::init::FirstProcess;
use super::root::{Root, mount_overlay};
use super::sources::Sources;
use super::spec;
use super::{cgroup, handover};
use crate::disks;
use crate::machine::Machine;
use crate::network::{NetworkError, wire};
use crate::state::{ContainerRecord, VmRecord};
use crate::userland::{self, Userland};

/// The name of the container in its own folder.
const NAME: &str = "vm";

/// why a container does not start
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerError {
    /// the operating system refused
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the disks' folder cannot be made
    #[error(transparent)]
    Disks(#[from] disks::error::DiskError),
    /// the container could not be made
    #[error("cannot make the container")]
    Create(#[source] Box<LibcontainerError>),
    /// this machine does not let its users be its own
    #[error("cannot make a user namespace for the VM")]
    Users(#[source] io::Error),
    /// its network could not be made
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// its first process did not run
    #[error("{0}")]
    NotRunning(String),
}

fn io_error(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ContainerError {
    move |source| ContainerError::Io { doing, path: path.into(), source }
}

/// Makes and starts the container of `vm`. This process must have one thread only, because it becomes two. `made` is told
/// the container's first process before it does anything.
pub(crate) fn start(
    vm: &VmRecord,
    container: &ContainerRecord,
    machine: &Machine,
    console: &PipeWriter,
    made: impl FnOnce(ProcessIdentity) -> io::Result<()>,
) -> Result<ProcessIdentity, ContainerError> {
    disks::folder::open(&machine.disks())?;
    {
        let _networks = crate::network::lock(machine.state()).map_err(io_error("lock", machine.state()))?;
        wire::prepare(&container.wiring)?;
    }
    let (sources, store) = prepare_root(vm, container, machine)?;
    if let Some((ids, _)) = &sources.users {
        raise_limits();
        // A program that opens its output again, as `/dev/stderr`, must be allowed to.
        let (user, group) = ids.root();
        rustix::fs::fchown(console, Some(user), Some(group))
            .map_err(|error| io_error("give the VM", machine.console())(error.into()))?;
    }
    let bundle = machine.bundle();
    file::create_private_dir(&bundle).map_err(io_error("make", &bundle))?;
    let run = bundle.join("run");
    file::remove(&run).map_err(io_error("remove", &run))?;
    let document = bundle.join("config.json");
    serde_json::to_vec_pretty(&spec::document(vm, container, &sources, store.as_deref()))
        .map_err(io::Error::from)
        .and_then(|bytes| file::write_in_place(&document, bytes))
        .map_err(io_error("write", &document))?;

    let (mut problems, writer) = io::pipe().map_err(io_error("make a pipe for", &bundle))?;
    let first =
        FirstProcess { boot: container.boot.clone(), confinement: container.confinement, problems: Arc::new(writer) };
    let output = || console.try_clone().map_err(io_error("duplicate", machine.console()));
    let created = |error| ContainerError::Create(Box::new(error));
    let builder = ContainerBuilder::new(NAME.to_owned(), SyscallType::default())
        .with_executor(first)
        .with_stdout(output()?)
        .with_stderr(output()?)
        .with_root_path(&run)
        .map_err(created)?;
    let stay = cgroup::enter(vm.cid.as_str()).map_err(io_error("enter the control groups of", machine.folder()))?;
    if let (Some((ids, _)), Boot::Systemd) = (&sources.users, &container.boot) {
        cgroup::hand_over(vm.cid.as_str(), ids.root())
            .map_err(io_error("give the control groups of", machine.folder()))?;
    }
    kill_point("before the container is made");
    let made_container = builder.as_init(&bundle).with_systemd(false).with_detach(true).build();
    kill_point("after the container is made");
    stay.leave().map_err(io_error("leave the control groups of", machine.folder()))?;
    let mut made_container = made_container.map_err(created)?;
    cgroup::bound(vm.cid.as_str()).map_err(io_error("bound the control groups of", machine.folder()))?;
    sources.let_go().map_err(io_error("leave the mounts of", machine.folder()))?;
    let pid = made_container.pid().and_then(|pid| u32::try_from(pid.as_raw()).ok());
    let pid = pid.ok_or_else(|| ContainerError::NotRunning("the container has no first process".to_owned()))?;
    let init = ProcessIdentity::of(pid).map_err(io_error("look at the first process of", machine.folder()))?;
    made(init).map_err(io_error("write", machine.supervisor()))?;
    wire::connect(&vm.cid, &container.wiring, pid)?;
    kill_point("before the container starts");
    made_container.start().map_err(created)?;
    kill_point("after the container started");
    let mut problem = String::new();
    problems.read_to_string(&mut problem).map_err(io_error("hear from", machine.folder()))?;
    if problem.is_empty() { Ok(init) } else { Err(ContainerError::NotRunning(problem)) }
}

/// Mounts the root file system where only this process and the container see it, so that it goes with them, and puts in
/// what the VM must find there. Tells which disk its agent must find on the store.
fn prepare_root(
    vm: &VmRecord,
    container: &ContainerRecord,
    machine: &Machine,
) -> Result<(Sources, Option<PathBuf>), ContainerError> {
    kill_point("before the root file system is mounted");
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(|error| io_error("leave the mounts of", "/")(error.into()))?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
        .map_err(|error| io_error("leave the mounts of", "/")(error.into()))?;
    let sources = Sources::find(container, machine).map_err(ContainerError::Users)?;
    let root = &sources.root;
    if sources.users.is_none() {
        mount_overlay(&container.root, &machine.upper(), &machine.work(), root)
            .map_err(io_error("mount an overlay at", root))?;
    }
    let fill = || fill_root(vm, container, machine, &sources);
    let store = match &sources.users {
        None => fill()?,
        Some((ids, _)) => ids.as_root(fill).map_err(io_error("be root of", machine.folder()))??,
    };
    Ok((sources, store))
}

/// Puts in what the VM must find. Tells which disk its agent must find on the store.
fn fill_root(
    vm: &VmRecord,
    container: &ContainerRecord,
    machine: &Machine,
    sources: &Sources,
) -> Result<Option<PathBuf>, ContainerError> {
    let root = &sources.root;
    let inside = Root::open(root).map_err(io_error("open", root))?;
    let settings = fs::read(machine.settings()).map_err(io_error("read", machine.settings()))?;
    inside.put_private(&container.settings_path, &settings).map_err(io_error("write", &container.settings_path))?;
    if let Some(config) = &container.agent_config {
        inside
            .put_public(super::boot::AGENT_CONFIG.as_ref(), config.to_string().as_bytes())
            .map_err(io_error("write", super::boot::AGENT_CONFIG))?;
    }
    // BOSH's agent would make it for root alone, and jobs that run as vcap reach nothing below it.
    inside.make_folder("/var/vcap/data".as_ref()).map_err(io_error("make", "/var/vcap/data"))?;
    if container.userland == Userland::Host {
        for (path, target) in userland::links() {
            inside.put_link(path.as_ref(), &target).map_err(io_error("write", path))?;
        }
    }
    put_name_servers(container, &inside).map_err(io_error("write", "/etc/resolv.conf"))?;
    handover::put_programs(&inside).map_err(io_error("write the programs of", machine.folder()))?;
    handover::last_disk(vm, &sources.disks, &inside).map_err(io_error("look for the disk of", machine.folder()))
}

/// Root of a user namespace raises no limit above that of the process which it came from. The VM's programs find room as before.
fn raise_limits() {
    const FILES: u64 = 1 << 20;
    for (resource, most) in [
        (Resource::Nofile, Some(FILES)),
        (Resource::Nproc, None),
        (Resource::Memlock, None),
        (Resource::Core, None),
        (Resource::Stack, None),
    ] {
        let Rlimit { current, maximum } = getrlimit(resource);
        let maximum = maximum.zip(most).map(|(now, most)| now.max(most));
        // Where we may not either, the VM has what we have.
        let _ = setrlimit(resource, Rlimit { current, maximum });
    }
}

/// Where the image leaves it to us: agents of stemcells write the file themselves.
fn put_name_servers(container: &ContainerRecord, inside: &Root) -> io::Result<()> {
    const FILE: &str = "/etc/resolv.conf";
    let servers = &container.wiring.name_servers;
    let is_ours = inside.read(FILE)?.is_none_or(|text| text.trim().is_empty()) && !inside.is_link(FILE);
    if servers.is_empty() || !is_ours {
        return Ok(());
    }
    let lines: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    inside.put_public(FILE.as_ref(), lines.as_bytes())
}

/// Removes what a container that ended leaves on the machine, but for its bridges and its files.
pub(crate) fn clear(vm: &VmRecord, container: &ContainerRecord, machine: &Machine) -> Result<(), ContainerError> {
    cgroup::kill(vm.cid.as_str(), crate::machine::STOP).map_err(io_error("end the processes of", machine.folder()))?;
    cgroup::remove(vm.cid.as_str()).map_err(io_error("remove the control groups of", machine.folder()))?;
    Ok(wire::disconnect(&vm.cid, &container.wiring)?)
}
