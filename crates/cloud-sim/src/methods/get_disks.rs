//! `get_disks`: the disks whose own record says that they are attached to this VM.

use windlass_contract::DiskCid;
use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::GetDisks;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, vm: GetDisks) -> Result<Vec<DiskCid>, CpiError> {
    let cid = vm.vm_cid;
    let record = cloud.vms.read(cid.as_str())?.ok_or_else(|| CpiError::vm_not_found(&cid))?;
    let mut disks = Vec::new();
    for disk in record.disks.into_keys() {
        if cloud.disks.read(disk.as_str())?.is_some_and(|disk| disk.attached_to.as_ref() == Some(&cid)) {
            disks.push(disk);
        }
    }
    Ok(disks)
}
