//! The control group of a VM, in every hierarchy that this machine has. All processes of a container are in it, from before
//! its first one runs, so that what a killed supervisor left is found here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use windlass_cpi::resources::Kept;
use windlass_durable::{file, kill_point};

use super::group_tree;
use crate::state::VmRecord;

/// How deep a VM's groups may go and how many there may be, where the kernel counts them (version 2): each takes memory of the machine, which
/// can have 65,535 that limit memory.
const DEEPEST: u32 = 100;
const MOST: u32 = 1000;

/// The name of a VM's group. Right below the root of each hierarchy: a folder for all of them would be made and removed at
/// the same time by different calls.
fn name(vm: &str) -> String {
    format!("{PREFIX}{vm}")
}

const PREFIX: &str = "windlass-";

/// The VM in whose group a process is, if it is in one. It cannot be told of one that ended, or that is in groups that a VM has made too
/// deep.
pub(crate) fn vm_of(process: &Path) -> io::Result<Option<String>> {
    Ok(vm_in(&fs::read_to_string(process.join("cgroup"))?))
}

/// Groups of VMs are right below the root: elsewhere, VMs and users who may make groups have made them.
fn vm_in(groups: &str) -> Option<String> {
    let vm = |group: &str| group.strip_prefix(PREFIX).filter(|vm| vm.starts_with(VmRecord::PREFIX)).map(str::to_owned);
    groups.lines().find_map(|line| vm(line.splitn(3, ':').nth(2)?.strip_prefix('/')?.split('/').next()?))
}

/// The path of a VM's group, from the root of each hierarchy.
pub(crate) fn path(vm: &str) -> String {
    format!("/{}", name(vm))
}

