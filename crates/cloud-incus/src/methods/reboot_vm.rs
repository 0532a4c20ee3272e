//! `reboot_vm`: restarts a VM, or starts it when it was off.

use windlass_contract::cpi::methods::RebootVm;

use crate::client::Power;
use crate::disks::reachable_vm;
use crate::fault::Fault;
use crate::session::Session;

/// How long a VM may take to shut down, in seconds, before it is stopped.
const PATIENCE: u64 = 30;

pub(crate) async fn run(session: &Session, vm: &RebootVm) -> Result<(), Fault> {
    let (name, instance) = reachable_vm(session, &vm.vm_cid).await?;
    session.client.wait_for_others(name.as_str()).await?;
    if instance.status == "Running" {
        match session.client.power(name.as_str(), Power::Restart { seconds: PATIENCE }).await {
            Ok(()) => return Ok(()),
            Err(error) if error.refusal().is_none() || error.is_member_down() => return Err(error.into()),
            // It did not shut down in time, or not at all.
            Err(_) => match session.client.power(name.as_str(), Power::Stop).await {
                Err(error) if !error.says("already stopped") && !error.says("not running") => return Err(error.into()),
                _ => {}
            },
        }
    }
    match session.client.power(name.as_str(), Power::Start).await {
        Err(error) if error.says("already running") => Ok(()),
        other => Ok(other?),
    }
}
