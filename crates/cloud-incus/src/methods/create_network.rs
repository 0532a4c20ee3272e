//! `create_network`: a bridge of the server's, or a network of OVN that spans the members.
//!
//! | step | after a kill here |
//! |---|---|
//! | each member of a cluster is told of a bridge | those that know of it say so, and the others are told |
//! | the network is made | found by its name, and answered |
//!
//! A range that is chosen here may be chosen by somebody else at the same time. Both look afterwards, and the one that sees another
//! range takes its own back and chooses again.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_contract::cpi::methods::{CreateNetwork, NetworkDefinition};
use windlass_contract::cpi::{CpiError, CreatedNetwork};
use windlass_cpi::Call;

use crate::client::{ClientError, Network, NewNetwork};
use crate::fault::Fault;
use crate::names::NetworkName;
use crate::network_plan::{must_span_members, ranges};
use crate::session::Session;
use crate::tags;

/// `cloud_properties` of a subnet whose network is made, and of its zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Properties {
    /// `bridge` or `ovn`.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Of `ovn`: the network that leads out.
    uplink: Option<String>,
    /// Whether what leaves the network has an address of the server's.
    #[serde(default)]
    nat: bool,
    /// These go into the VMs' properties.
    #[serde(default)]
    filtering: bool,
    reserve_address: Option<bool>,
    #[serde(default)]
    local: bool,
    target: Option<String>,
    /// Of a zone, for VMs and disks.
    #[allow(dead_code, reason = "zones say it for VMs, and their properties arrive with those of networks")]
    pool: Option<String>,
    /// As above.
    #[allow(dead_code, reason = "zones say it for disks, and their properties arrive with those of networks")]
    disk_pool: Option<String>,
}

/// How often another range is chosen.
const TRIES: usize = 8;

/// How many ranges are looked at.
const CANDIDATES: usize = 65536;

/// The longest netmask that leaves room for a gateway and a VM.
const MOST_BITS: [u8; 2] = [30, 126];

pub(crate) async fn run(session: &Session, call: &Call, asked: &CreateNetwork) -> Result<CreatedNetwork, Fault> {
    let definition = &asked.definition;
    if !matches!(definition.kind.as_str(), "" | "manual") {
        return Err(Fault::cloud(format!("only manual networks can be made, not '{}' ones", definition.kind)));
    }
    let properties: Properties = serde_json::from_value(Value::Object(definition.cloud_properties.clone()))
        .map_err(|error| Fault::cloud(format!("cloud_properties of the network: {error}")))?;
    let kind = kind(&properties)?;
    if !(properties.local || properties.target.is_some()) {
        must_span_members(session, kind, "the network that is to be made")?;
    }
    let given = definition.range.as_deref().map(parse).transpose()?;
    let name = NetworkName::new(call.id);
    for tried in 0..TRIES {
        if let Some(found) = session.client.find_network(name.as_str()).await?
            && let Some(created) = finished(session, call, &name, &found, &properties).await?
        {
            return Ok(created);
        }
        let range = match given {
            Some(range) => free(session, range).await?,
            None => chosen(session, definition.netmask_bits, tried, call).await?,
        };
        let gateway = gateway(range, definition)?;
        // Somebody may have chosen the same one after we looked.
        let is_alone = match make(session, &new(session, call, &name, kind, &properties, range, gateway)).await {
            Ok(()) => others(session, range, name.as_str()).await?.is_none(),
            Err(fault) if given.is_none() && is_taken(&fault) => false,
            Err(fault) if fault.is_unknown_effect() => return Err(fault),
            Err(fault) => {
                // Members of a cluster may have been told of it.
                remove(session, &name).await?;
                return Err(fault);
            }
        };
        if is_alone {
            return answer(&name, &properties, kind, range, gateway);
        }
        remove(session, &name).await?;
    }
    Err(Fault::cloud("other networks got each range that was chosen for this one; give a range"))
}

