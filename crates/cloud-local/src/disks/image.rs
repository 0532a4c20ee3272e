//! An ext4 file system in a sparse file, and the loop device that shows it.
//!
//! The loop device is `mount`'s: the kernel releases it with the last mount. So there is never one without a mount, and
//! whether the image is in use is asked of the kernel, not of a record.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, mount_change, open_tree};
use windlass_contract::VmCid;
use windlass_durable::{file, kill_point};

use super::error::{DiskError, io_error};
use super::mounts::{self, Device};
use super::tool::{E2FSCK, LOSETUP, MKFS, MOUNT, RESIZE2FS, ToolError};
use super::{copy, holders, namespaces, space};
use crate::container::users;

const MIB: u64 = 1024 * 1024;

/// How long the kernel has to let go of a file after its last unmount: others, as udev, look at devices, too.
const LET_GO: Duration = Duration::from_secs(10);
/// How long it may take after the last unmount: a program that lists loop devices holds each for a moment.
const SETTLES: Duration = Duration::from_secs(1);

/// `e2fsck` found something and repaired it.
const REPAIRED: i32 = 1;

/// An image in a disk's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DiskImage {
    path: PathBuf,
}

/// A loop device that holds an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    pub(super) device: Device,
}

impl DiskImage {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Makes an empty file system. Zeros are what a new file is made of, so nothing has to write them later.
    pub(super) fn make(&self, size_mib: u64) -> Result<(), DiskError> {
        let made = OpenOptions::new().write(true).create_new(true).mode(file::PRIVATE).open(&self.path);
        let sized = made.and_then(|file| file.set_len(size_mib * MIB));
        sized.map_err(io_error("make", &self.path))?;
        let options = ["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=1"];
        MKFS.run(options.map(OsStr::new).into_iter().chain([self.path.as_os_str()]))?;
        self.flush()
    }

    /// How long the file is.
    pub(crate) fn size_mib(&self) -> Result<u64, DiskError> {
        Ok(self.path.metadata().map_err(io_error("look at", &self.path))?.len() / MIB)
    }

    /// The space that a copy takes where blocks are not shared.
    pub(super) fn allocated(&self) -> Result<u64, DiskError> {
        Ok(copy::allocated(&self.path.metadata().map_err(io_error("look at", &self.path))?))
    }

    /// A copy of the image, which must be frozen or unmounted.
    pub(super) fn copy_to(&self, path: &Path) -> Result<Self, DiskError> {
        copy::copy_file(&self.path, path).map_err(io_error("copy to", path))?;
        Ok(Self::new(path))
    }

    /// The loop devices that hold this very file, by device and inode, whatever it was called when they took it.
    pub(crate) fn held_by(&self) -> Result<Vec<LoopDevice>, DiskError> {
        let options = ["--noheadings", "--output", "NAME,MAJ:MIN", "--associated"];
        let listed = LOSETUP.run(options.map(OsStr::new).into_iter().chain([self.path.as_os_str()]))?;
        listed.lines().map(parse_loop).collect()
    }

    /// Mounts the image at `point`, unless it is mounted there; with the ids that `namespace` gives to those of the disk, if there is one. An
    /// image that anything else holds is refused: one disk is never mounted twice.
    pub(super) fn mount(&self, point: &Path, namespace: Option<BorrowedFd<'_>>) -> Result<(), DiskError> {
        match self.is_free_for(point)? {
            true => self.mount_at(point, namespace),
            false => Ok(()),
        }
    }

    /// Mounts what is at `point` in a VM, at `inside`, by one of its processes.
    pub(super) fn pass_on(&self, point: &Path, inside: &Path, process: u32) -> Result<(), DiskError> {
        let failed = |error| io_error("show the VM", point)(error);
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(CWD, point, flags).map_err(|error| failed(error.into()))?;
        users::set_apart(mount.as_fd()).map_err(failed)?;
        kill_point("before a disk is shown again");
        namespaces::of(process).and_then(|vm| vm.enter(|_| users::put(mount.as_fd(), inside))?).map_err(failed)?;
        kill_point("after a disk is shown again");
        Ok(())
    }

