//! The bridge of a subnet: made with its first VM, removed with its last. Its name says which state folder and subnet it
//! belongs to, so nothing has to be remembered about it.

use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ipnet::IpNet;
use uuid::Uuid;
use windlass_durable::file;

use super::netlink::{Netlink, Used};
use super::{Interface, NetworkError, outbound, refused};

/// Makes our names unlike those that anybody else would make from the same text.
const SPACE: Uuid = Uuid::from_u128(0x3f7c_15a0_7d5b_4c0e_9a53_5f1d_77a1_e0b2);

/// What all names of bridges begin with.
const PREFIX: &str = "wl-";

/// The name of the bridge for `subnet`; names of interfaces have at most 15 characters.
pub(crate) fn name(state: &Path, subnet: IpNet) -> String {
    let digest = Uuid::new_v5(&SPACE, &[state.as_os_str().as_bytes(), b"\0", subnet.to_string().as_bytes()].concat());
    format!("{PREFIX}{:08x}", digest.as_fields().0)
}

/// All bridges of `state`, with their subnets.
pub(crate) fn of_state(netlink: &mut Netlink, state: &Path) -> Result<Vec<(String, IpNet)>, NetworkError> {
    let used = netlink.used().map_err(refused("list", "the machine's addresses"))?;
    let names = netlink.names().map_err(refused("list", "the machine's interfaces"))?;
    let subnet = |link: u32, link_name: &str| {
        used.iter().find(|it| it.link == Some(link) && name(state, it.prefix) == link_name).map(|it| it.prefix)
    };
    let ours = names.into_iter().filter(|(_, name)| name.starts_with(PREFIX));
    Ok(ours.filter_map(|(link, name)| subnet(link, &name).map(|subnet| (name, subnet))).collect())
}

/// A hardware address that depends on `of` alone: a VM that comes back under the same address is found at once, because what
/// others remember of it is still right.
pub(crate) fn hardware_address(of: IpAddr) -> [u8; 6] {
    let low = match of {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => Uuid::new_v5(&SPACE, &ip.octets()).as_fields().0.to_be_bytes(),
    };
    let family = if of.is_ipv4() { 0x57 } else { 0x58 };
    // Locally administered, no group.
    [0x02, family, low[0], low[1], low[2], low[3]]
}

/// Makes the bridge of `interface` as it should be, if it is not already. Refuses, before anything is made, to take
/// addresses that this machine uses for something else.
pub(crate) fn ensure(netlink: &mut Netlink, interface: &Interface, may_go_out: bool) -> Result<u32, NetworkError> {
    let Interface { bridge, subnet, machine, .. } = interface;
    let link = match netlink.find(bridge).map_err(refused("look for", bridge))? {
        Some(link) => link,
        None => {
            check_free(netlink, *subnet, &[])?;
            netlink.add_bridge(bridge, hardware_address(*machine)).map_err(refused("make the bridge", bridge))?;
            netlink.index(bridge).map_err(refused("look for", bridge))?
        }
    };
    ignore_advertisements(bridge).map_err(refused("ignore routers on", bridge))?;
    let address = IpNet::new(*machine, subnet.prefix_len()).unwrap_or(IpNet::from(*machine));
    netlink.add_address(link, address).map_err(refused("give the bridge its address", address))?;
    if may_go_out {
        netlink.permit_forwarding(bridge).map_err(refused("permit forwarding from", bridge))?;
        outbound::permit(bridge, *subnet)?;
    } else {
        netlink.forbid_forwarding(bridge).map_err(refused("forbid forwarding from", bridge))?;
    }
    Ok(link)
}

/// Everybody on a bridge could say that it is the router of all others, and would get what they send beyond their subnet. Which ways
/// there are is decided here, so nobody listens. A kernel without IPv6 never does; where `/proc/sys` is read-only, as in some
/// containers, that gap stays.
pub(crate) fn ignore_advertisements(link: &str) -> io::Result<()> {
    match file::write_in_place(Path::new(&format!("/proc/sys/net/ipv6/conf/{link}/accept_ra")), "0") {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ReadOnlyFilesystem) => Ok(()),
        written => written,
    }
}

/// Removes a bridge and all that goes with it; one that is gone already is a success.
pub(crate) fn remove(netlink: &mut Netlink, bridge: &str, may_go_out: bool) -> Result<(), NetworkError> {
    if may_go_out {
        outbound::forget(bridge)?;
    }
    netlink.permit_forwarding(bridge).map_err(refused("forget the rule for", bridge))?;
    remove_link(netlink, bridge)
}

/// Removes a link; one that is gone already is a success.
pub(crate) fn remove_link(netlink: &mut Netlink, name: &str) -> Result<(), NetworkError> {
    netlink.delete_link(name).map_err(refused("remove", name))
}

