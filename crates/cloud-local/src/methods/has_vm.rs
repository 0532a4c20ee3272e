//! `has_vm`: whether a VM exists, running or not.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::HasVm;

use crate::cloud::LocalCloud;

pub(crate) fn run(cloud: &LocalCloud, vm: HasVm) -> Result<bool, CpiError> {
    Ok(cloud.vms.read(vm.vm_cid.as_str())?.is_some())
}
