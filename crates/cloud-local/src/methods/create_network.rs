//! `create_network`: sets a range of addresses aside. Its bridge comes with its first VM, as for any network.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::json;
use windlass_contract::cpi::methods::CreateNetwork;
use windlass_contract::cpi::{CpiError, CreatedNetwork, ErrorType};
use windlass_contract::{NetworkCid, Object};
use windlass_cpi::Call;

use crate::cloud::LocalCloud;
use crate::isolation::{Isolation, IsolationChoice};
use crate::network::bridged::{check_size, first};
use crate::network::netlink::Netlink;
use crate::network::{NetworkError, bridge};
use crate::state::NetworkRecord;

/// Where ranges on the loopback interface are set aside: away from those that people write down, and from those of dynamic
/// networks.
const LOOPBACK: IpNet = IpNet::V4(ipnet::Ipv4Net::new_assert(std::net::Ipv4Addr::new(127, 192, 0, 0), 10));

/// How many ranges are tried.
const CANDIDATES: usize = 65536;

pub(crate) fn run(cloud: &LocalCloud, call: &Call, asked: CreateNetwork) -> Result<CreatedNetwork, CpiError> {
    let definition = asked.definition;
    let cid = NetworkCid::new(cloud.networks.cid(call.id)).map_err(|error| CpiError::cpi(error.to_string()))?;
    if !matches!(definition.kind.as_str(), "" | "manual") {
        return Err(CpiError::cloud(format!("only manual networks can be made, not '{}' ones", definition.kind)));
    }
    let record = match cloud.networks.read(cid.as_str())? {
        Some(record) => record,
        None => {
            let _networks = cloud.lock_networks()?;
            let range = match &definition.range {
                Some(range) => given(cloud, range)?,
                None => chosen(cloud, definition.netmask_bits)?,
            };
            let gateway = match &definition.gateway {
                None => first(range),
                Some(text) => text
                    .parse::<IpAddr>()
                    .ok()
                    .filter(|gateway| range.contains(gateway))
                    .ok_or_else(|| CpiError::cloud(format!("the gateway '{text}' is not in {range}")))?,
            };
            let cloud_properties = definition.cloud_properties;
            let record = NetworkRecord { cid: cid.clone(), range, gateway, cloud_properties };
            cloud.networks.make(cid.as_str(), &record, |_| Ok(()))?;
            record
        }
    };
    let mut cloud_properties = record.cloud_properties;
    cloud_properties.insert("network".to_owned(), json!(cid));
    let address_properties = Object::from_iter([
        ("range".to_owned(), json!(record.range)),
        ("gateway".to_owned(), json!(record.gateway)),
        ("reserved".to_owned(), json!([])),
    ]);
    Ok(CreatedNetwork { cid, address_properties, cloud_properties })
}

fn given(cloud: &LocalCloud, range: &str) -> Result<IpNet, CpiError> {
    let range: IpNet =
        range.parse().map_err(|_| CpiError::cloud(format!("the range '{range}' is no subnet such as 10.0.0.0/24")))?;
    let range = range.trunc();
    check_size(range).map_err(|why| CpiError::cloud(format!("the network {why}")))?;
    let is_loopback = range.network().is_loopback();
    // Only the range decides, where it can.
    let fits = match cloud.config.isolation {
        IsolationChoice::Auto => is_loopback || cloud.isolation()? == Isolation::Container,
        IsolationChoice::Process => is_loopback,
        IsolationChoice::Container => !is_loopback,
    };
    if !fits {
        return Err(CpiError::new(
            ErrorType::NotSupported,
            format!(
                "the range {range} does not go with the isolation of this cloud; ranges in 127.0.0.0/8 are for processes, all others for \
             containers"
            ),
        ));
    }
    match taken(cloud, range, is_loopback)? {
        Some(error) => Err(error),
        None => Ok(range),
    }
}

fn chosen(cloud: &LocalCloud, bits: Option<u8>) -> Result<IpNet, CpiError> {
    let is_loopback = cloud.isolation()? == Isolation::Process;
    let whole = if is_loopback { LOOPBACK } else { cloud.config.managed_range.trunc() };
    let bits = bits.ok_or_else(|| CpiError::cloud("a network needs a range, or netmask_bits to choose one by"))?;
    let ranges = whole.subnets(bits).map_err(|_| {
        CpiError::cloud(format!("netmask_bits {bits} do not fit into {whole}, where networks get their ranges"))
    })?;
    for range in ranges.take(CANDIDATES) {
        check_size(range).map_err(|why| CpiError::cloud(format!("the network {why}")))?;
        if taken(cloud, range, is_loopback)?.is_none() {
            return Ok(range);
        }
    }
    Err(CpiError::cloud(format!("found no free range of {bits} bits in {whole}; set 'managed_range' to a larger one")))
}

/// Why `range` cannot be had.
fn taken(cloud: &LocalCloud, range: IpNet, is_loopback: bool) -> Result<Option<CpiError>, CpiError> {
    let overlaps = |other: &IpNet| other.contains(&range) || range.contains(other);
    if let Some(other) = cloud.networks.all()?.iter().find(|other| overlaps(&other.range)) {
        let text =
            format!("the range {range} overlaps {} of the network '{}'; choose another one", other.range, other.cid);
        return Ok(Some(CpiError::cloud(text)));
    }
    if is_loopback {
        return Ok(None);
    }
    // A bridge of ours for the same range serves VMs that use it without having it made first.
    let ours = [bridge::name(&cloud.config.state_dir, range)];
    let mut netlink =
        Netlink::open().map_err(|error| CpiError::cloud(format!("cannot ask about networks: {error}")))?;
    match bridge::check_free(&mut netlink, range, &ours) {
        Ok(()) => Ok(None),
        Err(error @ NetworkError::Overlap { .. }) => Ok(Some(error.into())),
        Err(error) => Err(error.into()),
    }
}
