//! `reboot_vm`: stops a VM if it runs, and starts it.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::RebootVm;

use crate::cloud::LocalCloud;
use crate::disks;
use crate::machine::Machine;

pub(crate) async fn run(cloud: &LocalCloud, vm: RebootVm) -> Result<(), CpiError> {
    let cid = vm.vm_cid;
    let windlass = cloud.windlass()?;
    let (Some(folder), Some((_lock, record))) = (cloud.vms.path(cid.as_str()), cloud.vms.lock_existing(cid.as_str())?)
    else {
        return Err(CpiError::vm_not_found(&cid));
    };
    let machine = Machine::new(folder);
    drop(machine.stop().await?);
    disks::show_all(cloud, &record, &machine)?;
    // `VMCreationFailed` would be a lie here.
    machine.start(&windlass).await.map_err(|error| CpiError::cloud(CpiError::from(error).message))
}