    fn mount_at(&self, point: &Path, namespace: Option<BorrowedFd<'_>>) -> Result<(), DiskError> {
        let Some(namespace) = namespace else { return self.mount_plain(point) };
        let failed = |error| io_error("translate the ids of", point)(error);
        // Nobody sees it with other ids: in mounts of its own, which go with the thread.
        let unseen = || -> Result<OwnedFd, DiskError> {
            unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).map_err(|error| failed(error.into()))?;
            // What is unmounted elsewhere goes here as well.
            mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)
                .map_err(|error| failed(error.into()))?;
            self.mount_plain(point)?;
            users::translated(point, namespace).map_err(failed)
        };
        let thread = std::thread::scope(|scope| scope.spawn(unseen).join());
        let mount = thread.map_err(|_| failed(std::io::Error::other("the thread that mounts it panicked")))??;
        kill_point("before a disk is shown");
        users::put(mount.as_fd(), point).map_err(failed)?;
        kill_point("after a disk is shown");
        Ok(())
    }

    /// Whether it is yet to be mounted at `point`.
    fn is_free_for(&self, point: &Path) -> Result<bool, DiskError> {
        file::create_private_dir(point).map_err(io_error("make", point))?;
        let deadline = Instant::now() + SETTLES;
        while let Some(held) = self.held_by()?.into_iter().next() {
            if self.is_mounted_at(point)? {
                return Ok(false);
            }
            if Instant::now() > deadline {
                return Err(self.is_held(held));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(true)
    }

    fn mount_plain(&self, point: &Path) -> Result<(), DiskError> {
        MOUNT.run(
            ["-t", "ext4", "-o", "loop"].map(OsStr::new).into_iter().chain([self.path.as_os_str(), point.as_os_str()]),
        )?;
        Ok(())
    }

    /// Whether `point` shows this image to us.
    pub(crate) fn is_mounted_at(&self, point: &Path) -> Result<bool, DiskError> {
        let Ok(point) = point.canonicalize() else { return Ok(false) };
        let devices = self.held_by()?;
        let mounts = mounts::of_this_process().map_err(io_error("read", Path::new("/proc/self/mountinfo")))?;
        let there = mounts::at(&mounts, &point);
        Ok(there.is_some_and(|mount| devices.iter().any(|held| held.device == mount.device)))
    }

    /// Whether a process sees this image at `point`.
    pub(super) fn is_seen_at(&self, point: &Path, pid: u32) -> Result<bool, DiskError> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let devices = self.held_by()?;
        let mounts = namespaces::mounts_of(&process).map_err(io_error("read the mounts of", &process))?;
        let there = mounts::at(&mounts, point);
        Ok(there.is_some_and(|mount| devices.iter().any(|held| held.device == mount.device)))
    }

    /// Unmounts the image wherever it is mounted, in the VM that has it as well, and returns once the kernel has let go of the file.
    pub(super) fn release(&self, vm: Option<&VmCid>) -> Result<(), DiskError> {
        let devices = self.held_by()?;
        if devices.is_empty() {
            return Ok(());
        }
        // The kernel gives a loop device to the next image as soon as nobody has it, and that one must not be unmounted: so
        // it is held while we unmount, and asked for again once it is held.
        let opened: Vec<(Device, File)> =
            devices.iter().filter_map(|held| Some((held.device, File::open(&held.path).ok()?))).collect();
        let devices = self.held_by()?;
        for held in &devices {
            if opened.iter().any(|(device, _)| *device == held.device) {
                namespaces::unmount_everywhere(held.device, vm)?;
            }
        }
        drop(opened);
        let deadline = Instant::now() + LET_GO;
        while let Some(held) = self.held_by()?.into_iter().next() {
            if Instant::now() > deadline {
                return Err(self.is_held(held));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Fails if any loop device holds the image.
    pub(crate) fn ensure_free(&self) -> Result<(), DiskError> {
        match self.held_by()?.into_iter().next() {
            Some(held) => Err(self.is_held(held)),
            None => Ok(()),
        }
    }

    fn is_held(&self, held: LoopDevice) -> DiskError {
        let holders = holders::of(held.device);
        DiskError::Held { device: held.path, image: self.path.clone(), holders }
    }

    /// Makes the file as long as asked. From here on the growth is bound to be finished, if need be by a later call.
    pub(super) fn lengthen(&self, size_mib: u64) -> Result<(), DiskError> {
        let opened = OpenOptions::new().write(true).open(&self.path);
        let lengthened = opened.and_then(|file| {
            if file.metadata()?.len() < size_mib * MIB {
                file.set_len(size_mib * MIB)?;
            }
            file.sync_all()
        });
        lengthened.map_err(io_error("lengthen", &self.path))
    }

    /// Makes the file system fill the file while it is mounted, as the kernel does it: whole at every moment.
    pub(super) fn fill_mounted(&self) -> Result<(), DiskError> {
        for held in self.held_by()? {
            LOSETUP.run([OsStr::new("--set-capacity"), held.path.as_os_str()])?;
            match RESIZE2FS.run([&held.path]) {
                Err(ToolError::Failed { said, .. }) if said.contains("Permission denied") => {
                    return Err(DiskError::CannotGrowInUse);
                }
                other => other?,
            };
        }
        Ok(())
    }

    /// Makes the file system fill the file while nobody uses it, through `point`, where the kernel allows that. Otherwise a
    /// copy grows and then takes the image's place, because a tool that is killed in the middle spoils what it works on.
    pub(super) fn fill(&self, point: &Path) -> Result<(), DiskError> {
        self.mount(point, None)?;
        let filled = self.fill_mounted();
        self.release(None)?;
        match filled {
            Err(DiskError::CannotGrowInUse) => self.fill_copy(),
            other => other,
        }
    }

    fn fill_copy(&self) -> Result<(), DiskError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        if !copy::shares_blocks(folder).map_err(io_error("try to copy in", folder))? {
            space::ensure(folder, self.allocated()?)?;
        }
        let copied = self.copy_to(&file::beside(&self.path).map_err(io_error("copy", &self.path))?)?;
        let grown = copied.fill_unseen();
        let renamed =
            grown.and_then(|()| file::rename(&copied.path, &self.path).map_err(io_error("replace", &self.path)));
        if renamed.is_err() {
            file::discard(&copied.path);
        }
        renamed
    }

    /// Makes the file system of an image that nobody knows of yet fill its file.
    pub(super) fn fill_unseen(&self) -> Result<(), DiskError> {
        match E2FSCK.run([OsStr::new("-f"), OsStr::new("-p"), self.path.as_os_str()]) {
            Err(ToolError::Failed { code: Some(REPAIRED), .. }) => {}
            other => {
                other?;
            }
        }
        RESIZE2FS.run([&self.path])?;
        self.flush()
    }

    fn flush(&self) -> Result<(), DiskError> {
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(io_error("flush", &self.path))
    }
}

/// A line that is not understood must not pass for an image that nobody holds.
fn parse_loop(line: &str) -> Result<LoopDevice, DiskError> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next().and_then(Device::parse)) {
        (Some(name), Some(device)) => Ok(LoopDevice { path: name.into(), device }),
        _ => Err(ToolError::Failed { program: "losetup", code: Some(0), said: format!("it printed '{line}'") }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_device_that_is_not_understood_does_not_pass_for_none() {
        let held = parse_loop("/dev/loop1   7:1  ").unwrap();
        assert_eq!((held.path.to_str(), Some(held.device)), (Some("/dev/loop1"), Device::parse("7:1")));
        assert!(parse_loop("/dev/loop1").is_err());
    }
}
