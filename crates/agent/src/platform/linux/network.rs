//! From the networks in the settings to files of systemd-networkd. Pure but for [`Linux::set_up_network`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use windlass_contract::network::NetworkKind;
use windlass_contract::{Network, Networks};
use windlass_durable::file;

use super::Linux;
use super::command::{CommandError, tool};

/// How long an address may take to be there after the network was restarted.
const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);

/// why the VM is not on its networks
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    /// a network for which there is no interface
    #[error("No device found for network '{network}' with MAC address '{mac}'; this machine has {found}")]
    NoDevice { network: String, mac: String, found: String },
    /// what should be an address is none
    #[error("network '{network}' has {what} '{value}', which is none")]
    Address { network: String, what: &'static str, value: String },
    /// the interface has an impossible name
    #[error("network '{network}' has the alias '{alias}', which cannot be the name of an interface")]
    Alias { network: String, alias: String },
    /// an address did not appear
    #[error(
        "this machine does not have the address {0}, {PATIENCE:?} after its network was set up; look at its interfaces"
    )]
    NotAssigned(IpAddr),
    #[error(transparent)]
    Tool(#[from] CommandError),
    /// a file cannot be changed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_failed(path: &Path) -> impl FnOnce(io::Error) -> NetworkError {
    let path = path.to_owned();
    move |source| NetworkError::Io { path, source }
}

/// What an interface gets.
#[derive(Debug, Default)]
struct Interface<'a> {
    /// Networks with an address, each with its mask's length.
    fixed: Vec<(&'a Network, IpAddr, u8)>,
    /// Networks whose address the cloud tells.
    told: Vec<&'a Network>,
    /// Further addresses with their labels.
    labelled: Vec<(String, IpAddr, u8)>,
    routes: Vec<String>,
}

/// Whether every network that has an interface was set up by the cloud.
fn is_preconfigured(networks: &Networks) -> bool {
    real(networks).all(|(_, network)| network.preconfigured.unwrap_or_default())
}

/// A network of kind vip is routed to the VM from outside.
fn real(networks: &Networks) -> impl Iterator<Item = (&String, &Network)> {
    networks.iter().filter(|(_, network)| network.kind != NetworkKind::Vip)
}

/// The name servers of the network that is the default for them.
fn name_servers(networks: &Networks) -> &[String] {
    let mut all = real(networks).map(|(_, network)| network);
    let chosen = match networks.len() {
        1 => all.next(),
        _ => all.find(|network| network.is_default_for("dns")),
    };
    chosen.and_then(|network| network.dns.as_deref()).unwrap_or_default()
}

