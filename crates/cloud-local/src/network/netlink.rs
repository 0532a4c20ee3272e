//! Talks to the kernel about links, addresses, routes and rules. Directly, because `ip` may be missing on a fresh machine and
//! starting it for each change would take longer than all changes together; without an async runtime, because the one
//! who asks waits for the answer anyway.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;
use windlass_durable::kill_point;

/// A conversation with the kernel about the network namespace that it was begun in.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A prefix that this machine uses, and the interface if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) prefix: IpNet,
    pub(crate) link: Option<u32>,
}

/// Whether we may change links. Asks for the removal of one that cannot exist: permissions are checked first.
pub(crate) fn may_change_links() -> io::Result<()> {
    let mut nothing = LinkMessage::default();
    nothing.header.index = i32::MAX.cast_unsigned();
    let asked = Netlink::open()?.ask(RouteNetlinkMessage::DelLink(nothing), NLM_F_ACK);
    ignore(asked.map(|_| ()), &[Errno::NODEV])
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The index of the link called `name`; none if there is none.
    pub(crate) fn find(&mut self, name: &str) -> io::Result<Option<u32>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.ask(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(answers) => Ok(answers.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(link.header.index),
                _ => None,
            })),
            Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The index of a link that must exist.
    pub(crate) fn index(&mut self, name: &str) -> io::Result<u32> {
        self.find(name)?.ok_or_else(|| io::Error::other(format!("there is no interface {name}")))
    }

    /// Makes a bridge that is up. Its hardware address is fixed: otherwise it would change with its ports, and everybody's
    /// neighbour tables would be wrong for a while.
    pub(crate) fn add_bridge(&mut self, name: &str, hardware_address: [u8; 6]) -> io::Result<()> {
        let mut message = link_that_is_up();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Address(hardware_address.to_vec()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Makes a pair of interfaces: `name` here, a port of `bridge`, and `inside` in the network namespace of `pid`.
    pub(crate) fn add_pair(
        &mut self,
        name: &str,
        bridge: u32,
        inside: &str,
        hardware_address: Option<[u8; 6]>,
        pid: u32,
    ) -> io::Result<()> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![LinkAttribute::IfName(inside.to_owned()), LinkAttribute::NetNsPid(pid)];
        peer.attributes.extend(hardware_address.map(|address| LinkAttribute::Address(address.to_vec())));
        let mut message = link_that_is_up();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::Controller(bridge),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// A port of a bridge has this hardware address and learns no others: a VM could send from ever more of them, which nothing limits.
    pub(crate) fn learn_nothing(&mut self, port: u32, hardware_address: [u8; 6]) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = port;
        message.attributes = vec![LinkAttribute::LinkInfo(vec![
            LinkInfo::PortKind(InfoPortKind::Bridge),
            LinkInfo::PortData(InfoPortData::BridgePort(vec![InfoBridgePort::Learning(false)])),
        ])];
        self.change(RouteNetlinkMessage::NewLink(message), 0)?;
        let mut known = NeighbourMessage::default();
        known.header.family = AddressFamily::Bridge;
        known.header.ifindex = port;
        known.header.state = NeighbourState::Noarp;
        known.header.flags = NeighbourFlags::Controller;
        known.attributes = vec![NeighbourAttribute::LinkLayerAddress(hardware_address.to_vec())];
        self.change(RouteNetlinkMessage::NewNeighbour(known), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Remembers for good who has an address on a link. What the kernel finds out by itself has room for a thousand in all network
    /// namespaces together, and one VM can take that.
    pub(crate) fn know_neighbour(&mut self, link: u32, ip: IpAddr, hardware_address: [u8; 6]) -> io::Result<()> {
        let mut known = neighbour(link, ip);
        known.header.state = NeighbourState::Permanent;
        known.attributes.push(NeighbourAttribute::LinkLayerAddress(hardware_address.to_vec()));
        self.change(RouteNetlinkMessage::NewNeighbour(known), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes [`Netlink::know_neighbour`] back; one that is gone already, alone or with its link, is a success.
    pub(crate) fn forget_neighbour(&mut self, link: u32, ip: IpAddr) -> io::Result<()> {
        let forgotten = self.change(RouteNetlinkMessage::DelNeighbour(neighbour(link, ip)), 0);
        ignore(forgotten, &[Errno::NOENT, Errno::NODEV, Errno::NXIO])
    }

    pub(crate) fn set_up(&mut self, link: u32) -> io::Result<()> {
        let mut message = link_that_is_up();
        message.header.index = link;
        self.change(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Removes the link called `name`; one that is gone already is a success. Asked for by its name in one go: the kernel takes
    /// one end of a pair away when the namespace of the other ends, at any moment.
    pub(crate) fn delete_link(&mut self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        ignore(self.change(RouteNetlinkMessage::DelLink(message), 0), &[Errno::NODEV])
    }

    /// Gives a link an address; one that it has already is a success. No probing for duplicates, which would keep an IPv6
    /// address unusable for a second: we know all that are in use.
    pub(crate) fn add_address(&mut self, link: u32, address: IpNet) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = link;
        if address.addr().is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
        if let IpNet::V4(address) = address
            && address.prefix_len() < 31
        {
            message.attributes.push(AddressAttribute::Broadcast(address.broadcast()));
        }
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Sends what is for `destination` (everything, with an empty prefix) to `link`, through `gateway` if there is one.
    pub(crate) fn add_route(&mut self, destination: IpNet, gateway: Option<IpAddr>, link: u32) -> io::Result<()> {
        let route = route(destination, gateway, link);
        self.change(RouteNetlinkMessage::NewRoute(route), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Takes a route without a gateway away; one that is gone already, alone or with its link, is a success.
    pub(crate) fn delete_route(&mut self, destination: IpNet, link: u32) -> io::Result<()> {
        let deleted = self.change(RouteNetlinkMessage::DelRoute(route(destination, None, link)), 0);
        ignore(deleted, &[Errno::SRCH, Errno::NODEV])
    }

    /// Nothing that comes in from `link` is passed on. In both families, whatever the machine forwards otherwise; what is
    /// for the machine itself is not affected, because its own addresses are looked up first. A family that the kernel does
    /// without forwards nothing.
    pub(crate) fn forbid_forwarding(&mut self, link: &str) -> io::Result<()> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let added = self.change(RouteNetlinkMessage::NewRule(rule(family, link)), NLM_F_CREATE | NLM_F_EXCL);
            ignore(added, &[Errno::EXIST, Errno::AFNOSUPPORT])?;
        }
        Ok(())
    }

    /// Takes [`Netlink::forbid_forwarding`] back; what was never forbidden is a success.
    pub(crate) fn permit_forwarding(&mut self, link: &str) -> io::Result<()> {
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let deleted = self.change(RouteNetlinkMessage::DelRule(rule(family, link)), 0);
            ignore(deleted, &[Errno::NOENT, Errno::AFNOSUPPORT])?;
        }
        Ok(())
    }

    /// All prefixes that addresses and routes of this machine cover, but for routes to everything.
    pub(crate) fn used(&mut self) -> io::Result<Vec<Used>> {
        let mut used = Vec::new();
        for answer in self.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)? {
            if let RouteNetlinkMessage::NewAddress(address) = answer {
                let (length, link) = (address.header.prefix_len, Some(address.header.index));
                // The other end of a point-to-point link is in use as well.
                let ends = address.attributes.iter().filter_map(|attribute| match attribute {
                    AddressAttribute::Local(ip) | AddressAttribute::Address(ip) => Some(*ip),
                    _ => None,
                });
                used.extend(ends.filter_map(|ip| Some(Used { prefix: IpNet::new(ip, length).ok()?.trunc(), link })));
            }
        }
        for answer in self.ask(RouteNetlinkMessage::GetRoute(RouteMessage::default()), NLM_F_DUMP)? {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                used.extend(destination(&route).filter(|used| used.prefix.prefix_len() > 0));
            }
        }
        Ok(used)
    }

    /// The names of all links.
    pub(crate) fn names(&mut self) -> io::Result<Vec<(u32, String)>> {
        let answers = self.ask(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => {
                    link.attributes.into_iter().find_map(|attribute| match attribute {
                        LinkAttribute::IfName(name) => Some((link.header.index, name)),
                        _ => None,
                    })
                }
                _ => None,
            })
            .collect())
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        kill_point("before the network changes");
        self.ask(message, NLM_F_ACK | flags)?;
        kill_point("after the network changed");
        Ok(())
    }

    /// Sends one request and reads its answer to the end.
    fn ask(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP && flags & NLM_F_ACK == 0;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| io::Error::other(format!("the kernel's answer is not understood: {error}")))?;
                // Messages are aligned to four bytes.
                let length = (answer.header.length as usize).next_multiple_of(4).min(rest.len());
                rest = &rest[length.max(4).min(rest.len())..];
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::InnerMessage(message) => {
                        answers.push(message);
                        // Neither a dump nor an acknowledged change: one message is all there is.
                        if !is_dump && flags & NLM_F_ACK == 0 {
                            return Ok(answers);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

fn link_that_is_up() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message
}

fn route(destination: IpNet, gateway: Option<IpAddr>, link: u32) -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = family(destination.addr());
    route.header.destination_prefix_length = destination.prefix_len();
    route.header.table = RouteHeader::RT_TABLE_MAIN;
    route.header.protocol = RouteProtocol::Static;
    route.header.scope = if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    route.header.kind = RouteType::Unicast;
    if destination.prefix_len() > 0 {
        route.attributes.push(RouteAttribute::Destination(route_address(destination.addr())));
    }
    route.attributes.extend(gateway.map(|gateway| RouteAttribute::Gateway(route_address(gateway))));
    route.attributes.push(RouteAttribute::Oif(link));
    route
}

fn neighbour(link: u32, ip: IpAddr) -> NeighbourMessage {
    let mut neighbour = NeighbourMessage::default();
    neighbour.header.family = family(ip);
    neighbour.header.ifindex = link;
    neighbour.attributes = vec![NeighbourAttribute::Destination(match ip {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    })];
    neighbour
}

/// Between the machine's own addresses (0) and its routes (32766).
const RULE_PRIORITY: u32 = 100;

fn rule(family: AddressFamily, link: &str) -> RuleMessage {
    let mut rule = RuleMessage::default();
    rule.header.family = family;
    rule.header.action = RuleAction::Unreachable;
    rule.attributes = vec![RuleAttribute::Priority(RULE_PRIORITY), RuleAttribute::Iifname(link.to_owned())];
    rule
}

fn destination(route: &RouteMessage) -> Option<Used> {
    let link = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(link) => Some(*link),
        _ => None,
    });
    let unspecified = match route.header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let ip = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    });
    let prefix = IpNet::new(ip.unwrap_or(unspecified), route.header.destination_prefix_length).ok()?.trunc();
    Some(Used { prefix, link })
}

fn route_address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn ignore(result: io::Result<()>, tolerated: &[Errno]) -> io::Result<()> {
    match result {
        Err(error) if tolerated.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a network of its own, which goes with the thread; for root alone.
    fn in_own_network(test: impl FnOnce(&mut Netlink) + Send) {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| match nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                Ok(()) => test(&mut Netlink::open().unwrap()),
                Err(error) => eprintln!("needs root and did not run: {error}"),
            });
            thread.join().unwrap();
        });
    }

    #[test]
    fn what_went_between_a_look_and_its_removal_is_removed() {
        in_own_network(|netlink| {
            netlink.add_bridge("wl-1", [2, 0x57, 0, 0, 0, 1]).unwrap();
            let link = netlink.index("wl-1").unwrap();
            let destination: IpNet = "192.0.2.9/32".parse().unwrap();
            netlink.add_route(destination, None, link).unwrap();
            netlink.forbid_forwarding("wl-1").unwrap();
            for _ in 0..2 {
                netlink.delete_route(destination, link).unwrap();
                netlink.permit_forwarding("wl-1").unwrap();
                netlink.delete_link("wl-1").unwrap();
                assert_eq!(netlink.find("wl-1").unwrap(), None);
            }
        });
    }
}
