//! `detach_disk`: takes a disk out of a VM, and clears the claim while it names this VM.

use std::time::Duration;

use windlass_contract::cpi::methods::DetachDisk;

use crate::claim;
use crate::disks::{Disk, reachable_vm};
use crate::fault::Fault;
use crate::names::{DiskName, VmName};
use crate::session::Session;

/// How often the device is removed from a VM that others change.
const TRIES: u32 = 12;

pub(crate) async fn run(session: &Session, asked: &DetachDisk) -> Result<(), Fault> {
    let (vm, instance) = reachable_vm(session, &asked.vm_cid).await?;
    let Some(name) = DiskName::of(&asked.disk_cid) else { return Ok(()) };
    if instance.devices.values().filter_map(DiskName::of_device).any(|found| found == name) {
        remove_device(session, &vm, &name).await?;
    }
    match Disk::named(session, name.clone()).await? {
        Some(disk) => claim::release(session, &name, disk.volume.member(), &vm).await,
        None => Ok(()),
    }
}

/// Removes a disk's device, if nobody else changed the VM since it was read. There is no change that only removes.
pub(crate) async fn remove_device(session: &Session, vm: &VmName, disk: &DiskName) -> Result<(), Fault> {
    let doing = format!("detach the disk '{disk}' from the VM '{}'", vm.as_str());
    let mut tries = 0;
    loop {
        let mut read = session.client.instance(vm.as_str()).await?;
        let Some(devices) = read.value.get_mut("devices").and_then(|devices| devices.as_object_mut()) else {
            return Ok(());
        };
        let is_it = |device: &serde_json::Value| {
            serde_json::from_value(device.clone()).ok().and_then(|device| DiskName::of_device(&device)).as_ref()
                == Some(disk)
        };
        let before = devices.len();
        devices.retain(|_, device| !is_it(device));
        if devices.len() == before {
            return Ok(());
        }
        match session.client.put_instance(vm.as_str(), &read, &doing).await {
            Err(error) if (error.is_stale() || error.is_busy()) && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(20 * u64::from(tries))).await;
            }
            other => return Ok(other?),
        }
    }
}
