//! The cage of a Ruby. Templates come from everybody who may upload releases, and the director has every secret.
//!
//! Two processes of this program, the second of which becomes Ruby:
//!
//! | process | where | what it does |
//! |---|---|---|
//! | keeper | new user, mount, process, network, IPC, host name and control group namespaces | waits for the end of Ruby, or of whom it answers |
//! | Ruby | pid 1 of the process namespace, in a root of Ruby's own files, all read-only, and 16 MiB in memory for temporary ones | has no rights, no network, and the system calls of [`syscalls`] |
//!
//! Without namespaces, where the operator allows that, there is one process, with the same limits and system calls.

#![expect(clippy::disallowed_methods, reason = "namespaces that end with the process")]

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use nix::sched::CloneFlags;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_remount, unmount,
};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde_json::json;

use super::installation::Installation;
use super::{FLAGS, SCRIPT, syscalls};

/// The word by which this program knows that it is one of these processes.
pub(super) const VERB: &str = "render-cage";
pub(super) const KEEP: &str = "keep";
pub(super) const OPEN: &str = "open";
const BECOME: &str = "become";

/// Where the root is made: Ruby is not there, and nothing else that is needed.
const PLACE: &str = "/proc";
const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const DATA: MountFlags = PLAIN.union(MountFlags::NOEXEC);

/// What one process may take, for as long as it lives.
const LIMITS: [(Resource, u64); 5] = [
    (Resource::As, 1 << 30),
    (Resource::Cpu, 120),
    (Resource::Fsize, 16 << 20),
    (Resource::Nofile, 64),
    (Resource::Core, 0),
];

/// Is one of the processes around a caged Ruby (`windlass render-cage …`); `words` follow that word.
pub fn render_cage(words: &[OsString]) -> ExitCode {
    let [part, installation] = words else { return ExitCode::FAILURE };
    let read = installation.to_str().and_then(|text| serde_json::from_str::<Installation>(text).ok());
    let Some(ruby) = read else { return ExitCode::FAILURE };
    let ended = match part.to_str() {
        Some(KEEP) => keep(installation),
        Some(BECOME) => enter(&ruby).and_then(|()| become_ruby(&ruby)),
        Some(OPEN) => become_ruby(&ruby),
        _ => return ExitCode::FAILURE,
    };
    if let Err(error) = ended {
        // Nobody reads it: there is nobody to tell.
        let _ = writeln!(io::stdout(), "{}", json!({ "failed": error.to_string() }));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn doing<T, E: Into<io::Error>>(what: &str, result: Result<T, E>) -> io::Result<T> {
    result.map_err(|error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("cannot {what}: {error}"))
    })
}

/// Makes the namespaces, and waits.
fn keep(installation: &OsString) -> io::Result<()> {
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    doing("make a user namespace", nix::sched::unshare(flags))?;
    // The kernel wants this before somebody without rights maps groups.
    doing("set up the user namespace", fs::write("/proc/self/setgroups", "deny"))?;
    doing("map the user", fs::write("/proc/self/uid_map", format!("0 {} 1\n", user.0)))?;
    doing("map the group", fs::write("/proc/self/gid_map", format!("0 {} 1\n", user.1)))?;
    let program = std::env::current_exe()?;
    let ruby = doing("start a process", Command::new(program).args([VERB, BECOME]).arg(installation).spawn())?;
    wait(ruby)
}

/// Waits until Ruby ends, or nobody listens to it any more: it ends with this process.
fn wait(mut ruby: Child) -> io::Result<()> {
    let pid = i32::try_from(ruby.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no pid"))?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let stdout = io::stdout();
    let mut watched =
        [PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
    while let Err(error) = poll(&mut watched, None) {
        if error != rustix::io::Errno::INTR {
            return Err(error.into());
        }
    }
    let _ = ruby.kill();
    ruby.wait().map(|_| ())
}

/// Goes to a root that has nothing but Ruby, and leaves all rights behind.
fn enter(ruby: &Installation) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    close_inherited()?;
    doing(
        "leave the mounts of this machine",
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE),
    )?;
    doing("make a root", mount("root", PLACE, "tmpfs", DATA, c"mode=755,size=1m"))?;
    for path in ruby.folders.iter().chain(&ruby.files) {
        doing(&format!("show {}", path.display()), show(path))?;
    }
    for (link, target) in &ruby.links {
        let place = inside(link);
        doing(&format!("show {}", link.display()), in_folder(&place).and_then(|()| symlink(target, &place)))?;
    }
    let temporary = inside(Path::new("/tmp"));
    fs::create_dir_all(&temporary)?;
    doing("make /tmp", mount("tmp", temporary, "tmpfs", DATA, c"mode=1777,size=16m,nr_inodes=1k"))?;
    doing("make the root read-only", mount_remount(PLACE, MountFlags::BIND | MountFlags::RDONLY | DATA, c""))?;
    let entered = rustix::process::chdir(PLACE)
        .and_then(|()| rustix::process::pivot_root(".", "."))
        .and_then(|()| unmount(".", UnmountFlags::DETACH))
        .and_then(|()| rustix::process::chdir("/"));
    doing("enter the root", entered)?;
    doing("give up all rights", give_up_rights())
}

/// Whatever started the director may have left files open in it.
fn close_inherited() -> io::Result<()> {
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in open {
        // One of them was the folder itself, which is closed.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

fn inside(path: &Path) -> PathBuf {
    Path::new(PLACE).join(path.strip_prefix("/").unwrap_or(path))
}

fn in_folder(place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Shows a file or folder of this machine at its place, read-only.
fn show(path: &Path) -> io::Result<()> {
    let place = inside(path);
    if path.is_dir() {
        fs::create_dir_all(&place)?;
    } else {
        in_folder(&place)?;
        fs::write(&place, "")?;
    }
    mount_bind_recursive(path, &place)?;
    // What else the mount forbids stays so: the kernel insists on that.
    let now = rustix::fs::statvfs(&place)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | PLAIN;
    if now.contains(StatVfsMountFlags::NOEXEC) {
        flags |= MountFlags::NOEXEC;
    }
    Ok(mount_remount(&place, flags, c"")?)
}

fn give_up_rights() -> rustix::io::Result<()> {
    for right in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(right) {
            // A right that this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

/// Becomes Ruby, within limits.
fn become_ruby(ruby: &Installation) -> io::Result<()> {
    // Signals to one's own group reach nobody else.
    let _ = rustix::process::setsid();
    for (resource, most) in LIMITS {
        let now = rustix::process::getrlimit(resource);
        let most = now.maximum.map_or(most, |maximum| maximum.min(most));
        doing("lower limits", setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }))?;
    }
    let libraries: Vec<_> = ruby.files.iter().chain(ruby.links.keys()).filter_map(|file| file.parent()).collect();
    let mut command = Command::new(&ruby.program);
    command.args(FLAGS).args(["-e", SCRIPT]).env_clear().current_dir("/");
    command.env("HOME", "/tmp").env("TMPDIR", "/tmp").env("LANG", "C.UTF-8").env("PATH", "");
    let mut folders: Vec<_> = libraries.iter().map(|folder| folder.display().to_string()).collect();
    folders.dedup();
    command.env("LD_LIBRARY_PATH", folders.join(":"));
    rustix::thread::set_no_new_privs(true)?;
    doing("restrict system calls", syscalls::restrict())?;
    doing(&format!("start {}", ruby.program.display()), Err(command.exec()))
}
