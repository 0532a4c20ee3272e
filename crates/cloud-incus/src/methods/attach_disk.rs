//! `attach_disk`: claims a disk, brings it to the VM's member, and mounts it in the VM.

use serde_json::json;
use windlass_contract::DiskHint;
use windlass_contract::cpi::methods::AttachDisk;

use crate::claim;
use crate::disks::{Disk, reachable_vm};
use crate::fault::Fault;
use crate::moving;
use crate::names::{DiskName, VmName};
use crate::session::Session;

/// Where disks appear in VMs.
const PLACE: &str = "/var/vcap/disks";

pub(crate) async fn run(session: &Session, asked: &AttachDisk) -> Result<DiskHint, Fault> {
    let (vm, instance) = reachable_vm(session, &asked.vm_cid).await?;
    let disk = Disk::get(session, &asked.disk_cid).await?;
    let path = format!("{PLACE}/{}", disk.name.volume);
    let hint = || DiskHint::path(path.clone());
    let has_it = instance.devices.values().filter_map(DiskName::of_device).any(|name| name == disk.name);
    if has_it && disk.claimed_for() == Some(vm.as_str()) {
        return Ok(hint());
    }
    if disk.volume.content_type == "block" {
        return Err(Fault::cloud(format!(
            "the disk '{}' is a block device, and the VM '{}' is a container; make the disk with 'type: filesystem'",
            disk.name,
            vm.as_str()
        )));
    }
    let mut disk = moving::settle(session, disk).await?;
    claim::claim(session, &disk.name, disk.volume.member(), &vm).await?;
    if let (Some(place), Some(member)) = (disk.volume.member(), instance.member())
        && place != member
    {
        let name = disk.name.clone();
        let place = place.to_owned();
        disk = match moving::to_member(session, disk, member).await {
            Ok(disk) => disk,
            Err(fault) => {
                if !fault.is_unknown_effect() {
                    claim::release(session, &name, Some(&place), &vm).await?;
                }
                return Err(fault);
            }
        };
    }
    if !has_it {
        let device = json!({"type": "disk", "pool": disk.name.pool, "source": disk.name.volume, "path": path});
        let change = json!({"devices": {disk.name.volume.clone(): device}});
        let doing = format!("attach the disk '{}' to the VM '{}'", disk.name, vm.as_str());
        if let Err(error) = session.client.patch_instance(vm.as_str(), &change, &doing).await {
            if error.is_unknown_effect() {
                return Err(error.into());
            }
            claim::release(session, &disk.name, disk.volume.member(), &vm).await?;
            return Err(Fault::from(error)
                .about(&format!("the disk is on '{}', the VM on '{}'", disk.volume.location, instance.location)));
        }
    }
    must_be_alone(session, &disk, &vm).await?;
    Ok(hint())
}

/// Looks whether the disk has one owner. The claim makes sure of it; a CPI without claims does not.
async fn must_be_alone(session: &Session, disk: &Disk, vm: &VmName) -> Result<(), Fault> {
    let read = session.client.volume(&disk.name.pool, &disk.name.volume, disk.volume.member()).await?;
    match read.value.users().iter().find(|user| **user != vm.as_str()) {
        None => Ok(()),
        Some(other) => {
            let other = (*other).to_owned();
            super::detach_disk::remove_device(session, vm, &disk.name).await?;
            claim::release(session, &disk.name, disk.volume.member(), vm).await?;
            Err(Fault::cloud(format!(
                "the disk '{}' was attached to '{other}' at the same time, and is there",
                disk.name
            )))
        }
    }
}
