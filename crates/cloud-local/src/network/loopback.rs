//! The addresses of a VM in process isolation: loopback addresses, because those exist without privileges.

use std::net::{IpAddr, Ipv4Addr};

use uuid::Uuid;
use windlass_contract::cpi::CpiError;
use windlass_contract::network::NetworkKind;
use windlass_contract::settings::AgentSettings;
use windlass_contract::{Networks, Secret};

use super::{Plan, Wiring};

/// How many addresses are tried for a dynamic network.
const CANDIDATES: u32 = 256;

/// Gives each network an address. `is_free` tells whether a candidate for a dynamic network can be had.
pub(crate) fn plan(mut networks: Networks, seed: Uuid, is_free: impl Fn(IpAddr) -> bool) -> Result<Plan, CpiError> {
    if networks.is_empty() {
        return Err(CpiError::cloud("a VM needs at least one network"));
    }
    let main = networks.iter().find(|(_, network)| network.is_default_for("gateway")).map(|(name, _)| name.clone());
    let mut addresses: Vec<IpAddr> = Vec::new();
    for (name, network) in &mut networks {
        let address = match (network.kind, &network.ip) {
            (NetworkKind::Manual, Some(ip)) => loopback(name, ip)?,
            (NetworkKind::Manual, None) => {
                return Err(CpiError::cloud(format!("the manual network '{name}' has no ip")));
            }
            (NetworkKind::Dynamic, ip) => {
                let carried = ip.as_deref().and_then(|ip| loopback(name, ip).ok()).into_iter();
                let usable = |address: &IpAddr| !addresses.contains(address) && is_free(*address);
                carried
                    .chain(candidates(seed))
                    .find(usable)
                    .ok_or_else(|| CpiError::cloud(format!("found no free address for the dynamic network '{name}'")))?
            }
            (NetworkKind::Vip, _) => {
                return Err(CpiError::cloud(format!(
                    "the network '{name}' is a vip network, and process isolation has only manual and dynamic ones"
                )));
            }
        };
        if addresses.contains(&address) {
            return Err(CpiError::cloud(format!("the address {address} of network '{name}' is given twice")));
        }
        network.ip = Some(address.to_string());
        if main.as_deref() == Some(name) { addresses.insert(0, address) } else { addresses.push(address) }
    }
    Ok(Plan { networks, addresses, wiring: Wiring::default() })
}

fn loopback(name: &str, ip: &str) -> Result<IpAddr, CpiError> {
    let address = ip.parse::<Ipv4Addr>().ok().filter(|address| {
        address.is_loopback()
            && *address != Ipv4Addr::new(127, 0, 0, 0)
            && *address != Ipv4Addr::new(127, 255, 255, 255)
    });
    address.map(IpAddr::V4).ok_or_else(|| {
        CpiError::cloud(format!(
            "the network '{name}' has the address '{ip}', and process isolation can only use loopback addresses; give the \
             network a range inside 127.0.0.0/8, for example 127.1.0.0/24"
        ))
    })
}

/// Addresses in 127.64.0.0/10, away from those that people write down, spread by the VM's id.
fn candidates(seed: Uuid) -> impl Iterator<Item = IpAddr> {
    let start = seed.as_fields().0;
    (0..CANDIDATES).map(move |step| {
        let number = start.wrapping_add(step.wrapping_mul(0x9e37_79b1));
        let [_, b, c, d] = number.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(127, 64 + b % 64, c, 1 + d % 254))
    })
}

/// Whether all that a VM asks for can only be had on the loopback interface.
pub(crate) fn is_wanted(networks: &Networks) -> bool {
    networks.values().any(|network| {
        network.ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()).is_some_and(|ip| ip.is_loopback())
    })
}

/// Where the agent was told to listen on all addresses, tells it to listen on the VM's: all others belong to other VMs.
pub(crate) fn listen_on_own(addresses: &[IpAddr], settings: &mut AgentSettings) {
    let Some(address) = addresses.first() else { return };
    let urls = settings.env.bosh.mbus.as_mut().and_then(|mbus| mbus.urls.as_mut()).into_iter().flatten();
    for url in urls.chain(settings.mbus.as_mut()) {
        if let Some(own) = on_address(url.reveal(), *address) {
            *url = Secret::new(own);
        }
    }
}

fn on_address(url: &str, address: IpAddr) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (user, host) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let port = host.strip_prefix("0.0.0.0").filter(|port| port.is_empty() || port.starts_with(':'))?;
    Some(format!("{scheme}://{user}{address}{port}{path}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn networks(value: serde_json::Value) -> Networks {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_loopback_is_served_and_the_remedy_is_named() {
        for ip in ["10.0.0.5", "::1", "127.0.0.0", "127.255.255.255", "localhost", ""] {
            let planned = plan(networks(json!({"a": {"type": "manual", "ip": ip}})), Uuid::nil(), |_| true);
            planned.unwrap_err();
        }
        let error = plan(networks(json!({"a": {"ip": "10.0.0.5"}})), Uuid::nil(), |_| true).unwrap_err();
        assert!(error.message.contains("10.0.0.5") && error.message.contains("127.0.0.0/8"), "{error}");
        plan(Networks::new(), Uuid::nil(), |_| true).unwrap_err();
        plan(networks(json!({"a": {"type": "vip", "ip": "127.0.0.9"}})), Uuid::nil(), |_| true).unwrap_err();
        let twice = json!({"a": {"ip": "127.0.0.9"}, "b": {"ip": "127.0.0.9"}});
        assert!(plan(networks(twice), Uuid::nil(), |_| true).unwrap_err().message.contains("twice"));
    }

    #[test]
    fn dynamic_networks_get_free_addresses_and_the_gateways_comes_first() {
        let wanted = json!({"a": {"type": "dynamic"}, "b": {"type": "dynamic"},
            "c": {"type": "manual", "ip": "127.1.2.3", "default": ["dns", "gateway"]}});
        let first = candidates(Uuid::nil()).next().unwrap();
        let planned = plan(networks(wanted), Uuid::nil(), |address| address != first).unwrap();
        assert_eq!(planned.addresses[0], IpAddr::V4(Ipv4Addr::new(127, 1, 2, 3)));
        assert_eq!(planned.addresses.len(), 3);
        assert!(!planned.addresses.contains(&first));
        assert_eq!(planned.networks["a"].ip.as_deref(), Some(planned.addresses[1].to_string().as_str()));
        let none = plan(networks(json!({"a": {"type": "dynamic"}})), Uuid::nil(), |_| false).unwrap_err();
        assert!(none.message.contains("no free address"), "{none}");
    }

    #[test]
    fn the_agent_listens_on_its_own_address() {
        let address = IpAddr::V4(Ipv4Addr::new(127, 1, 2, 3));
        for (url, expected) in [
            ("https://u:p@0.0.0.0:6868", Some("https://u:p@127.1.2.3:6868")),
            ("https://0.0.0.0:6868/x", Some("https://127.1.2.3:6868/x")),
            ("https://0.0.0.0:p@0.0.0.0", Some("https://0.0.0.0:p@127.1.2.3")),
            ("https://u:p@10.0.0.1:6868", None),
            ("https://u:p@0.0.0.0.example:6868", None),
            ("nats", None),
        ] {
            assert_eq!(on_address(url, address).as_deref(), expected, "{url}");
        }
    }
}
