//! Unmounting a device wherever it is mounted: the VM has mounts of it that this process does not see, in a mount
//! namespace of its own, and what runs in the VM may have made more of those.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use windlass_contract::VmCid;
use windlass_durable::kill_point;

use super::error::{DiskError, io_error};
use super::holders;
use super::mounts::{self, Device, Mount};
use crate::container::cgroup;

/// How long lists of mounts are read. Processes may have many of them; whether the disk is still held is asked of the kernel in the end.
const LOOKS: Duration = Duration::from_secs(30);

/// A mount namespace, and a process in it.
#[derive(Debug)]
pub(super) struct Namespace {
    link: File,
    name: PathBuf,
    is_own: bool,
}

/// That of a process.
pub(super) fn of(pid: u32) -> io::Result<Namespace> {
    let name = Path::new("/proc").join(pid.to_string()).join("ns/mnt");
    Ok(Namespace { link: File::open(&name)?, name, is_own: false })
}

/// Unmounts `device`, which `vm` has, everywhere; in this process's own namespace last: as long as a VM keeps it, nothing is lost.
pub(super) fn unmount_everywhere(device: Device, vm: Option<&VmCid>) -> Result<(), DiskError> {
    let mut namespaces = with(device, vm)?;
    // Those that processes of the VM made come before the VM's own, which was there first: what is in use there is told before an
    // agent has lost anything.
    namespaces.reverse();
    namespaces.sort_by_key(|namespace| namespace.is_own);
    let mut locked = Vec::new();
    for namespace in namespaces {
        match namespace.unmount(device) {
            // In namespaces of users with fewer rights, as those of VMs with a root of their own and of rootless containers, the
            // kernel keeps all mounts together. Most of them follow ours when that goes.
            Err(DiskError::Io { source, .. })
                if !namespace.is_own && Errno::from_io_error(&source) == Some(Errno::INVAL) =>
            {
                locked.push(namespace);
            }
            unmounted => unmounted?,
        }
    }
    let kept: Vec<String> = locked.iter().filter(|namespace| namespace.has(device)).map(Namespace::holder).collect();
    if kept.is_empty() { Ok(()) } else { Err(DiskError::Kept { holders: kept.join(", ") }) }
}

/// The namespaces in which `device` is mounted. A process that has another root sees other mounts of the same namespace. Other VMs never had
/// the disk, and have no say in how long this takes.
fn with(device: Device, vm: Option<&VmCid>) -> Result<Vec<Namespace>, DiskError> {
    let in_proc = io_error("look for mounts in", Path::new("/proc"));
    let own = fs::metadata("/proc/self/ns/mnt").map_err(in_proc)?.ino();
    let deadline = Instant::now() + LOOKS;
    let mut seen = HashSet::new();
    let mut found = HashSet::new();
    let mut namespaces = Vec::new();
    for pid in holders::pids() {
        let process = Path::new("/proc").join(&pid);
        let Ok(of_vm) = cgroup::vm_of(&process) else { continue };
        if of_vm.is_some() && of_vm.as_deref() != vm.map(VmCid::as_str) {
            continue;
        }
        let name = process.join("ns/mnt");
        // Processes end while we look.
        let (Ok(namespace), Ok(root)) = (fs::metadata(&name), fs::metadata(process.join("root"))) else { continue };
        let (namespace, view) = (namespace.ino(), (namespace.ino(), root.dev(), root.ino()));
        if found.contains(&namespace) || seen.contains(&view) {
            continue;
        }
        let mounts = match Instant::now() > deadline {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "there are too many lists of mounts to read")),
            false => mounts_of(&process),
        };
        let (link, mounts) = match (File::open(&name), mounts) {
            (Ok(link), Ok(mounts)) => (link, mounts),
            (Ok(_), Err(error)) if matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::TimedOut) => {
                if of_vm.is_some() {
                    return Err(DiskError::TooManyMounts { process: holders::named(&pid), source: error });
                }
                seen.insert(view);
                continue;
            }
            // A process that ended since says nothing about the others with its view.
            _ => continue,
        };
        seen.insert(view);
        if mounts.iter().any(|mount| mount.device == device) {
            found.insert(namespace);
            namespaces.push(Namespace { link, name, is_own: namespace == own });
        }
    }
    Ok(namespaces)
}

/// What a process sees mounted.
pub(super) fn mounts_of(process: &Path) -> io::Result<Vec<Mount>> {
    mounts::read(File::open(process.join("mountinfo"))?)
}

impl Namespace {
    /// Whether the process by which it was found still has something of `device` mounted.
    fn has(&self, device: Device) -> bool {
        let process = self.name.ancestors().nth(2).unwrap_or(&self.name);
        mounts_of(process).unwrap_or_default().iter().any(|mount| mount.device == device)
    }

    /// The process by which it was found.
    fn holder(&self) -> String {
        holders::named(&self.name.iter().nth(2).unwrap_or_default().to_string_lossy())
    }