fn text<'a>(network: &'a Network, key: &str) -> &'a str {
    network.other.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_true(network: &Network, key: &str) -> bool {
    network.other.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn is_told(network: &Network) -> bool {
    network.kind == NetworkKind::Dynamic
        || is_true(network, "use_dhcp")
        || is_true(network, "resolved")
        || network.ip.is_none()
        || network.netmask.is_none()
}

/// The files of all interfaces, by interface; `cards` has their names by MAC.
fn plan(networks: &Networks, cards: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, NetworkError> {
    let all: Vec<(&String, &Network)> = real(networks).collect();
    let mut interfaces: BTreeMap<&str, Interface<'_>> = BTreeMap::new();
    let only = match (all.as_slice(), cards.len()) {
        ([(_, network)], 1) if text(network, "mac").is_empty() => cards.values().next(),
        _ => None,
    };
    for (name, network) in &all {
        let (mac, alias) = (text(network, "mac"), text(network, "alias"));
        match (only, cards.get(mac)) {
            (Some(card), _) => add(interfaces.entry(card).or_default(), name, network)?,
            (None, Some(card)) => add(interfaces.entry(card).or_default(), name, network)?,
            (None, None) if !mac.is_empty() => {
                let found = cards.iter().map(|(mac, card)| format!("{card} with {mac}")).collect::<Vec<_>>().join(", ");
                return Err(NetworkError::NoDevice { network: (*name).clone(), mac: mac.to_owned(), found });
            }
            (None, None) if alias.is_empty() => {}
            (None, None) => {
                let card = alias.split(':').next().unwrap_or_default();
                if card.is_empty()
                    || matches!(card, "." | "..")
                    || alias.contains(|c: char| c == '/' || c.is_whitespace())
                {
                    return Err(NetworkError::Alias { network: (*name).clone(), alias: alias.to_owned() });
                }
                let (ip, length) = address(name, network)?;
                interfaces.entry(card).or_default().labelled.push((alias.to_owned(), ip, length));
            }
        }
    }
    let nobodys = Network::default();
    for card in cards.values() {
        let interface = interfaces.entry(card).or_default();
        if interface.fixed.is_empty() && interface.told.is_empty() {
            interface.told.push(&nobodys);
        }
    }
    let is_gateway = |network: &&Network| network.is_default_for("gateway");
    let some_is_gateway = all.iter().any(|(_, network)| network.is_default_for("gateway"));
    let files = interfaces.iter().map(|(name, interface)| {
        let takes_gateway = !some_is_gateway || interface.told.iter().any(is_gateway);
        ((*name).to_owned(), render(name, interface, name_servers(networks), takes_gateway))
    });
    Ok(files.collect())
}

fn add<'a>(interface: &mut Interface<'a>, name: &str, network: &'a Network) -> Result<(), NetworkError> {
    interface.routes.extend(routes(name, network)?);
    match is_told(network) {
        true => interface.told.push(network),
        false => {
            let (ip, length) = address(name, network)?;
            interface.fixed.push((network, ip, length));
        }
    }
    Ok(())
}

fn address(name: &str, network: &Network) -> Result<(IpAddr, u8), NetworkError> {
    let ip = parse(name, "the address", network.ip.as_deref().unwrap_or_default())?;
    Ok((ip, mask_length(name, network.netmask.as_deref().unwrap_or_default())?))
}

fn parse(network: &str, what: &'static str, value: &str) -> Result<IpAddr, NetworkError> {
    let wrong = |_| NetworkError::Address { network: network.to_owned(), what, value: value.to_owned() };
    value.parse().map_err(wrong)
}

fn mask_length(network: &str, mask: &str) -> Result<u8, NetworkError> {
    let (bits, ones, zeros) = match parse(network, "the mask", mask)? {
        IpAddr::V4(mask) => (32, mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros()),
        IpAddr::V6(mask) => (128, mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros()),
    };
    match ones + zeros == bits {
        true => Ok(ones as u8),
        false => Err(NetworkError::Address { network: network.to_owned(), what: "the mask", value: mask.to_owned() }),
    }
}

fn routes(name: &str, network: &Network) -> Result<Vec<String>, NetworkError> {
    let routes = network.other.get("routes").and_then(Value::as_array);
    let routes = routes.into_iter().flatten().map(|route| {
        let field = |key: &str| route[key].as_str().unwrap_or_default();
        let destination = parse(name, "a route to", field("destination"))?;
        let gateway = parse(name, "a route over", field("gateway"))?;
        Ok(format!(
            "[Route]\nDestination={destination}/{}\nGateway={gateway}\n\n",
            mask_length(name, field("netmask"))?
        ))
    });
    routes.collect()
}

/// The original's words, so that either agent finds nothing to change in the other's files.
fn render(name: &str, interface: &Interface<'_>, name_servers: &[String], takes_gateway: bool) -> String {
    let mut file = format!("# Generated by bosh-agent\n[Match]\nName={name}\n\n");
    let mut line = |text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = file.write_fmt(text);
    };
    for (network, ip, length) in &interface.fixed {
        line(format_args!("[Address]\nAddress={ip}/{length}\n"));
        if let (IpAddr::V4(ip), true) = (ip, network.is_default_for("gateway")) {
            line(format_args!("Broadcast={}\n", broadcast(*ip, *length)));
        }
        line(format_args!("\n"));
    }
    for (label, ip, length) in &interface.labelled {
        line(format_args!("[Address]\nLabel={label}\nAddress={ip}/{length}\n\n"));
    }
    line(format_args!("[Network]\n"));
    if !interface.told.is_empty() {
        line(format_args!("DHCP=yes\n"));
    }
    for (network, ..) in &interface.fixed {
        if let (Some(gateway), true) = (&network.gateway, network.is_default_for("gateway")) {
            line(format_args!("Gateway={gateway}\n"));
        }
    }
    let is_six = |network: &&Network| network.ip.as_ref().is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
    if interface.fixed.iter().any(|(_, ip, _)| ip.is_ipv6()) || interface.told.iter().any(is_six) {
        line(format_args!("IPv6AcceptRA=true\n"));
    }
    for server in name_servers {
        line(format_args!("DNS={server}\n"));
    }
    line(format_args!("\n"));
    if !interface.told.is_empty() {
        line(format_args!("[DHCP]\nUseDomains=yes\nUseMTU=yes\n"));
        if !takes_gateway {
            line(format_args!("UseRoutes=no\n"));
        }
        line(format_args!("\n"));
    }
    file.extend(interface.routes.iter().map(String::as_str));
    file
}

