//! What a VM with a root of its own sees.
//!
//! ```text
//! /                    in memory, of the VM's own
//! /usr, /bin, /lib…    of this machine, read-only, without /usr/local
//! /etc                 of the stemcell, with what programs of this machine need of its own, read-only; made at each start
//! /var/vcap            base/ in the VM's folder
//! /tmp, /var/tmp       base/data/root_tmp; /var/log: base/data/root_log
//! /proc, /dev          of the VM's own; /sys: of this machine, read-only
//! STATE/disks          the disks that are attached, by the names that they have on this machine
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "a mount namespace of the VM, which ends with it; each start makes all of the root"
)]

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::keeper::context;
use super::{disks, ids};
use crate::container::boot::{AGENT, AGENT_CONFIG};
use crate::container::root::Root;
use crate::machine::{Machine, SETTINGS_IN_VM};
use crate::state::VmRecord;
use crate::userland;

/// The agent's base folder.
pub(super) const BASE: &str = "/var/vcap";

/// Devices that programs need and that tell nothing of this machine.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Parts of `/proc` that belong to the machine, and that a process with root's number could read or write.
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
const MASKED: [&str; 8] = ["acpi", "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "scsi", "timer_list"];

const PLAIN: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Where the root is made before it is one. The stemcell and the VM itself decide what is in it, links included; so each path is looked up
/// as the VM would do it, and never among the files of this machine.
struct Tree {
    root: Root,
    place: PathBuf,
}

/// Makes the root of a VM and goes there.
pub(super) fn make(machine: &Machine, is_root_alone: bool) -> io::Result<()> {
    let vm: VmRecord = serde_json::from_slice(&fs::read(machine.folder().join("vm.json"))?)?;
    let Some(own) = &vm.own_root else { return Err(io::Error::other("vm.json names no root file system")) };
    let tree = Tree::begin(&machine.root())?;
    copy(&own.stemcell, &tree.place, Path::new(""))?;
    tree.userland()?;
    tree.configuration(is_root_alone).map_err(|error| context("make /etc", error))?;
    tree.folders_of_vm(machine).map_err(|error| context("show the VM's own folders", error))?;
    tree.agent(&vm.agent, machine).map_err(|error| context(&format!("show {}", vm.agent.display()), error))?;
    tree.kernel()?;
    // Last: what is above may have made folders on the way.
    tree.disks(machine).map_err(|error| context("show the disks", error))?;
    tree.enter()
}

/// A root in `folder` with nothing in it, to see whether the kernel lets us.
pub(super) fn make_smallest(folder: &Path) -> io::Result<()> {
    let tree = Tree::begin(folder)?;
    tree.kernel()?;
    tree.enter()
}

impl Tree {
    fn begin(root: &Path) -> io::Result<Self> {
        mount("root", root, "tmpfs", PLAIN, c"mode=755,size=128m")
            .map_err(|error| context("mount a root in memory", error.into()))?;
        Ok(Self { root: Root::open(root)?, place: root.to_owned() })
    }

    fn folder(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        self.root.make_folder(path).map_err(|error| context(&format!("make the folder {}", path.display()), error))
    }

    /// Shows a file or folder of this machine at `path`, with all that is mounted in it.
    fn show(&self, source: &Path, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        let target = if source.is_dir() {
            self.folder(path)?
        } else {
            match self.root.find(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.root.put_public(path, b"")?;
                    self.root.find(path)?
                }
                found => found?,
            }
        };
        mount_bind_recursive(source, &target)?;
        Ok(target)
    }

    fn show_read_only(&self, path: &Path) -> io::Result<()> {
        let shown = self.show(path, path).and_then(|target| make_read_only(&target));
        shown.map_err(|error| context(&format!("show {}", path.display()), error))
    }

    fn userland(&self) -> io::Result<()> {
        for (path, target) in userland::links() {
            self.root.put_link(path.as_ref(), &target)?;
        }
        for path in userland::shown() {
            self.show_read_only(&path)?;
        }
        if let Ok(local) = self.root.find(userland::LOCAL.as_ref()) {
            mount("none", local, "tmpfs", PLAIN | MountFlags::RDONLY, c"mode=755,size=4k")?;
        }
        Ok(())
    }

    fn configuration(&self, is_root_alone: bool) -> io::Result<()> {
        self.folder("/etc")?;
        if is_root_alone {
            for name in ["/etc/passwd", "/etc/group"] {
                let text = self.root.read(name)?.ok_or_else(|| io::Error::other(format!("there is no {name}")))?;
                self.root.put_public(name.as_ref(), ids::with_vcap_as_root(&text).as_bytes())?;
            }
        }
        // Names are found as this machine finds them, whose network it is.
        let servers = fs::read("/etc/resolv.conf").unwrap_or_default();
        self.root.put_public("/etc/resolv.conf".as_ref(), &servers)?;
        let zone = fs::read_link("/etc/localtime").ok().filter(|target| target.iter().any(|part| part == "zoneinfo"));
        let links = [
            ("/etc/hosts", Some(PathBuf::from("/var/vcap/bosh/etc_hosts"))),
            ("/etc/localtime", zone),
            ("/etc/mtab", Some("/proc/self/mounts".into())),
            ("/etc/os-release", Some("/usr/lib/os-release".into())),
        ];
        for (path, target) in links {
            if let Some(target) = target {
                self.root.replace_link(path.as_ref(), &target)?;
            }
        }
        Ok(())
    }

    fn folders_of_vm(&self, machine: &Machine) -> io::Result<()> {
        let base = machine.base();
        // Users other than root go through it. The VM's folder around it is for its owner alone.
        fs::set_permissions(&base, Permissions::from_mode(0o755))?;
        self.show(&base, BASE)?;
        for (name, mode, places) in
            [("root_tmp", 0o1777, &["/tmp", "/var/tmp"][..]), ("root_log", 0o755, &["/var/log"])]
        {
            let folder = self.folder(Path::new(BASE).join("data").join(name))?;
            fs::set_permissions(&folder, Permissions::from_mode(mode))?;
            for place in places {
                self.show(&folder, place)?;
            }
        }
        // Pids in it mean nothing after a boot.
        let run = self.folder("/var/vcap/data/sys/run")?;
        mount("run", run, "tmpfs", PLAIN, c"mode=1777,size=16m")?;
        for folder in ["/run/lock", "/root", "/home/vcap", "/opt", "/mnt", "/var/lib", "/var/cache"] {
            self.folder(folder)?;
        }
        for (path, target) in [("/var/run", "/run"), ("/var/lock", "/run/lock")] {
            self.root.put_link(path.as_ref(), target.as_ref())?;
        }
        Ok(())
    }

    /// Puts the agent where it looks for itself, with its configuration and settings. Read-only, because the agent may be a
    /// program of this machine, and root inside may have the number of its owner.
    fn agent(&self, agent: &Path, machine: &Machine) -> io::Result<()> {
        make_read_only(&self.show(agent, AGENT)?)?;
        for (source, place) in [(machine.agent_config(), AGENT_CONFIG), (machine.settings(), SETTINGS_IN_VM)] {
            self.root.put_private(place.as_ref(), &fs::read(source)?)?;
        }
        let hosts = "/var/vcap/bosh/etc_hosts";
        if !self.root.has(hosts) {
            self.root.put_public(hosts.as_ref(), b"127.0.0.1 localhost\n::1 localhost\n")?;
        }
        Ok(())
    }

    fn kernel(&self) -> io::Result<()> {
        let proc = self.folder("/proc")?;
        mount("proc", &proc, "proc", PLAIN | MountFlags::NOEXEC, None)
            .map_err(|error| context("mount /proc; is something mounted in that of this machine", error.into()))?;
        self.devices().map_err(|error| context("make /dev", error))?;
        for path in READ_ONLY.iter().map(|name| proc.join(name)).filter(|path| path.exists()) {
            mount_bind(&path, &path)?;
            make_read_only(&path)?;
        }
        for path in MASKED.iter().map(|name| proc.join(name)).filter(|path| path.exists()) {
            if path.is_dir() {
                mount("none", path, "tmpfs", PLAIN | MountFlags::RDONLY, c"size=4k")?;
            } else {
                mount_bind(self.root.find("/dev/null".as_ref())?, &path)?;
                make_read_only(&path)?;
            }
        }
        self.show_read_only(Path::new("/sys"))
    }

    fn devices(&self) -> io::Result<()> {
        let dev = self.folder("/dev")?;
        mount("dev", &dev, "tmpfs", MountFlags::NOSUID, c"mode=755,size=64k")?;
        for name in DEVICES {
            let source = Path::new("/dev").join(name);
            if source.exists() {
                // Devices can be written to all the same; only what this machine's file allows to whom cannot be changed.
                self.show_read_only(&source)?;
            }
        }
        for (name, target) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            symlink(target, dev.join(name))?;
        }
        let data = PLAIN | MountFlags::NOEXEC;
        let terminals = self.folder("/dev/pts")?;
        mount(
            "devpts",
            terminals,
            "devpts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            c"newinstance,ptmxmode=0666,mode=620",
        )?;
        mount("shm", self.folder("/dev/shm")?, "tmpfs", data, c"mode=1777,size=64m")?;
        Ok(mount("mqueue", self.folder("/dev/mqueue")?, "mqueue", data, None)?)
    }

    /// As a slave of the keeper's: what that mounts appears, and nothing goes back.
    fn disks(&self, machine: &Machine) -> io::Result<()> {
        let folder = machine.disks();
        mount_change(&folder, MountPropagationFlags::DOWNSTREAM)?;
        let target = self.show(&folder, disks::all(machine))?;
        restrict(&target)
    }

    /// Makes this the root, and lets go of the one before.
    fn enter(self) -> io::Result<()> {
        let entered = rustix::process::chdir(&self.place)
            .and_then(|()| rustix::process::pivot_root(".", "."))
            .and_then(|()| unmount(".", UnmountFlags::DETACH))
            .and_then(|()| rustix::process::chdir("/"));
        entered.map_err(|error| context("enter the root", error.into()))
    }
}

/// Makes a mount and all below it read-only.
fn make_read_only(top: &Path) -> io::Result<()> {
    let mounts = crate::disks::mounts::of_this_process()?;
    mounts.iter().filter(|mount| mount.point.starts_with(top)).try_for_each(|mount| restrict(&mount.point))
}

/// Makes one mount read-only. What else it forbids stays so: the kernel insists on that.
pub(super) fn restrict(point: &Path) -> io::Result<()> {
    let now = rustix::fs::statvfs(point)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    for (has, flag) in [(StatVfsMountFlags::NODEV, MountFlags::NODEV), (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC)]
    {
        if now.contains(has) {
            flags |= flag;
        }
    }
    Ok(mount_remount(point, flags, c"")?)
}

/// Copies the few files that such a stemcell has. `below` is the path so far; what is in the VM's own folder is left out.
fn copy(from: &Path, to: &Path, below: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let (source, target) = (entry.path(), to.join(&path));
        let kind = entry.file_type()?;
        if path == Path::new("var/vcap") {
            continue;
        } else if kind.is_dir() {
            fs::create_dir_all(&target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy(from, to, &path)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(source)?, target)?;
        } else if kind.is_file() {
            fs::copy(source, target)?;
        }
    }
    Ok(())
}
