//! `create_network`: a range of addresses, chosen where the caller gave none.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::json;
use windlass_contract::cpi::methods::{CreateNetwork, NetworkDefinition};
use windlass_contract::cpi::{CpiError, CreatedNetwork};
use windlass_contract::{NetworkCid, Object};
use windlass_cpi::Call;

use crate::addresses;
use crate::cloud::SimCloud;
use crate::network_plan::NETWORK;
use crate::ranges;
use crate::records::NetworkRecord;

/// The size of a network that nobody gave one.
const USUAL_BITS: u8 = 24;

/// Smaller ones have no room for a gateway and a VM.
const MOST_BITS: u8 = 30;

pub(crate) fn run(cloud: &SimCloud, call: &Call, network: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
    let cid = NetworkCid::new(cloud.networks.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if let Some(record) = cloud.networks.read(cid.as_str())? {
        return Ok(answer(record));
    }
    let definition = network.definition;
    if !matches!(definition.kind.as_str(), "" | "manual") {
        return Err(CpiError::cloud(format!("a network of type '{}' cannot be made, only 'manual'", definition.kind)));
    }
    let _making = cloud.making_networks()?;
    let range = range(cloud, &definition)?;
    let gateway = gateway(range, definition.gateway.as_deref())?;
    let record = NetworkRecord { cid, range, gateway, cloud_properties: definition.cloud_properties };
    cloud.networks.make(record.cid.as_str(), &record, |_| {
        cloud.faults.half_way();
        Ok(())
    })?;
    Ok(answer(record))
}

fn range(cloud: &SimCloud, definition: &NetworkDefinition) -> Result<IpNet, CpiError> {
    if let Some(range) = &definition.range {
        return match range.parse::<IpNet>() {
            Ok(range) => Ok(range.trunc()),
            Err(_) => Err(CpiError::cloud(format!("'{range}' is no range of addresses; write it as '10.0.0.0/24'"))),
        };
    }
    let bits = definition.netmask_bits.unwrap_or(USUAL_BITS);
    if bits > MOST_BITS {
        return Err(CpiError::cloud(format!(
            "a network with {bits} netmask_bits is too small; use {MOST_BITS} or less"
        )));
    }
    let taken: Vec<IpNet> = cloud.networks.all()?.into_iter().map(|network| network.range).collect();
    ranges::free_block(bits, &taken).ok_or_else(|| {
        CpiError::cloud(format!("there is no free range with {bits} netmask_bits in {}; give one", ranges::POOL))
    })
}

fn gateway(range: IpNet, given: Option<&str>) -> Result<IpAddr, CpiError> {
    match given.filter(|given| !given.is_empty()) {
        Some(given) => addresses::parse(given)
            .filter(|gateway| range.contains(gateway))
            .ok_or_else(|| CpiError::cloud(format!("the gateway '{given}' is not in the range {range}"))),
        None => ranges::first_host(range)
            .ok_or_else(|| CpiError::cloud(format!("the range {range} is too small for a gateway and a VM"))),
    }
}

fn answer(record: NetworkRecord) -> CreatedNetwork {
    let mut cloud_properties = record.cloud_properties;
    cloud_properties.insert(NETWORK.to_owned(), json!(record.cid));
    let address_properties = Object::from_iter([
        ("range".to_owned(), json!(record.range)),
        ("gateway".to_owned(), json!(record.gateway)),
        ("reserved".to_owned(), json!([])),
    ]);
    CreatedNetwork { cid: record.cid, address_properties, cloud_properties }
}
