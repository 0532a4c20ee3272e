//! `delete_vm`: stops a VM and removes it; its persistent disks survive, and are free again.

use windlass_contract::cpi::methods::DeleteVm;
use windlass_cpi::Call;

use crate::claim;
use crate::client::{Instance, Power};
use crate::disks::{find_vm, must_be_reachable};
use crate::fault::Fault;
use crate::names::{DiskName, VmName};
use crate::session::Session;
use crate::tags;

/// How often a stop waits for what else is done to the VM.
const TRIES: usize = 4;

pub(crate) async fn run(session: &Session, call: &Call, vm: &DeleteVm) -> Result<(), Fault> {
    let Some((name, instance)) = find_vm(session, &vm.vm_cid).await? else { return Ok(()) };
    session.must_be_ours(&format!("the VM '{}'", vm.vm_cid), instance.get(tags::DIRECTOR), call)?;
    must_be_reachable(&instance)?;
    session.client.wait_for_others(name.as_str()).await?;
    delete(session, &name, &instance).await?;
    match session.client.find_instance(name.as_str()).await? {
        None => Ok(()),
        Some(_) => Err(Fault::cloud(format!("the VM '{}' is still there after it was deleted; try again", vm.vm_cid))),
    }
}

/// Stops and removes an instance on a member that answers, and releases its disks.
pub(crate) async fn delete(session: &Session, name: &VmName, instance: &Instance) -> Result<(), Fault> {
    must_be_reachable(instance)?;
    let mut tries = 1;
    loop {
        match session.client.power(name.as_str(), Power::Stop).await {
            Ok(()) => break,
            Err(error) if error.says("already stopped") || error.says("not running") || error.is_missing() => break,
            Err(error) if error.is_busy() && tries < TRIES => {
                tries += 1;
                session.client.wait_for_others(name.as_str()).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    match session.client.delete_instance(name.as_str()).await {
        Ok(()) => {}
        Err(error) if error.is_missing() => {}
        Err(error) => return Err(error.into()),
    }
    for disk in instance.devices.values().filter_map(DiskName::of_device) {
        // A claim for a VM that is gone holds nobody up, so one that cannot be cleared now is no failure.
        let _ = claim::release(session, &disk, instance.member(), name).await;
    }
    Ok(())
}
