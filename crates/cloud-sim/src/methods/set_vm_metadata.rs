//! `set_vm_metadata`: replaces the given keys, keeps the others.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::SetVmMetadata;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: SetVmMetadata) -> Result<(), CpiError> {
    let Some((_lock, mut record)) = cloud.vms.lock_existing(vm.vm_cid.as_str())? else {
        return Err(CpiError::vm_not_found(&vm.vm_cid));
    };
    record.metadata.extend(vm.metadata);
    cloud.faults.half_way();
    Ok(cloud.vms.write(vm.vm_cid.as_str(), &record)?)
}
