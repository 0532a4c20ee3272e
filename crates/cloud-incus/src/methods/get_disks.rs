//! `get_disks`: the persistent disks among a VM's devices.

use windlass_contract::DiskCid;
use windlass_contract::cpi::methods::GetDisks;

use crate::disks::reachable_vm;
use crate::fault::Fault;
use crate::names::DiskName;
use crate::session::Session;

pub(crate) async fn run(session: &Session, vm: &GetDisks) -> Result<Vec<DiskCid>, Fault> {
    let (_, instance) = reachable_vm(session, &vm.vm_cid).await?;
    let disks = instance.devices.values().filter_map(DiskName::of_device);
    disks.map(|disk| disk.cid().map_err(Fault::from)).collect()
}