fn kind(properties: &Properties) -> Result<&'static str, Fault> {
    match (properties.kind.as_deref(), &properties.uplink) {
        (None | Some("bridge"), None) => Ok("bridge"),
        (Some("ovn"), _) => Ok("ovn"),
        (None | Some("bridge"), Some(_)) => Err(Fault::cloud(
            "cloud_properties of the network: 'uplink' is for networks of OVN; say 'type: ovn', or leave it out",
        )),
        (Some(other), _) => Err(Fault::cloud(format!(
            "cloud_properties of the network: there is no type '{other}'; use 'bridge' or 'ovn'"
        ))),
    }
}

fn parse(range: &str) -> Result<IpNet, Fault> {
    let range: IpNet =
        range.parse().map_err(|_| Fault::cloud(format!("the range '{range}' is no subnet such as 10.0.0.0/24")))?;
    must_have_room(range.trunc())
}

fn must_have_room(range: IpNet) -> Result<IpNet, Fault> {
    let most = MOST_BITS[usize::from(matches!(range, IpNet::V6(_)))];
    match range.prefix_len() > most {
        true => Err(Fault::cloud(format!("the range {range} has no room for a gateway and a VM; use /{most} or less"))),
        false => Ok(range),
    }
}

fn gateway(range: IpNet, definition: &NetworkDefinition) -> Result<IpAddr, Fault> {
    match definition.gateway.as_deref().filter(|text| !text.is_empty()) {
        Some(text) => text
            .parse::<IpAddr>()
            .ok()
            .filter(|gateway| range.contains(gateway))
            .ok_or_else(|| Fault::cloud(format!("the gateway '{text}' is not in {range}"))),
        None => range.hosts().next().ok_or_else(|| Fault::cloud(format!("the range {range} has no address"))),
    }
}

/// Another network that has addresses of this range.
async fn others(session: &Session, range: IpNet, but: &str) -> Result<Option<(String, IpNet)>, Fault> {
    let networks = session.client.networks().await?;
    let others = networks.iter().filter(|network| network.name != but);
    let taken = others.flat_map(|network| ranges(network).map(|taken| (network.name.clone(), taken)));
    Ok(taken.into_iter().find(|(_, taken)| taken.contains(&range) || range.contains(taken)))
}

async fn free(session: &Session, range: IpNet) -> Result<IpNet, Fault> {
    match others(session, range, "").await? {
        Some((name, taken)) => Err(Fault::cloud(format!(
            "the range {range} overlaps {taken} of the network '{name}'; choose another one, or name that network as 'network' \
             in the cloud_properties"
        ))),
        None => Ok(range),
    }
}

async fn chosen(session: &Session, bits: Option<u8>, tried: usize, call: &Call) -> Result<IpNet, Fault> {
    let whole = session.config.managed_range.trunc();
    let bits = bits.ok_or_else(|| Fault::cloud("a network needs a range, or netmask_bits to choose one by"))?;
    let subnets = whole.subnets(bits).map_err(|_| {
        Fault::cloud(format!("netmask_bits {bits} do not fit into {whole}, where networks get their ranges"))
    })?;
    let networks = session.client.networks().await?;
    let taken: Vec<IpNet> = networks.iter().flat_map(ranges).collect();
    let is_free = |range: &IpNet| !taken.iter().any(|other| other.contains(range) || range.contains(other));
    // After a collision, both choose at different distances.
    let aside = if tried == 0 { 0 } else { usize::from(call.id.as_bytes()[tried]) };
    let mut free = subnets.take(CANDIDATES).filter(is_free);
    let first = free.next();
    match free.take(aside).last().or(first) {
        Some(range) => must_have_room(range),
        None => Err(Fault::cloud(format!(
            "found no free range of {bits} bits in {whole}; set 'managed_range' to a larger one"
        ))),
    }
}

