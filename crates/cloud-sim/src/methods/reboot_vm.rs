//! `reboot_vm`: counts one more boot.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::RebootVm;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: RebootVm) -> Result<(), CpiError> {
    let cid = vm.vm_cid;
    let Some((_lock, mut record)) = cloud.vms.lock_existing(cid.as_str())? else {
        return Err(CpiError::vm_not_found(&cid));
    };
    record.boots += 1;
    cloud.faults.half_way();
    Ok(cloud.vms.write(cid.as_str(), &record)?)
}
