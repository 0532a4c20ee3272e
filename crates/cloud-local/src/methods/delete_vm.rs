//! `delete_vm`: ends all processes of a VM, lets go of its disks, removes its folder, in this order.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteVm;

use crate::cloud::LocalCloud;
use crate::machine::Machine;

pub(crate) async fn run(cloud: &LocalCloud, vm: DeleteVm) -> Result<(), CpiError> {
    let cid = vm.vm_cid;
    let Some(folder) = cloud.vms.path(cid.as_str()) else { return Ok(()) };
    let Some((_lock, record)) = cloud.vms.lock_to_remove(cid.as_str())? else { return Ok(()) };
    let machine = Machine::new(folder);
    let _stopped = machine.stop().await?;
    cloud.release(&record, &machine)?;
    Ok(cloud.vms.remove(cid.as_str())?)
}