/// Fails if this machine uses any of `wanted`, but for what is on the interfaces that are `ours`.
pub(crate) fn check_free(netlink: &mut Netlink, wanted: IpNet, ours: &[String]) -> Result<(), NetworkError> {
    let used = netlink.used().map_err(refused("list", "the machine's addresses"))?;
    let names = netlink.names().map_err(refused("list", "the machine's interfaces"))?;
    match overlap(wanted, ours, &used, &names) {
        Some(used) => Err(NetworkError::Overlap { wanted, used }),
        None => Ok(()),
    }
}

/// What this machine uses other than for the VMs of `state`, each range with its interface.
pub(crate) fn used_by_others(netlink: &mut Netlink, state: &Path) -> Result<Vec<(IpNet, String)>, NetworkError> {
    let ours = of_state(netlink, state)?;
    let used = netlink.used().map_err(refused("list", "the machine's addresses"))?;
    let names = netlink.names().map_err(refused("list", "the machine's interfaces"))?;
    Ok(without_ours(&ours, &used, &names))
}

/// The ranges of others, but for those that are within another one of the same interface.
fn without_ours(ours: &[(String, IpNet)], used: &[Used], names: &[(u32, String)]) -> Vec<(IpNet, String)> {
    let mut others: Vec<(IpNet, String)> = Vec::new();
    for Used { prefix, link } in used {
        let on = link.and_then(|link| names.iter().find(|(index, _)| *index == link)).map(|(_, name)| name.as_str());
        let on = on.unwrap_or("no interface");
        let is_known = others.iter().any(|(known, known_on)| known_on == on && known.contains(prefix));
        let is_ours = ours.iter().any(|(name, _)| name == on);
        // Neither can be a VM's.
        let is_special = prefix.network().is_multicast()
            || matches!(prefix, IpNet::V6(net) if net.network().is_unicast_link_local());
        if !is_known && !is_ours && !is_special {
            others.retain(|(known, known_on)| known_on != on || !prefix.contains(known));
            others.push((*prefix, on.to_owned()));
        }
    }
    others
}

fn overlap(wanted: IpNet, ours: &[String], used: &[Used], names: &[(u32, String)]) -> Option<String> {
    let name = |link| names.iter().find(|(index, _)| *index == link).map(|(_, name)| name.as_str());
    used.iter().find_map(|used| {
        let on = used.link.and_then(name);
        let overlaps = used.prefix.contains(&wanted) || wanted.contains(&used.prefix);
        if !overlaps || on.is_some_and(|on| ours.iter().any(|our| our == on)) {
            return None;
        }
        Some(format!("{} on {}", used.prefix, on.unwrap_or("no interface")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn bridges_of_different_folders_and_subnets_have_different_names() {
        let name = |state: &str, subnet| name(Path::new(state), net(subnet));
        let one = name("/a", "10.0.0.0/24");
        assert_eq!(one, name("/a", "10.0.0.0/24"));
        assert!(one.len() <= 15 && one != name("/b", "10.0.0.0/24") && one != name("/a", "10.0.1.0/24"));
    }

    #[test]
    fn what_the_machine_uses_is_not_taken() {
        let names = [(1, "lo".to_owned()), (2, "eth0".to_owned()), (3, "wl-1".to_owned())];
        let used = |prefix, link| Used { prefix: net(prefix), link };
        let used = [
            used("192.168.0.0/16", Some(2)),
            used("10.0.0.0/24", Some(3)),
            used("10.9.0.0/16", None),
            used("fd00::/64", Some(2)),
        ];
        let overlap = |wanted, ours: &[String]| overlap(net(wanted), ours, &used, &names);
        assert_eq!(overlap("192.168.7.0/24", &[]).as_deref(), Some("192.168.0.0/16 on eth0"));
        assert_eq!(overlap("192.0.0.0/8", &[]).as_deref(), Some("192.168.0.0/16 on eth0"));
        assert_eq!(overlap("10.9.1.0/24", &[]).as_deref(), Some("10.9.0.0/16 on no interface"));
        assert_eq!(overlap("fd00::/48", &[]).as_deref(), Some("fd00::/64 on eth0"));
        assert_eq!(overlap("10.0.0.0/24", &["wl-1".to_owned()]), None);
        assert!(overlap("10.0.0.0/24", &[]).is_some());
        assert_eq!(overlap("10.0.1.0/24", &[]), None);
        assert_eq!(overlap("fd01::/64", &[]), None);
        let more =
            [used[0].clone(), used[1].clone(), Used { prefix: net("192.168.0.9/32"), link: Some(2) }, used[2].clone()];
        let others = without_ours(&[("wl-1".to_owned(), net("10.0.0.0/24"))], &more, &names);
        let expected = [("192.168.0.0/16", "eth0"), ("10.9.0.0/16", "no interface")];
        assert_eq!(others, expected.map(|(range, on)| (net(range), on.to_owned())));
    }
}