    fn unmount(&self, device: Device) -> Result<(), DiskError> {
        let unmounted = self.enter(|proc| unmount_here(proc, device)).map_err(io_error("enter", &self.name))?;
        unmounted.map_err(|problem| match problem {
            UnmountProblem::Busy(point) => DiskError::Busy { point, holders: holders::of(device) },
            UnmountProblem::Other(error) => error,
        })
    }

    /// Does `work` in the namespace: in a thread, because a process cannot go there and be sure to come back. The thread sees
    /// itself through this namespace's `/proc`; the other one may have none.
    pub(super) fn enter<T: Send>(&self, work: impl FnOnce(&OwnedFd) -> T + Send) -> io::Result<T> {
        let proc = openat(rustix::fs::CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let in_namespace = || -> io::Result<T> {
            unshare(CloneFlags::CLONE_FS)?;
            move_into_link_name_space(self.link.as_fd(), Some(LinkNameSpaceType::Mount))?;
            Ok(work(&proc))
        };
        let thread = std::thread::scope(|scope| scope.spawn(in_namespace).join());
        thread.map_err(|_| io::Error::other("the thread in the mount namespace panicked"))?
    }
}

/// From inside, one cannot see which process is busy.
enum UnmountProblem {
    Busy(PathBuf),
    Other(DiskError),
}

impl From<DiskError> for UnmountProblem {
    fn from(error: DiskError) -> Self {
        Self::Other(error)
    }
}

/// How often one mount is tried, and the pause between: another process that looks at the mount makes it busy for a moment.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// The latest first: what an agent mounted on top of what it was given. What the VM takes away between the look and the unmount
/// is gone: a failure counts only if every further look still finds the same mount. What mounts it again and again holds it.
fn unmount_here(proc: &OwnedFd, device: Device) -> Result<(), UnmountProblem> {
    let deadline = Instant::now() + LOOKS;
    let mut tried: Option<(u64, u32)> = None;
    loop {
        let mounts = own_mounts(proc).map_err(io_error("read", Path::new("mountinfo")))?;
        let Some(mount) = mounts.iter().rfind(|mount| mount.device == device) else { return Ok(()) };
        if Instant::now() > deadline {
            return Err(UnmountProblem::Busy(mount.point.clone()));
        }
        let tries = match tried {
            Some((id, tries)) if id == mount.id => tries + 1,
            _ => 1,
        };
        tried = Some((mount.id, tries));
        match try_unmount(mount, &mounts) {
            Err(problem) if tries == TRIES => return Err(problem),
            Err(_) => std::thread::sleep(PAUSE),
            Ok(()) => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the unmount stands between two kill points")]
fn try_unmount(mount: &Mount, mounts: &[Mount]) -> Result<(), UnmountProblem> {
    let point = mount.point.clone();
    let is_uppermost = fs::symlink_metadata(&point).is_ok_and(|metadata| Device::of(&metadata) == mount.device);
    if !is_uppermost {
        return Err(DiskError::Covered { covered_by: point.clone(), point }.into());
    }
    kill_point("before a disk is unmounted");
    match unmount(&point, UnmountFlags::NOFOLLOW) {
        Ok(()) => {
            kill_point("after a disk is unmounted");
            Ok(())
        }
        Err(Errno::BUSY) => Err(match mounts.iter().rfind(|inner| inner.parent == mount.id) {
            Some(inner) => DiskError::Covered { point, covered_by: inner.point.clone() }.into(),
            None => UnmountProblem::Busy(point),
        }),
        Err(error) => Err(io_error("unmount", &point)(error.into()).into()),
    }
}

fn own_mounts(proc: &OwnedFd) -> io::Result<Vec<Mount>> {
    let file = openat(proc, "thread-self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    mounts::read(file.into())
}

#[cfg(test)]
mod tests {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};

    use super::*;

    /// In mounts of its own, which go with the threads; for root alone.
    #[test]
    fn what_the_vm_unmounts_between_a_look_and_an_unmount_is_unmounted() {
        let folder = tempfile::tempdir().unwrap();
        let race = || {
            if let Err(error) = unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS) {
                eprintln!("needs root and did not run: {error}");
                return;
            }
            mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
            let proc = openat(rustix::fs::CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            for _ in 0..300 {
                mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), None).unwrap();
                let device = Device::of(&fs::metadata(folder.path()).unwrap());
                let start = std::sync::Barrier::new(2);
                let unmount = || {
                    start.wait();
                    unmount_here(&proc, device).map_err(|problem| match problem {
                        UnmountProblem::Busy(point) => format!("{} is busy", point.display()),
                        UnmountProblem::Other(error) => windlass_contract::explain(&error),
                    })
                };
                // The threads that this one starts have its mounts.
                let both = std::thread::scope(|scope| {
                    let other = scope.spawn(unmount);
                    [unmount(), other.join().unwrap()]
                });
                assert_eq!(both, [Ok(()), Ok(())]);
            }
        };
        std::thread::scope(|scope| scope.spawn(race).join().unwrap());
    }
}
