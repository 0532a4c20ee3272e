//! Whose users those of a container are. With a user namespace they are its own: root inside of it is nobody on this machine.
//!
//! Each such VM has a range of this machine's ids. Where files outlive the VM, in stemcells and on disks, they keep the ids that they have
//! inside: mounts translate those. What the VM writes above its stemcell ends with it, and belongs to ids of the range.
//!
//! Whether this machine can do that is tried at `create_vm`, by making the container. What came of it is in the VM's record and stays so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ChildStdout, ExitCode, Stdio};

use libcontainer::syscall::linux::{AT_EMPTY_PATH, LinuxSyscall, MountAttr};
use libcontainer::syscall::{Syscall, SyscallError};
use nix::sched::CloneFlags;
use nix::unistd::{setfsgid, setfsuid, setresgid, setresuid};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{capabilities, set_capabilities, set_keep_capabilities};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use windlass_durable::file;

/// The part of this program that holds a user namespace until somebody else has it.
pub(crate) const HOLDER: &str = "users";

/// What an overlay is made of, in the folder where its maker finds it.
pub(super) const STEMCELL: &str = "stemcell";
pub(super) const VM: &str = "vm";
const UPPER: &str = "vm/upper";
const WORK: &str = "vm/work";

/// How many ids a VM has: as many as stemcells use.
const COUNT: u32 = 1 << 16;

/// The first id of the first range: above those that systemd and others give to containers, users and services.
const FIRST: u32 = 0x7000_0000;

/// Above them are ids that systemd gives to images.
const RANGES: u32 = 0x0ffe;

/// An attribute of a mount: its ids are translated.
const TRANSLATED: u64 = 0x0010_0000;

/// How a mount shares what is mounted below it: with nobody.
const PRIVATE: u64 = 1 << 18;

/// In the cloud's folder: the kernel under which a VM had users of its own.
const WORKED: &str = "own-users";

/// Whose users those of a container are; decided at `create_vm` and kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Users {
    /// This machine's: its root is root here. So it is with `nesting`, and in VMs whose record does not say.
    #[default]
    OfMachine,
    /// Its own.
    Own(Ids),
    /// This machine's, because it could not give it others, and why.
    Refused(String),
}

/// The ids of this machine that a VM's users have, by the first of them, which is that of root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ids(u32);

impl Users {
    pub(crate) fn ids(&self) -> Option<Ids> {
        match self {
            Self::Own(ids) => Some(*ids),
            Self::OfMachine | Self::Refused(_) => None,
        }
    }
}

impl Ids {
    /// A range that is not among the `taken` ones. Spread by the VM's id: other clouds of this machine choose, too.
    pub(crate) fn choose(seed: Uuid, taken: &BTreeSet<Self>) -> Option<Self> {
        let start = u32::try_from(seed.as_u128() % u128::from(RANGES)).unwrap_or_default();
        let ranges = (0..RANGES).map(|step| Self(FIRST + (start + step) % RANGES * COUNT));
        ranges.into_iter().find(|ids| !taken.contains(ids))
    }

    /// Who root of the VM is on this machine.
    pub(crate) fn root(self) -> (Uid, Gid) {
        (Uid::from_raw(self.0), Gid::from_raw(self.0))
    }

    /// Does `work` as root of the VM, in this thread: nobody else makes files in a file system that is the VM's own.
    pub(crate) fn as_root<T>(self, work: impl FnOnce() -> T) -> io::Result<T> {
        let rights = capabilities(None)?;
        setfsgid(self.0.into());
        setfsuid(self.0.into());
        // Whoever changes this id loses rights to files, which root of the VM would have.
        let kept = set_capabilities(None, rights);
        let done = kept.map(|()| work());
        setfsuid(rustix::process::geteuid().as_raw().into());
        setfsgid(rustix::process::getegid().as_raw().into());
        set_capabilities(None, rights)?;
        Ok(done?)
    }

    /// A user namespace with these ids. It goes with the last process and the last mount that uses it.
    pub(crate) fn namespace(self, windlass: &Path) -> io::Result<OwnedFd> {
        self.hold(windlass)?.namespace.try_clone()
    }

