//! Which addresses a new VM gets.
//!
//! The network of the cloud that a VM's network is in is named by `cloud_properties.network`, as `create_network` answers
//! it. All that name none share one network, whatever the manifest calls theirs.

use ipnet::IpNet;
use serde_json::Value;
use uuid::Uuid;
use windlass_contract::Networks;
use windlass_contract::cpi::CpiError;
use windlass_contract::network::{Network, NetworkKind};

use crate::addresses::{self};
use crate::cloud::SimCloud;
use crate::ranges;
use crate::records::{Address, NetworkRecord};

/// The key in `cloud_properties`.
pub(crate) const NETWORK: &str = "network";

/// The network of those that name none.
const SHARED: &str = "shared";

/// The network of addresses that are routed to a VM from outside.
const VIP: &str = "vip";

/// Gives each network an address that no other VM has.
pub(crate) fn plan(cloud: &SimCloud, mut networks: Networks, seed: Uuid) -> Result<(Networks, Vec<Address>), CpiError> {
    if networks.is_empty() {
        return Err(CpiError::cloud("a VM needs at least one network"));
    }
    let mut addresses: Vec<Address> = Vec::new();
    for (name, network) in &mut networks {
        let address = match network.kind {
            NetworkKind::Dynamic => dynamic(cloud, name, network, seed, &addresses)?,
            NetworkKind::Manual | NetworkKind::Vip => given(cloud, name, network)?,
        };
        if addresses.contains(&address) {
            return Err(CpiError::cloud(format!("the address {} of network '{name}' is given twice", address.ip)));
        }
        network.ip = Some(address.ip.to_string());
        addresses.push(address);
    }
    Ok((networks, addresses))
}

/// The address that the caller chose.
fn given(cloud: &SimCloud, name: &str, network: &Network) -> Result<Address, CpiError> {
    let Some(text) = &network.ip else { return Err(CpiError::cloud(format!("the network '{name}' has no ip"))) };
    let Some(ip) = addresses::parse(text) else {
        return Err(CpiError::cloud(format!("the network '{name}' has the ip '{text}', which is no address")));
    };
    let address = if network.kind == NetworkKind::Vip {
        Address { network: VIP.to_owned(), ip }
    } else {
        let (of_cloud, managed) = of_cloud(cloud, name, network)?;
        if let Some(NetworkRecord { cid, range, gateway, .. }) = managed
            && (!range.contains(&ip) || ip == gateway)
        {
            return Err(CpiError::cloud(format!(
                "the network '{name}' has the ip {ip}, and VMs in '{cid}' have addresses in {range} other than {gateway}"
            )));
        }
        Address { network: of_cloud, ip }
    };
    match cloud.addresses.holder(&address, &cloud.vms)? {
        None => Ok(address),
        Some(vm) => Err(CpiError::cloud(format!(
            "the address {ip} of network '{name}' is in use by the VM '{vm}'; delete that VM or choose another address"
        ))),
    }
}

/// The address that it had before, or a free one.
fn dynamic(
    cloud: &SimCloud,
    name: &str,
    network: &Network,
    seed: Uuid,
    taken: &[Address],
) -> Result<Address, CpiError> {
    let (of_cloud, managed) = of_cloud(cloud, name, network)?;
    let range = managed.as_ref().map_or(IpNet::V4(ranges::DYNAMIC), |managed| managed.range);
    let gateway = managed.map(|managed| managed.gateway);
    let carried = network.ip.as_deref().and_then(addresses::parse).filter(|ip| range.contains(ip));
    for ip in carried.into_iter().chain(ranges::candidates(range, seed)).filter(|ip| Some(*ip) != gateway) {
        let address = Address { network: of_cloud.clone(), ip };
        if !taken.contains(&address) && cloud.addresses.holder(&address, &cloud.vms)?.is_none() {
            return Ok(address);
        }
    }
    Err(CpiError::cloud(format!("found no free address in {range} for the dynamic network '{name}'")))
}

/// The network of the cloud, and its record if it was made by `create_network`.
fn of_cloud(cloud: &SimCloud, name: &str, network: &Network) -> Result<(String, Option<NetworkRecord>), CpiError> {
    match network.cloud_properties.get(NETWORK) {
        None | Some(Value::Null) => Ok((SHARED.to_owned(), None)),
        Some(Value::String(cid)) => {
            let record = cloud.networks.read(cid)?;
            if record.is_none() && cloud.networks.path(cid).is_some() {
                return Err(CpiError::cloud(format!("there is no network '{cid}', which the network '{name}' names")));
            }
            Ok((cid.clone(), record))
        }
        Some(_) => Err(CpiError::cloud(format!("'cloud_properties.network' of the network '{name}' must be a string"))),
    }
}
