//! `has_vm`: whether a VM exists.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::HasVm;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: HasVm) -> Result<bool, CpiError> {
    Ok(cloud.vms.read(vm.vm_cid.as_str())?.is_some())
}