    /// The same, with root of it.
    #[expect(clippy::disallowed_methods, reason = "ids of a user namespace, which end with it")]
    pub(super) fn hold(self, windlass: &Path) -> io::Result<Holder> {
        let process = crate::own_root::users_holder(windlass)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut process = Ended(process);
        let stdin = process.0.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe"))?;
        writeln!(stdin, "{}", self.0).and_then(|()| stdin.flush())?;
        let hears = process.0.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let mut hears = BufReader::new(hears);
        let said = hear(&mut hears)?;
        if said != HOLDER {
            return Err(io::Error::other(format!("there is no user namespace: {said}")));
        }
        let folder = Path::new("/proc").join(process.0.id().to_string());
        for map in ["uid_map", "gid_map"] {
            fs::write(folder.join(map), format!("0 {} {COUNT}\n", self.0))?;
        }
        let namespace = rustix::fs::open(folder.join("ns/user"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Holder { process, hears, namespace })
    }
}

/// Root of a new user namespace, as a process that does what is asked of it.
#[derive(Debug)]
pub(super) struct Holder {
    process: Ended,
    hears: BufReader<ChildStdout>,
    pub(super) namespace: OwnedFd,
}

/// A process that ends with this value.
#[derive(Debug)]
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Holder {
    /// An overlay of what lies in `stage`, mounted nowhere yet. It is the user namespace's own, so that the VM's root may change how
    /// it is mounted, as agents do.
    pub(super) fn overlay(&mut self, stage: &Path) -> io::Result<OwnedFd> {
        let stdin = self.process.0.stdin.as_mut().ok_or_else(|| io::Error::other("no pipe"))?;
        writeln!(stdin, "{}", stage.display()).and_then(|()| stdin.flush())?;
        let said = hear(&mut self.hears)?;
        let Ok(descriptor) = said.parse::<u32>() else {
            return Err(io::Error::other(format!("cannot mount an overlay in the user namespace: {said}")));
        };
        let path = format!("/proc/{}/fd/{descriptor}", self.process.0.id());
        Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
    }
}

fn hear(from: &mut impl BufRead) -> io::Result<String> {
    let mut said = String::new();
    from.read_line(&mut said)?;
    Ok(if said.is_empty() { "its process ended without a word".to_owned() } else { said.trim().to_owned() })
}

/// Is the process that holds a new user namespace, until it is killed or the one that started it ends.
pub(crate) fn hold() -> ExitCode {
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout());
    let mut say = |word: String| writeln!(stdout, "{word}").and_then(|()| stdout.flush());
    let held = hear(&mut stdin).and_then(|owner| make_namespace(owner.parse().map_err(io::Error::other)?));
    let told = say(held.as_ref().map_or_else(ToString::to_string, |()| HOLDER.to_owned()));
    let mut stage = String::new();
    if held.is_err() || told.is_err() || stdin.read_line(&mut stage).unwrap_or(0) == 0 {
        return ExitCode::FAILURE;
    }
    let mount = mount_overlay(Path::new(stage.trim()));
    let told = say(match &mount {
        Ok(mount) => mount.as_raw_fd().to_string(),
        Err(error) => error.to_string(),
    });
    // Until the other side has it.
    let _ = stdin.read_line(&mut stage);
    if mount.is_ok() && told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes a user namespace that belongs to this id. What its processes take of the kernel counts for who it belongs to: for root, all VMs and
/// the machine's services would share watches of files, timers and waiting signals.
fn make_namespace(owner: u32) -> io::Result<()> {
    for limit in [Resource::Nproc, Resource::Sigpending] {
        // What this process may have, the whole VM may.
        let _ = setrlimit(limit, Rlimit { current: getrlimit(limit).maximum, ..getrlimit(limit) });
    }
    let rights = capabilities(None)?;
    set_keep_capabilities(true)?;
    setresgid(owner.into(), owner.into(), owner.into())?;
    setresuid(owner.into(), owner.into(), owner.into())?;
    // Machines that let nobody else make such namespaces let who has these rights.
    set_capabilities(None, rights)?;
    Ok(nix::sched::unshare(CloneFlags::CLONE_NEWUSER)?)
}

fn mount_overlay(stage: &Path) -> io::Result<OwnedFd> {
    setresgid(0.into(), 0.into(), 0.into())?;
    setresuid(0.into(), 0.into(), 0.into())?;
    // Whose mounts are others' mounts nothing.
    nix::sched::unshare(CloneFlags::CLONE_NEWNS)?;
    let overlay = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&overlay, "source", "overlay")?;
    for (option, place) in [("lowerdir", STEMCELL), ("upperdir", UPPER), ("workdir", WORK)] {
        fsconfig_set_string(&overlay, option, stage.join(place))?;
    }
    // Where it notes what it hides: nobody but root of the machine may use the usual place.
    fsconfig_set_flag(&overlay, "userxattr")?;
    fsconfig_create(&overlay)?;
    Ok(fsmount(&overlay, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Whether a VM of this cloud has had users of its own under this kernel. Then the machine can, and one that has none by a fault of its
/// stemcell is not made without.
pub(crate) fn worked(state: &Path) -> bool {
    fs::read(state.join(WORKED)).is_ok_and(|kernel| kernel == rustix::system::uname().release().to_bytes())
}

/// Notes that a VM has users of its own.
pub(crate) fn note_worked(state: &Path) -> io::Result<()> {
    if worked(state) {
        return Ok(());
    }
    file::write(&state.join(WORKED), rustix::system::uname().release().to_bytes(), file::PRIVATE)
}

/// What is mounted at `path`, with the ids that `namespace` gives it. It is mounted nowhere yet, and goes with the descriptor.
pub(crate) fn translated(path: &Path, namespace: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mount = open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    translate(mount.as_fd(), namespace)?;
    Ok(mount)
}

/// Gives a mount that is nowhere yet the ids of `namespace`.
pub(crate) fn translate(mount: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let userns_fd = u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?;
    set_attributes(mount, MountAttr { attr_set: TRANSLATED, attr_clr: 0, propagation: 0, userns_fd })
}

/// What is mounted below a mount that is nowhere yet appears nowhere else: a copy shares that with what it was copied from.
pub(crate) fn set_apart(mount: BorrowedFd<'_>) -> io::Result<()> {
    set_attributes(mount, MountAttr { attr_set: 0, attr_clr: 0, propagation: PRIVATE, userns_fd: 0 })
}

fn set_attributes(mount: BorrowedFd<'_>, attributes: MountAttr) -> io::Result<()> {
    let set = LinuxSyscall.mount_setattr(mount, Path::new(""), AT_EMPTY_PATH, &attributes, size_of::<MountAttr>());
    set.map_err(|error| match error {
        SyscallError::Nix(error) => error.into(),
        other => io::Error::other(other),
    })
}

/// Mounts what is nowhere yet at `point`.
pub(crate) fn put(mount: BorrowedFd<'_>, point: &Path) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_two_vms_have_the_same_ids_and_all_are_where_nobody_else_has_any() {
        let mut taken = BTreeSet::new();
        for _ in 0..RANGES {
            taken.insert(Ids::choose(Uuid::from_u128(u128::MAX), &taken).unwrap());
        }
        assert_eq!(Ids::choose(Uuid::nil(), &taken), None);
        let (first, last) = (taken.first().unwrap().0, taken.last().unwrap().0 + (COUNT - 1));
        // What systemd keeps for containers, and for images.
        assert!(first > 0x6fff_ffff && last < 2_147_352_576, "{first} {last}");
    }

    #[test]
    fn what_is_recorded_of_users_is_read_again() {
        for (users, text) in [
            (Users::OfMachine, json!("of_machine")),
            (Users::Own(Ids(0x7000_0000)), json!({"own": 1_879_048_192})),
            (Users::Refused("no".to_owned()), json!({"refused": "no"})),
        ] {
            assert_eq!(serde_json::to_value(&users).unwrap(), text);
            assert_eq!(serde_json::from_value::<Users>(text).unwrap(), users);
        }
    }
}