fn broadcast(ip: Ipv4Addr, length: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(ip.to_bits() | u32::MAX.checked_shr(length.into()).unwrap_or_default())
}

impl Linux {
    /// Puts the VM on its networks. What the cloud set up is left alone, but for the name servers.
    pub(super) fn set_up_network(&self, networks: &Networks) -> Result<(), NetworkError> {
        if is_preconfigured(networks) {
            return self.set_name_servers(name_servers(networks));
        }
        let files = plan(networks, &self.cards())?;
        let has_six = real(networks).any(|(_, network)| network.ip.as_ref().is_some_and(|ip| ip.contains(':')));
        if has_six {
            self.enable_ipv6()?;
        }
        if self.write_network_files(&files)? {
            tool(&self.base.bosh().join("bin/restart_networking").to_string_lossy(), [""; 0]).run()?;
        }
        for (name, network) in real(networks).filter(|(_, network)| !is_told(network)) {
            if text(network, "alias").is_empty() {
                wait_for_address(address(name, network)?.0)?;
            }
        }
        self.set_name_servers(name_servers(networks))
    }

    /// The machine's network cards by MAC.
    fn cards(&self) -> BTreeMap<String, String> {
        let entries = std::fs::read_dir(self.root.at("/sys/class/net")).into_iter().flatten().flatten();
        let card = |path: PathBuf| -> Option<(String, String)> {
            let alias = std::fs::read_to_string(path.join("ifalias")).unwrap_or_default();
            let index = std::fs::read_to_string(path.join("ifindex")).unwrap_or_default();
            let rules = self.root.at(format!("/run/udev/data/n{}", index.trim()));
            let rules = std::fs::read_to_string(rules).unwrap_or_default();
            // A card of Azure that stands behind another one.
            let is_hidden = rules.lines().any(|line| line == "E:AZURE_UNMANAGED_SRIOV=1");
            if is_hidden || !(path.join("device").exists() || alias.starts_with("bosh-interface")) {
                return None;
            }
            let mac = std::fs::read_to_string(path.join("address")).ok()?.trim().to_owned();
            Some((mac, path.file_name()?.to_str()?.to_owned()))
        };
        entries.filter_map(|entry| card(entry.path())).collect()
    }

