//! Connects a container to its bridges, and takes the connection away.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use windlass_contract::VmCid;

use super::netlink::Netlink;
use super::{Interface, NetworkError, Wiring, bridge, refused};

/// A VM has at most so many interfaces: their names on this machine have one digit for them.
pub(crate) const MOST_INTERFACES: usize = 10;

/// The name of the machine's end of a VM's interface.
fn port(vm: &VmCid, number: usize) -> String {
    let id: String = vm.as_str().chars().filter(char::is_ascii_hexdigit).take(11).collect();
    format!("wv{id}{number}")
}

/// Fails if the VM's subnets or addresses are used by this machine for something else. Makes nothing.
pub(crate) fn check(wiring: &Wiring) -> Result<(), NetworkError> {
    let mut netlink = Netlink::open().map_err(refused("ask the kernel about", "networks"))?;
    for Interface { bridge, subnet, .. } in &wiring.interfaces {
        if netlink.find(bridge).map_err(refused("look for", bridge))?.is_none() {
            bridge::check_free(&mut netlink, *subnet, &[])?;
        }
    }
    check_vips(&mut netlink, wiring)
}

/// Makes the bridges that the VM needs. The lock of the networks must be held.
pub(crate) fn prepare(wiring: &Wiring) -> Result<(), NetworkError> {
    let mut netlink = Netlink::open().map_err(refused("ask the kernel about", "networks"))?;
    for interface in &wiring.interfaces {
        bridge::ensure(&mut netlink, interface, wiring.outbound)?;
    }
    check_vips(&mut netlink, wiring)
}

fn check_vips(netlink: &mut Netlink, wiring: &Wiring) -> Result<(), NetworkError> {
    let ours: Vec<String> = wiring.interfaces.iter().map(|interface| interface.bridge.clone()).collect();
    wiring.vips.iter().try_for_each(|vip| bridge::check_free(netlink, IpNet::from(*vip), &ours))
}

/// Connects the container whose first process is `pid`, and sets up its interfaces inside.
pub(crate) fn connect(vm: &VmCid, wiring: &Wiring, pid: u32) -> Result<(), NetworkError> {
    let mut netlink = Netlink::open().map_err(refused("ask the kernel about", "networks"))?;
    for (number, interface) in wiring.interfaces.iter().enumerate() {
        let name = port(vm, number);
        bridge::remove_link(&mut netlink, &name)?;
        let link = netlink.index(&interface.bridge).map_err(refused("look for", &interface.bridge))?;
        let address = interface.addresses.first().map(|address| bridge::hardware_address(*address));
        netlink
            .add_pair(&name, link, &format!("eth{number}"), address, pid)
            .map_err(refused("connect the VM to", &interface.bridge))?;
        if let Some(address) = address {
            let port = netlink.index(&name).map_err(refused("look for", &name))?;
            netlink.learn_nothing(port, address).map_err(refused("connect the VM to", &interface.bridge))?;
            for ip in neighbours(wiring, number) {
                netlink.know_neighbour(link, ip, address).map_err(refused("remember who has", ip))?;
            }
        }
    }
    let inside = std::thread::scope(|scope| scope.spawn(|| set_up_inside(wiring, pid)).join());
    inside
        .unwrap_or_else(|_| Err(io::Error::other("the thread in the network namespace panicked")))
        .map_err(refused("set up", "the VM's interfaces"))?;
    if let Some(first) = wiring.interfaces.first() {
        let link = netlink.index(&first.bridge).map_err(refused("look for", &first.bridge))?;
        for vip in &wiring.vips {
            netlink.add_route(IpNet::from(*vip), None, link).map_err(refused("make a way to", vip))?;
        }
    }
    Ok(())
}

/// The addresses that are to be found behind an interface.
fn neighbours(wiring: &Wiring, number: usize) -> impl Iterator<Item = IpAddr> {
    let vips = if number == 0 { wiring.vips.as_slice() } else { &[] };
    wiring.interfaces[number].addresses.iter().chain(vips).copied()
}

/// In a thread of its own: it never comes back from the VM's network namespace.
fn set_up_inside(wiring: &Wiring, pid: u32) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    let mut netlink = Netlink::open()?;
    let loopback = netlink.index("lo")?;
    netlink.set_up(loopback)?;
    let mut links = Vec::new();
    for (number, interface) in wiring.interfaces.iter().enumerate() {
        let name = format!("eth{number}");
        let link = netlink.index(&name)?;
        bridge::ignore_advertisements(&name)?;
        netlink.set_up(link)?;
        for address in &interface.addresses {
            let address = IpNet::new(*address, interface.subnet.prefix_len()).map_err(io::Error::other)?;
            netlink.add_address(link, address)?;
        }
        netlink.know_neighbour(link, interface.machine, bridge::hardware_address(interface.machine))?;
        links.push((interface.subnet, link));
    }
    for vip in &wiring.vips {
        if let Some((_, link)) = links.first() {
            netlink.add_address(*link, IpNet::from(*vip))?;
        }
    }
    for gateway in &wiring.gateways {
        if let Some((_, link)) = links.iter().find(|(subnet, _)| subnet.contains(gateway)) {
            netlink.add_route(everything(*gateway), Some(*gateway), *link)?;
        }
    }
    Ok(())
}

/// Takes the connection away; what is gone already is a success.
pub(crate) fn disconnect(vm: &VmCid, wiring: &Wiring) -> Result<(), NetworkError> {
    let mut netlink = Netlink::open().map_err(refused("ask the kernel about", "networks"))?;
    if let Some(first) = wiring.interfaces.first()
        && let Some(link) = netlink.find(&first.bridge).map_err(refused("look for", &first.bridge))?
    {
        for vip in &wiring.vips {
            netlink.delete_route(IpNet::from(*vip), link).map_err(refused("remove the way to", vip))?;
        }
    }
    for (number, Interface { bridge, .. }) in wiring.interfaces.iter().enumerate() {
        if let Some(link) = netlink.find(bridge).map_err(refused("look for", bridge))? {
            for ip in neighbours(wiring, number) {
                netlink.forget_neighbour(link, ip).map_err(refused("forget who has", ip))?;
            }
        }
        bridge::remove_link(&mut netlink, &port(vm, number))?;
    }
    Ok(())
}

fn everything(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
    }
}
