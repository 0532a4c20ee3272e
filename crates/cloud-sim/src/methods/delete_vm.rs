//! `delete_vm`: ends the VM's agent, lets go of its disks, removes it, frees its addresses, in this order.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteVm;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: DeleteVm) -> Result<(), CpiError> {
    let cid = vm.vm_cid;
    let Some((_lock, mut record)) = cloud.vms.lock_to_remove(cid.as_str())? else { return Ok(()) };
    if record.agent_address().is_some() {
        cloud.switch_off(&mut record)?;
    }
    for disk in record.disks.keys() {
        let Some((_lock, mut disk)) = cloud.disks.lock_existing(disk.as_str())? else { continue };
        if disk.attached_to.as_ref() == Some(&cid) {
            disk.attached_to = None;
            cloud.disks.write(disk.cid.as_str(), &disk)?;
        }
    }
    cloud.faults.half_way();
    let _making = cloud.making_vms()?;
    cloud.vms.remove(cid.as_str())?;
    cloud.addresses.forget(&record.addresses, &cid)
}
