//! `attach_disk`: one VM at a time; the hint is the disk's folder.

use windlass_contract::DiskHint;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::AttachDisk;

use crate::cloud::LocalCloud;
use crate::state::Attachment;

pub(crate) fn run(cloud: &LocalCloud, asked: AttachDisk) -> Result<DiskHint, CpiError> {
    let AttachDisk { vm_cid, disk_cid } = asked;
    let Some((_vm_lock, mut vm)) = cloud.vms.lock_existing(vm_cid.as_str())? else {
        return Err(CpiError::vm_not_found(&vm_cid));
    };
    let (Some(folder), Some((_disk_lock, mut disk))) =
        (cloud.disks.path(disk_cid.as_str()), cloud.disks.lock_existing(disk_cid.as_str())?)
    else {
        return Err(CpiError::disk_not_found(&disk_cid));
    };
    match cloud.holder(&disk)? {
        Some(holder) if holder != vm_cid => {
            return Err(CpiError::cloud(format!(
                "the disk '{disk_cid}' is attached to the VM '{holder}'; detach it there first"
            )));
        }
        _ => {}
    }
    let hint = DiskHint::path(folder.join("data").display().to_string());
    let attachment = Some(Attachment { vm: vm_cid.clone(), hint: hint.clone() });
    // The VM's list first, so that whatever a disk says it is attached to knows of it.
    if vm.disks.insert(disk_cid.clone(), hint.clone()).as_ref() != Some(&hint) {
        cloud.vms.write(vm_cid.as_str(), &vm)?;
    }
    if disk.attached_to != attachment {
        disk.attached_to = attachment;
        cloud.disks.write(disk_cid.as_str(), &disk)?;
    }
    Ok(hint)
}
