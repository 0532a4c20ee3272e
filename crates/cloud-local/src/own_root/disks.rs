//! The disks of a VM with a root of its own: folders of this machine that appear inside at the same place.
//!
//! The keeper has a folder for them in memory, whose mounts the root has as a slave. A call that attaches a disk goes into the
//! keeper's namespaces for a moment and mounts it there. All that goes with the VM; what is attached is on record.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use nix::sched::CloneFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};
use windlass_contract::DiskCid;
use windlass_durable::kill_point;

use crate::machine::Machine;
use crate::state::{DiskForm, DiskRecord, VmRecord};

/// What is to become of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    Shown,
    Hidden,
}

impl Visibility {
    fn word(self) -> &'static str {
        match self {
            Self::Shown => "show",
            Self::Hidden => "hide",
        }
    }
}

/// Shows a disk in a VM that runs, or hides it there. Nothing is to be done for a VM that does not, or has no root of its own.
pub(crate) fn set_visibility(machine: &Machine, windlass: &Path, disk: &DiskCid, wanted: Visibility) -> io::Result<()> {
    let keeper = machine.supervisor_record().and_then(|record| record.keeper);
    if !keeper.is_some_and(|keeper| keeper.is_running()) {
        return Ok(());
    }
    kill_point("before a disk is shown or hidden");
    let output = std::process::Command::new(windlass)
        .args([super::VERB, wanted.word(), disk.as_str()])
        .arg(machine.folder())
        .env_clear()
        .stdin(Stdio::null())
        .output()?;
    kill_point("after a disk is shown or hidden");
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Does what [`set_visibility`] asks for, in the keeper's namespaces.
pub(super) fn run(folder: &Path, disk: &str, wanted: Visibility) -> ExitCode {
    let done = enter(folder).and_then(|machine| match wanted {
        Visibility::Shown => show(&machine, disk),
        Visibility::Hidden => hide(&machine, disk),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = io::Write::write_all(&mut io::stderr(), error.to_string().as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn enter(folder: &Path) -> io::Result<Machine> {
    let machine = Machine::new(folder);
    let keeper = machine.supervisor_record().and_then(|record| record.keeper).map(|keeper| keeper.pid);
    let keeper = keeper.ok_or_else(|| io::Error::other("the VM does not run"))?;
    let namespace = |kind: &str| File::open(format!("/proc/{keeper}/ns/{kind}"));
    let (user, mounts) = (namespace("user")?, namespace("mnt")?);
    nix::sched::setns(user.as_fd(), CloneFlags::CLONE_NEWUSER)?;
    nix::sched::setns(mounts.as_fd(), CloneFlags::CLONE_NEWNS)?;
    Ok(machine)
}

/// Makes the folder of disks, in the keeper, with those that are attached.
#[expect(clippy::disallowed_methods, reason = "the mount namespace is the keeper's and ends with it")]
pub(super) fn open(machine: &Machine) -> io::Result<()> {
    let folder = machine.disks();
    mount("disks", &folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755,size=1m")?;
    for propagation in [MountPropagationFlags::PRIVATE, MountPropagationFlags::SHARED] {
        mount_change(&folder, propagation)?;
    }
    let vm: VmRecord = read(&machine.folder().join("vm.json"))?;
    for disk in vm.disks.keys() {
        if is_attached(machine, &vm, disk) {
            show(machine, disk.as_str())?;
        }
    }
    Ok(())
}

/// The disk's record decides. Images are not shown to such VMs.
fn is_attached(machine: &Machine, vm: &VmRecord, disk: &DiskCid) -> bool {
    let record = read::<DiskRecord>(&place(machine, disk.as_str()).join("disk.json"));
    record.is_ok_and(|record| {
        record.form == DiskForm::Directory && record.attached_to.is_some_and(|attachment| attachment.vm == vm.cid)
    })
}

fn read<R: serde::de::DeserializeOwned>(path: &Path) -> io::Result<R> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// The folder of disks on this machine, which has the same name inside.
pub(super) fn all(machine: &Machine) -> PathBuf {
    machine.state().join("disks")
}

fn place(machine: &Machine, disk: &str) -> PathBuf {
    all(machine).join(disk)
}

#[expect(clippy::disallowed_methods, reason = "the mount namespace is the keeper's; who asked for it passes the hook")]
fn show(machine: &Machine, disk: &str) -> io::Result<()> {
    let data = DiskForm::Directory.file();
    let point = machine.disks().join(disk).join(data);
    let is_shown = crate::disks::mounts::of_this_process()?.iter().any(|mount| mount.point == point.as_path());
    if is_shown {
        return Ok(());
    }
    fs::create_dir_all(&point)?;
    Ok(mount_bind(place(machine, disk).join(data), &point)?)
}

/// Also if it is in use, as a folder that is a disk can always be taken away.
#[expect(clippy::disallowed_methods, reason = "the mount namespace is the keeper's; who asked for it passes the hook")]
fn hide(machine: &Machine, disk: &str) -> io::Result<()> {
    let folder = machine.disks().join(disk);
    let point = folder.join(DiskForm::Directory.file());
    match unmount(&point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    for folder in [&point, &folder] {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
