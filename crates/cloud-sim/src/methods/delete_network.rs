//! `delete_network`: removes a network that no VM is in. One that is gone is a success.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteNetwork;

use crate::cloud::SimCloud;

pub(crate) fn run(cloud: &SimCloud, network: DeleteNetwork) -> Result<(), CpiError> {
    let cid = network.network_cid;
    let Some((_lock, _)) = cloud.networks.lock_to_remove(cid.as_str())? else { return Ok(()) };
    let _making = cloud.making_vms()?;
    let is_in = |network: &str| network == cid.as_str();
    let vms = cloud.vms.all()?;
    if let Some(vm) = vms.iter().find(|vm| vm.addresses.iter().any(|address| is_in(&address.network))) {
        return Err(CpiError::cloud(format!("the VM '{}' is in the network '{cid}'; delete it first", vm.cid)));
    }
    cloud.faults.half_way();
    Ok(cloud.networks.remove(cid.as_str())?)
}