/// Ends all processes of a VM.
pub(crate) fn kill(vm: &str, patience: Duration) -> io::Result<()> {
    let groups = groups(vm)?;
    let deadline = Instant::now() + patience;
    loop {
        let mut pids = BTreeSet::new();
        for group in &groups {
            thaw(group)?;
            collect(group, &mut pids)?;
        }
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        // Where there are very many groups, a look at them takes longer than that.
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("the processes {pids:?} of {vm} do not end")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether processes of a VM are left.
pub(crate) fn has_processes(vm: &str) -> bool {
    let mut pids = BTreeSet::new();
    for group in groups(vm).unwrap_or_default() {
        // One that vanishes meanwhile has none.
        let _ = collect(&group, &mut pids);
    }
    !pids.is_empty()
}

/// Removes a VM's group, which must have no processes. Gone already is a success.
pub(crate) fn remove(vm: &str) -> io::Result<()> {
    for group in groups(vm)? {
        kill_point("before a control group is removed");
        remove_tree(&group)?;
    }
    Ok(())
}

/// A stay of this process in a VM's group, in the hierarchies that limit nothing and that the container library therefore
/// leaves out: a container that is made meanwhile takes the group for the root of the hierarchy. Without that, an init that
/// makes groups, as systemd does, would make them among the machine's own.
#[must_use = "the way back is in it"]
pub(crate) struct Stay {
    back: Vec<PathBuf>,
}

/// Goes into the group of `vm`.
pub(crate) fn enter(vm: &str) -> io::Result<Stay> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mut back = Vec::new();
    for hierarchy in hierarchies()? {
        let Some(home) = hierarchy.path_without_limits(&own) else { continue };
        let group = hierarchy.point.join(name(vm));
        match fs::create_dir(&group) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        join(&group)?;
        back.push(hierarchy.point.join(home.trim_start_matches('/')));
    }
    Ok(Stay { back })
}

impl Stay {
    /// Goes back to where this process came from.
    pub(crate) fn leave(self) -> io::Result<()> {
        self.back.iter().try_for_each(|group| join(group))
    }
}

/// Gives the groups of a VM to its root: an init that makes groups makes them there. What limits the VM itself stays ours. In version 1 it gets
/// none of those that limit something: with them it could freeze processes so that nobody can end them, and take all groups that the kernel
/// can have.
pub(super) fn hand_over(vm: &str, (user, group): (Uid, Gid)) -> io::Result<()> {
    for hierarchy in hierarchies()?.into_iter().filter(|it| it.is_only_one() || it.limits_nothing()) {
        let own = hierarchy.point.join(name(vm));
        match fs::create_dir(&own) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for file in [".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
            match rustix::fs::chown(own.join(file), Some(user), Some(group)) {
                // Each version has its own.
                Err(Errno::NOENT) | Ok(()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Bounds the groups that a VM makes below its own.
pub(super) fn bound(vm: &str) -> io::Result<()> {
    for group in groups(vm)? {
        for (file, most) in [("cgroup.max.depth", DEEPEST), ("cgroup.max.descendants", MOST)] {
            let file = group.join(file);
            if file.exists() {
                file::write_in_place(&file, most.to_string())?;
            }
        }
    }
    Ok(())
}

/// Makes room for containers in a VM: its first process, which calls this, goes into a group below that of the VM. In version 2 only
/// a group without processes can have limits below it. In version 1 nothing has to be done, and systemd does it by itself.
pub(super) fn make_room_for_containers() -> io::Result<()> {
    let top = Path::new("/sys/fs/cgroup");
    let Ok(controllers) = fs::read_to_string(top.join("cgroup.controllers")) else { return Ok(()) };
    let own = top.join("init");
    match fs::create_dir(&own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    join(&own)?;
    for controller in controllers.split_whitespace() {
        // Without one that the kernel keeps, the others still limit.
        let _ = file::write_in_place(&top.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    Ok(())
}

fn join(group: &Path) -> io::Result<()> {
    file::write_in_place(&group.join("cgroup.procs"), std::process::id().to_string())
}

fn groups(vm: &str) -> io::Result<Vec<PathBuf>> {
    let groups = hierarchies()?.into_iter().map(|hierarchy| hierarchy.point.join(name(vm)));
    Ok(groups.filter(|group| group.exists()).collect())
}

/// A hierarchy of groups: one in version 2, one per kind of resource in version 1, both in machines between.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// What `/proc/PID/cgroup` calls it: nothing in version 2.
    controllers: String,
}

/// The hierarchies of this machine.
pub(crate) fn hierarchies() -> io::Result<Vec<Hierarchy>> {
    // Mount points of others may be no text.
    let mounts = fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    // Another mount may cover one.
    let is_there = |hierarchy: &Hierarchy| hierarchy.point.join("cgroup.procs").exists();
    Ok(mounts.lines().filter_map(Hierarchy::parse).filter(is_there).collect())
}

/// Whether groups of this machine can limit how many processes they have.
pub(crate) fn can_count_processes() -> bool {
    hierarchies().is_ok_and(|hierarchies| hierarchies.iter().any(Hierarchy::counts_processes))
}

impl Hierarchy {
    /// Mount points of hierarchies have no odd characters.
    fn parse(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let point = PathBuf::from(place.split(' ').nth(4)?);
        let mut kind = kind.split(' ');
        let controllers = match kind.next()? {
            "cgroup2" => String::new(),
            "cgroup" => {
                kind.nth(1)?.split(',').filter(|option| !matches!(*option, "rw" | "ro")).collect::<Vec<_>>().join(",")
            }
            _ => return None,
        };
        Some(Self { point, controllers })
    }

    /// Of version 2, with none of version 1 beside it.
    fn is_only_one(&self) -> bool {
        self.controllers.is_empty() && self.point == Path::new("/sys/fs/cgroup")
    }

    /// One with a name, or that of version 2 beside those of version 1.
    fn limits_nothing(&self) -> bool {
        self.controllers.is_empty() || self.controllers.contains("name=")
    }

    /// One of version 2 beside those of version 1 limits nothing here.
    fn counts_processes(&self) -> bool {
        let has_it = |names: &str| names.split([',', ' ', '\n']).any(|name| name == "pids");
        if self.is_only_one() {
            fs::read_to_string(self.point.join("cgroup.controllers")).is_ok_and(|names| has_it(&names))
        } else {
            has_it(&self.controllers)
        }
    }

    /// The path of this process's group, if the hierarchy limits nothing here.
    fn path_without_limits<'a>(&self, own: &'a str) -> Option<&'a str> {
        if self.is_only_one() || !self.limits_nothing() {
            return None;
        }
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            (fields.next()? == self.controllers).then(|| fields.next())?
        })
    }
}

/// Lets frozen processes go on: in version 1 nothing ends one that is frozen.
fn thaw(group: &Path) -> io::Result<()> {
    let thawed = |group: BorrowedFd<'_>| {
        let state = rustix::fs::openat(group, "freezer.state", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        // Other hierarchies have no such file, and groups vanish.
        if let Ok(state) = state {
            let _ = rustix::io::write(state, b"THAWED");
        }
        Ok(())
    };
    group_tree::walk(group, thawed, |_, _| Ok(()))
}

/// The processes of this group, without those of groups below it.
fn processes_of(group: BorrowedFd<'_>) -> io::Result<Vec<i32>> {
    let read = |name: &str| -> io::Result<String> {
        let mut text = String::new();
        let file = rustix::fs::openat(group, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        fs::File::from(file).read_to_string(&mut text)?;
        Ok(text)
    };
    let members = match read("cgroup.procs") {
        // A VM that may make groups may make one of threads, which has no list of processes. Who ends a thread ends its process.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => read("cgroup.threads"),
        members => members,
    };
    match members {
        // Nought is a process of another namespace, which is not ours to end; nor is this one.
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| line.parse::<i32>().ok())
            .filter(|pid| *pid > 0 && pid.cast_unsigned() != std::process::id())
            .collect()),
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn collect(group: &Path, pids: &mut BTreeSet<i32>) -> io::Result<()> {
    let processes = |group: BorrowedFd<'_>| {
        pids.extend(processes_of(group)?);
        Ok(())
    };
    group_tree::walk(group, processes, |_, _| Ok(()))
}

#[expect(clippy::disallowed_methods, reason = "control groups, which end with the machine")]
fn remove_tree(top: &Path) -> io::Result<()> {
    // The kernel lets go of processes that ended a moment later, and these may have made groups until then.
    let deadline = Instant::now() + Duration::from_secs(5);
    let removed = |error: io::Error| match error {
        error if is_gone(&error) => Ok(true),
        error if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        error => Err(error),
    };
    loop {
        group_tree::walk(
            top,
            |_| Ok(()),
            |above, name| match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
                Ok(()) => Ok(()),
                Err(error) => removed(error.into()).map(|_| ()),
            },
        )?;
        let is_removed = fs::remove_dir(top).map(|()| true).or_else(removed)?;
        match is_removed {
            true => return Ok(()),
            false if Instant::now() > deadline => return fs::remove_dir(top),
            false => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_kinds_are_found() {
        let v1 = "33 25 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        let v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        let named = "40 25 0:35 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd";
        let beside = "41 25 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let parse = |line| Hierarchy::parse(line).unwrap();
        assert_eq!(parse(v1).point, Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(parse(v2).point, Path::new("/sys/fs/cgroup"));
        assert_eq!(Hierarchy::parse("22 1 0:20 / /proc rw - proc proc rw"), None);
        let own = "9:name=systemd:/service\n4:memory:/limited\n0::/session\n";
        assert_eq!(parse(named).path_without_limits(own), Some("/service"));
        assert_eq!(parse(beside).path_without_limits(own), Some("/session"));
        assert_eq!(parse(v1).path_without_limits(own), None, "the container library knows it");
        assert_eq!(parse(v2).path_without_limits(own), None);
        let pids = "34 25 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";
        let counts = [pids, v1, named, beside].map(|line| parse(line).counts_processes());
        assert_eq!(counts, [true, false, false, false]);
    }

    #[test]
    fn a_process_is_of_the_vm_whose_group_it_is_below() {
        assert_eq!(vm_in("4:memory:/windlass-vm-1\n0::/\n").as_deref(), Some("vm-1"));
        assert_eq!(vm_in("1:name=systemd:/windlass-vm-1/y/windlass-vm-2\n").as_deref(), Some("vm-1"));
        assert_eq!(vm_in("0::/user.slice/user-1000.slice/windlass-vm-1\n"), None, "any user could");
        assert_eq!(vm_in("0::/system.slice/windlass-director.service\n1:cpu:/windlass\n"), None);
    }

    #[test]
    fn frozen_processes_of_a_vm_are_ended() {
        let vm = format!("frozen-{}", std::process::id());
        let Some(freezer) = hierarchies().unwrap().into_iter().find(|it| it.controllers == "freezer") else {
            return eprintln!("needs a freezer of version 1 and did not run");
        };
        let below = freezer.point.join(name(&vm)).join("below");
        if let Err(error) = fs::create_dir_all(&below) {
            return eprintln!("needs root and did not run: {error}");
        }
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(below.join("cgroup.procs"), child.id().to_string()).unwrap();
        fs::write(below.join("freezer.state"), "FROZEN").unwrap();
        let ended = kill(&vm, Duration::from_secs(5));
        let _ = thaw(&below);
        child.kill().unwrap();
        child.wait().unwrap();
        let removed = remove(&vm);
        ended.and(removed).unwrap();
    }

    /// Root of a VM with systemd may make groups, and the paths of those were too long for the machine to remove them.
    #[test]
    fn groups_that_are_deeper_than_a_path_is_long_are_removed() {
        let vm = format!("deep-groups-{}", std::process::id());
        let Some(v1) = hierarchies().unwrap().into_iter().find(|it| !it.controllers.is_empty()) else {
            return eprintln!("needs a hierarchy of version 1 and did not run");
        };
        let top = v1.point.join(name(&vm));
        if let Err(error) = fs::create_dir(&top) {
            return eprintln!("needs root and did not run: {error}");
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut group = rustix::fs::open(&top, flags, Mode::empty()).unwrap();
        for _ in 0..100 {
            let name = "d".repeat(200);
            rustix::fs::mkdirat(&group, &name, Mode::RWXU).unwrap();
            group = rustix::fs::openat(&group, &name, flags, Mode::empty()).unwrap();
        }
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let procs = rustix::fs::openat(&group, "cgroup.procs", OFlags::WRONLY, Mode::empty()).unwrap();
        rustix::io::write(&procs, child.id().to_string().as_bytes()).unwrap();
        assert!(has_processes(&vm));
        let ended = kill(&vm, Duration::from_secs(5));
        child.wait().unwrap();
        ended.and_then(|()| remove(&vm)).unwrap();
        assert!(!top.exists());
    }

    #[test]
    fn a_vm_without_processes_needs_no_waiting() {
        kill("vm-that-never-was", Duration::ZERO).unwrap();
        remove("vm-that-never-was").unwrap();
    }

    /// For root alone: others may not make groups.
    #[test]
    fn two_who_remove_a_group_at_once_both_succeed() {
        let vm = format!("two-who-remove-{}", std::process::id());
        let make = || hierarchies()?.iter().try_for_each(|it| fs::create_dir_all(it.point.join(name(&vm)).join("a/b")));
        for _ in 0..50 {
            if let Err(error) = make() {
                eprintln!("needs root and did not run: {error}");
                break;
            }
            let start = std::sync::Barrier::new(2);
            let removed = || {
                start.wait();
                remove(&vm)
            };
            std::thread::scope(|scope| {
                let other = scope.spawn(removed);
                removed().unwrap();
                other.join().unwrap().unwrap();
            });
            assert_eq!(groups(&vm).unwrap(), Vec::<PathBuf>::new());
        }
        let _ = remove(&vm);
    }
}
