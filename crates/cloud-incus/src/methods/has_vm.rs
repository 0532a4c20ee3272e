//! `has_vm`: whether any list has the VM, in whatever state, also on a member that is down.

use windlass_contract::cpi::methods::HasVm;

use crate::disks::find_vm;
use crate::fault::Fault;
use crate::session::Session;

pub(crate) async fn run(session: &Session, vm: &HasVm) -> Result<bool, Fault> {
    Ok(find_vm(session, &vm.vm_cid).await?.is_some())
}
