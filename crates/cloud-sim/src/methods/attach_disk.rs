//! `attach_disk`: one VM at a time; the hint is the path at which the VM sees the disk's content as long as it is attached.

use std::path::Path;
use std::{fs, io};

use windlass_contract::DiskHint;
use windlass_contract::cpi::methods::AttachDisk;
use windlass_contract::cpi::{CpiError, Method};
use windlass_durable::file;

use crate::cloud::SimCloud;
use crate::config::AttachMode;
use crate::records::{BASE, CONTENT, VmRecord};

pub(crate) fn run(cloud: &SimCloud, asked: AttachDisk) -> Result<DiskHint, CpiError> {
    let AttachDisk { vm_cid, disk_cid } = asked;
    let Some((_vm_lock, mut vm)) = cloud.vms.lock_existing(vm_cid.as_str())? else {
        return Err(CpiError::vm_not_found(&vm_cid));
    };
    let (Some(folder), Some((_disk_lock, mut disk))) =
        (cloud.disks.path(disk_cid.as_str()), cloud.disks.lock_existing(disk_cid.as_str())?)
    else {
        return Err(CpiError::disk_not_found(&disk_cid));
    };
    if cloud.holder(&disk)?.is_some_and(|holder| holder != vm_cid) {
        cloud.must_be_detached(&disk)?;
    }
    let is_new = disk.attached_to.as_ref() != Some(&vm_cid);
    let recreates = is_new && cloud.config.attach_disk == AttachMode::Recreate;
    if recreates {
        cloud.switch_off(&mut vm)?;
    }
    let seen_at = cloud.seen_at(&vm_cid, &disk_cid)?;
    let hint = DiskHint::path(seen_at.display().to_string());
    // The VM's list first, so that whatever a disk says it is attached to knows of it.
    if vm.disks.insert(disk_cid.clone(), hint.clone()).as_ref() != Some(&hint) {
        cloud.vms.write(vm_cid.as_str(), &vm)?;
    }
    if !vm.agent.misses_disks {
        show(&folder.join(CONTENT), &seen_at)
            .map_err(|error| CpiError::cloud(format!("cannot make {}: {error}", seen_at.display())))?;
    }
    cloud.faults.half_way();
    if recreates {
        recreate(cloud, &mut vm)?;
    }
    // After the VM is on again: a call that was killed before this is repeated as a whole.
    if is_new {
        disk.attached_to = Some(vm_cid);
        cloud.disks.write(disk_cid.as_str(), &disk)?;
    }
    // Its agent is asked next.
    cloud.wake_agent(&vm)?;
    Ok(hint)
}

/// Another machine of the same name, with nothing on it.
fn recreate(cloud: &SimCloud, vm: &mut VmRecord) -> Result<(), CpiError> {
    if let Some(base) = cloud.vms.path(vm.cid.as_str()).map(|folder| folder.join(BASE)) {
        file::remove_tree(&base)
            .map_err(|error| CpiError::cloud(format!("cannot remove {}: {error}", base.display())))?;
    }
    vm.boots += 1;
    vm.started_at = cloud.started_by(AttachDisk::NAME);
    vm.is_off = false;
    Ok(cloud.vms.write(vm.cid.as_str(), vm)?)
}

fn show(content: &Path, seen_at: &Path) -> io::Result<()> {
    if fs::read_link(seen_at).is_ok_and(|shown| shown == content) {
        return Ok(());
    }
    if let Some(folder) = seen_at.parent() {
        file::create_private_dir(folder)?;
    }
    file::symlink(content, seen_at)
}
