//! `delete_network`: gives a range back, unless a VM has an address of it. One that is gone is a success.

use windlass_contract::cpi::CpiError;
use windlass_contract::cpi::methods::DeleteNetwork;

use crate::cloud::LocalCloud;

pub(crate) fn run(cloud: &LocalCloud, network: DeleteNetwork) -> Result<(), CpiError> {
    let cid = network.network_cid;
    let Some((_lock, record)) = cloud.networks.lock_to_remove(cid.as_str())? else { return Ok(()) };
    let _networks = cloud.lock_networks()?;
    let users: Vec<String> = cloud
        .vms
        .all()?
        .into_iter()
        .filter(|vm| vm.addresses.iter().any(|address| record.range.contains(address)))
        .map(|vm| format!("'{}'", vm.cid))
        .collect();
    if !users.is_empty() {
        return Err(CpiError::cloud(format!(
            "the network '{cid}' is in use by the VMs {}; delete them first",
            users.join(", ")
        )));
    }
    Ok(cloud.networks.remove(cid.as_str())?)
}