fn new(
    session: &Session,
    call: &Call,
    name: &NetworkName,
    kind: &str,
    properties: &Properties,
    range: IpNet,
    gateway: IpAddr,
) -> NewNetwork {
    let mut config = tags::of_call(call);
    let (family, other) = if gateway.is_ipv4() { ("ipv4", "ipv6") } else { ("ipv6", "ipv4") };
    config.extend([
        (tags::PROJECT.to_owned(), session.config.project.clone()),
        (format!("{family}.address"), format!("{gateway}/{}", range.prefix_len())),
        (format!("{family}.nat"), properties.nat.to_string()),
        (format!("{other}.address"), "none".to_owned()),
    ]);
    config.extend(properties.uplink.clone().map(|uplink| ("network".to_owned(), uplink)));
    let description = "Made by a BOSH director".to_owned();
    NewNetwork { name: name.as_str().to_owned(), kind: kind.to_owned(), description, config }
}

async fn make(session: &Session, new: &NewNetwork) -> Result<(), Fault> {
    // Each member has a bridge of its own, and is told of it one by one.
    if session.server.is_clustered && new.kind == "bridge" {
        for member in session.client.members().await? {
            match session.client.define_network(new, &member.server_name).await {
                Err(error) if error.is_taken() || error.says("already defined") => {}
                other => other.map_err(explained)?,
            }
        }
    }
    session.client.create_network(new).await.map_err(explained)
}

/// Whether the daemon saw that somebody has the address.
fn is_taken(fault: &Fault) -> bool {
    matches!(fault, Fault::Client(error) if error.is_taken())
}

/// What may be missing, beside what the daemon says.
fn explained(error: ClientError) -> Fault {
    Fault::from(error).about(
        "the certificate must be allowed to make networks, and for 'type: ovn' the servers need OVN and an uplink that the project \
         may use",
    )
}

/// The answer for a network that an interrupted call made; nothing if it has to be finished or made again.
async fn finished(
    session: &Session,
    call: &Call,
    name: &NetworkName,
    found: &Network,
    properties: &Properties,
) -> Result<Option<CreatedNetwork>, Fault> {
    // Members know of it, and the cluster does not yet: it has no tags.
    if !found.is_made() {
        return Ok(None);
    }
    if found.config.get(tags::ID).is_none_or(|id| *id != call.id.to_string()) {
        return Err(CpiError::cpi(format!(
            "there is a network '{}' already, and this CPI did not make it; delete or rename it",
            name.as_str()
        ))
        .into());
    }
    if let Some(own) = ranges(found).next()
        && others(session, own, name.as_str()).await?.is_none()
    {
        return answer(name, properties, &found.kind, own.trunc(), own.addr()).map(Some);
    }
    remove(session, name).await?;
    Ok(None)
}

async fn remove(session: &Session, name: &NetworkName) -> Result<(), Fault> {
    match session.client.delete_network(name.as_str()).await {
        Err(error) if !error.is_missing() => Err(error.into()),
        _ => Ok(()),
    }
}

fn answer(
    name: &NetworkName,
    properties: &Properties,
    kind: &str,
    range: IpNet,
    gateway: IpAddr,
) -> Result<CreatedNetwork, Fault> {
    let mut cloud_properties = Object::from_iter([("network".to_owned(), json!(name.as_str()))]);
    let flags = [("filtering", properties.filtering), ("local", properties.local)];
    cloud_properties.extend(flags.iter().filter(|(_, set)| *set).map(|(key, _)| ((*key).to_owned(), json!(true))));
    if let Some(reserve) = properties.reserve_address {
        cloud_properties.insert("reserve_address".to_owned(), json!(reserve));
    }
    // Which may be that of the first of several zones; a network that all members have holds nobody to it.
    if let Some(target) = properties.target.as_ref().filter(|_| kind == "bridge" && !properties.local) {
        cloud_properties.insert("target".to_owned(), json!(target));
    }
    let address_properties = Object::from_iter([
        ("range".to_owned(), json!(range)),
        ("gateway".to_owned(), json!(gateway)),
        ("reserved".to_owned(), json!([])),
    ]);
    Ok(CreatedNetwork { cid: name.cid()?, address_properties, cloud_properties })
}
