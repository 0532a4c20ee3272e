//! `delete_vm`: ends all processes of a VM, lets go of its disks, removes its folder, in this order.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteVm;

use crate::cloud::LocalCloud;
use crate::machine::Machine;

pub(crate) async fn run(cloud: &LocalCloud, vm: DeleteVm) -> Result<(), CpiError> {
    let cid = vm.vm_cid;
    let Some(folder) = cloud.vms.path(cid.as_str()) else { return Ok(()) };
    let Some((_lock, record)) = cloud.vms.lock_to_remove(cid.as_str())? else { return Ok(()) };
    let _stopped = Machine::new(folder).stop().await?;
    for disk in record.disks.keys() {
        let Some((_lock, mut disk)) = cloud.disks.lock_existing(disk.as_str())? else { continue };
        if disk.attached_to.as_ref().is_some_and(|attachment| attachment.vm == cid) {
            disk.attached_to = None;
            cloud.disks.write(disk.cid.as_str(), &disk)?;
        }
    }
    Ok(cloud.vms.remove(cid.as_str())?)
}