    /// Says whether anything changed.
    fn write_network_files(&self, files: &BTreeMap<String, String>) -> Result<bool, NetworkError> {
        let folder = self.root.at("/etc/systemd/network");
        std::fs::create_dir_all(&folder).map_err(io_failed(&folder))?;
        let mut changed = false;
        let mut kept = Vec::new();
        for (name, text) in files {
            let path = folder.join(format!("10_{name}.network"));
            if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
                file::write(&path, text.as_bytes(), 0o644).map_err(io_failed(&path))?;
                changed = true;
            }
            kept.push(path);
        }
        for entry in std::fs::read_dir(&folder).map_err(io_failed(&folder))? {
            let path = entry.map_err(io_failed(&folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(".network") && !name.ends_with("unmanaged.network") && !kept.contains(&path) {
                file::remove_file(&path).map_err(io_failed(&path))?;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// The name servers, in the way that the stemcell resolves names. With none, everything stays as it is.
    fn set_name_servers(&self, servers: &[String]) -> Result<(), NetworkError> {
        if servers.is_empty() {
            return Ok(());
        }
        let list: String = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        let list = format!("# Generated by bosh-agent\n{list}");
        let write = |path: &Path, text: &str| match std::fs::read(path) {
            Ok(found) if found == text.as_bytes() => Ok(false),
            _ => {
                let folder = path.parent().unwrap_or(path);
                std::fs::create_dir_all(folder).map_err(io_failed(folder))?;
                let written = match file::write(path, text.as_bytes(), 0o644) {
                    // A container's runtime has mounted its own there.
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => file::write_in_place(path, text),
                    written => written,
                };
                written.map(|()| true).map_err(io_failed(path))
            }
        };
        if self.options.service_manager == "systemd" {
            let servers: String = servers.iter().map(|server| format!("{server} ")).collect();
            let path = self.root.at("/etc/systemd/resolved.conf.d/10-bosh.conf");
            if write(&path, &format!("# Generated by bosh-agent\n[Resolve]\nDNS={servers}"))? {
                tool("systemctl", ["restart", "systemd-resolved"]).run()?;
            }
            return Ok(());
        }
        if !super::command::exists("resolvconf") {
            return write(&self.root.at("/etc/resolv.conf"), &list).map(drop);
        }
        write(&self.root.at("/etc/resolvconf/resolv.conf.d/base"), &list)?;
        let link = self.root.at("/etc/resolv.conf");
        file::symlink(Path::new("/run/resolvconf/resolv.conf"), &link).map_err(io_failed(&link))?;
        tool("resolvconf", ["-u"]).run()?;
        Ok(())
    }

    /// The network of the default route, as the kernel tells it.
    pub(super) fn found_network(&self) -> Option<Network> {
        let table = std::fs::read_to_string("/proc/net/route").ok()?;
        let (gateway, masks) = default_route(&table)?;
        // No packet is sent: it only makes the kernel choose an address.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        let IpAddr::V4(ip) = socket.local_addr().ok()?.ip() else { return None };
        let netmask = masks.into_iter().find(|(network, mask)| ip.to_bits() & mask.to_bits() == network.to_bits());
        Some(Network {
            ip: Some(ip.to_string()),
            netmask: netmask.map(|(_, mask)| mask.to_string()),
            gateway: Some(gateway.to_string()),
            ..Network::default()
        })
    }
}

/// The gateway of the default route, and the networks that are reached without one.
fn default_route(table: &str) -> Option<(Ipv4Addr, Vec<(Ipv4Addr, Ipv4Addr)>)> {
    let address = |field: &str| Some(Ipv4Addr::from(u32::from_str_radix(field, 16).ok()?.to_le_bytes()));
    let (mut found, mut networks) = (None, Vec::new());
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, destination, gateway, _, _, _, _, mask, ..] = fields.as_slice() else { continue };
        let (destination, gateway, mask) = (address(destination)?, address(gateway)?, address(mask)?);
        match (mask.is_unspecified(), gateway.is_unspecified()) {
            (true, _) if found.is_none() => found = Some(gateway),
            (false, true) => networks.push((destination, mask)),
            _ => {}
        }
    }
    Some((found?, networks))
}

/// A machine can listen on each of its addresses.
fn wait_for_address(ip: IpAddr) -> Result<(), NetworkError> {
    let deadline = Instant::now() + PATIENCE;
    while UdpSocket::bind((ip, 0)).is_err() {
        if Instant::now() >= deadline {
            return Err(NetworkError::NotAssigned(ip));
        }
        std::thread::sleep(RETRY);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn networks(value: Value) -> Networks {
        serde_json::from_value(value).unwrap()
    }

    fn cards(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(mac, name)| ((*mac).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn a_static_network_is_written_in_the_originals_words() {
        let wanted = networks(json!({
            "default": {"ip": "10.0.0.5", "netmask": "255.255.255.0", "gateway": "10.0.0.1", "mac": "aa", "dns": ["10.0.0.2"],
                "default": ["dns", "gateway"], "routes": [{"destination": "10.9.0.0", "gateway": "10.0.0.9", "netmask": "255.255.0.0"}]},
            "more": {"ip": "10.0.0.6", "netmask": "255.255.255.0", "alias": "eth0:1"},
            "vip": {"type": "vip", "ip": "1.2.3.4"},
        }));
        let planned = plan(&wanted, &cards(&[("aa", "eth0"), ("bb", "eth1")])).unwrap();
        assert_eq!(
            planned["eth0"],
            "# Generated by bosh-agent\n[Match]\nName=eth0\n\n[Address]\nAddress=10.0.0.5/24\nBroadcast=10.0.0.255\n\n\
             [Address]\nLabel=eth0:1\nAddress=10.0.0.6/24\n\n[Network]\nGateway=10.0.0.1\nDNS=10.0.0.2\n\n\
             [Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\n\n"
        );
        assert_eq!(
            planned["eth1"],
            "# Generated by bosh-agent\n[Match]\nName=eth1\n\n[Network]\nDHCP=yes\nDNS=10.0.0.2\n\n\
             [DHCP]\nUseDomains=yes\nUseMTU=yes\nUseRoutes=no\n\n",
            "a card without a network asks for an address, but not for the way out"
        );
    }

    #[test]
    fn one_network_belongs_to_the_one_card() {
        let dynamic = networks(json!({"n": {"type": "dynamic", "dns": ["9.9.9.9"]}}));
        let planned = plan(&dynamic, &cards(&[("aa", "ens3")])).unwrap();
        assert!(planned["ens3"].contains("DHCP=yes\nDNS=9.9.9.9\n"), "{planned:?}");
        assert!(!planned["ens3"].contains("UseRoutes"));
        let six = networks(json!({"n": {"ip": "2001:db8::5", "netmask": "ffff:ffff:ffff:ffff::", "mac": "aa"}}));
        let planned = plan(&six, &cards(&[("aa", "ens3")])).unwrap();
        assert!(planned["ens3"].contains("Address=2001:db8::5/64\n\n[Network]\nIPv6AcceptRA=true\n"), "{planned:?}");
    }

    #[test]
    fn a_wrong_network_is_named() {
        let wanted = networks(json!({"n": {"ip": "10.0.0.5", "netmask": "255.255.255.0", "mac": "cc"}}));
        let error = plan(&wanted, &cards(&[("aa", "eth0")])).unwrap_err().to_string();
        assert_eq!(error, "No device found for network 'n' with MAC address 'cc'; this machine has eth0 with aa");
        let wanted = networks(json!({"n": {"ip": "10.0.0.5", "netmask": "255.0.255.0", "mac": "aa"}}));
        assert!(plan(&wanted, &cards(&[("aa", "eth0")])).unwrap_err().to_string().contains("the mask '255.0.255.0'"));
        let wanted =
            networks(json!({"n": {"ip": "10.0.0.5", "netmask": "255.0.0.0", "alias": "../x"}, "m": {"mac": "aa"}}));
        assert!(plan(&wanted, &cards(&[("aa", "eth0")])).unwrap_err().to_string().contains("alias '../x'"));
    }

    #[test]
    fn what_the_cloud_set_up_is_left_alone() {
        assert!(is_preconfigured(&networks(json!({"n": {"preconfigured": true}, "v": {"type": "vip"}}))));
        assert!(!is_preconfigured(&networks(json!({"n": {"preconfigured": true}, "m": {}}))));
    }

    #[test]
    fn the_default_route_is_found() {
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let (gateway, networks) = default_route(table).unwrap();
        assert_eq!(gateway, Ipv4Addr::new(192, 168, 1, 1));
        assert_eq!(networks, [(Ipv4Addr::new(192, 168, 1, 0), Ipv4Addr::new(255, 255, 255, 0))]);
        assert_eq!(default_route("Iface\n"), None);
    }
}
