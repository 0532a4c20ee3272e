//! `reboot_vm`: counts one more boot, at which the VM's agent restarts; a VM that is off is on again.

use windlass_contract::cpi::methods::RebootVm;
use windlass_contract::cpi::{CpiError, Method};

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: RebootVm) -> Result<(), CpiError> {
    let cid = vm.vm_cid;
    let Some((_lock, mut record)) = cloud.vms.lock_existing(cid.as_str())? else {
        return Err(CpiError::vm_not_found(&cid));
    };
    record.boots += 1;
    record.started_at = cloud.started_by(RebootVm::NAME);
    record.is_off = false;
    cloud.faults.half_way();
    cloud.vms.write(cid.as_str(), &record)?;
    cloud.wake_agent(&record)
}
