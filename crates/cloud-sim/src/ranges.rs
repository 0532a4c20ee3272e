//! Ranges of addresses as numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use uuid::Uuid;

/// Where networks are made that nobody gave a range.
pub(crate) const POOL: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 128, 0, 0), 9);

/// Where dynamic networks have their addresses that no range was made for: where agents can listen, away from the loopback
/// addresses that people write down and from those that the embedded cloud chooses.
pub(crate) const DYNAMIC: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(127, 192, 0, 0), 10);

/// How many addresses are tried in a large range.
const CANDIDATES: u128 = 4096;

/// Addresses for VMs in `range`, beginning at one that `seed` chooses, so that those who look at the same time seldom meet.
pub(crate) fn candidates(range: IpNet, seed: Uuid) -> impl Iterator<Item = IpAddr> {
    let hosts = hosts(range);
    let start = if hosts == 0 { 0 } else { seed.as_u128() % hosts };
    (0..hosts.min(CANDIDATES)).filter_map(move |step| host(range, (start + step) % hosts))
}

/// The first address for a machine in `range`, where gateways usually are.
pub(crate) fn first_host(range: IpNet) -> Option<IpAddr> {
    host(range, 0).filter(|_| hosts(range) > 1)
}

/// The first block of the pool, with a prefix of this length, that overlaps none of `taken`.
pub(crate) fn free_block(prefix: u8, taken: &[IpNet]) -> Option<IpNet> {
    let blocks = POOL.subnets(prefix).ok()?;
    let overlaps = |block: &IpNet| taken.iter().any(|taken| taken.contains(block) || block.contains(taken));
    blocks.map(IpNet::V4).find(|block| !overlaps(block))
}

/// How many addresses a range has for machines: without its own name, and the address of all of them.
fn hosts(range: IpNet) -> u128 {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(64);
    (1u128 << bits).saturating_sub(2)
}

fn host(range: IpNet, number: u128) -> Option<IpAddr> {
    match range.network() {
        IpAddr::V4(network) => {
            let address = u32::from(network).checked_add(u32::try_from(number).ok()?)?.checked_add(1)?;
            Some(Ipv4Addr::from(address).into())
        }
        IpAddr::V6(network) => Some(Ipv6Addr::from(u128::from(network).checked_add(number)?.checked_add(1)?).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn every_address_of_a_small_range_is_offered_once() {
        let mut offered: Vec<String> =
            candidates(range("10.0.0.0/29"), Uuid::from_u128(11)).map(|address| address.to_string()).collect();
        assert_eq!(offered[0], "10.0.0.6", "the seed decides where to begin");
        offered.sort();
        assert_eq!(offered, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(candidates(range("10.0.0.0/32"), Uuid::nil()).count(), 0);
        assert_eq!(candidates(range("fd00::/64"), Uuid::nil()).next().unwrap().to_string(), "fd00::1");
        assert_eq!(candidates(range("::/0"), Uuid::max()).count(), 4096);
        assert_eq!(first_host(range("10.0.0.0/31")), None);
    }

    #[test]
    fn blocks_overlap_neither_larger_nor_smaller_networks() {
        let taken = [range("10.128.0.0/24"), range("10.128.1.7/32"), range("10.128.2.0/23"), range("fd00::/8")];
        assert_eq!(free_block(24, &taken), Some(range("10.128.4.0/24")));
        assert_eq!(free_block(24, &[range("10.0.0.0/8")]), None);
        assert_eq!(free_block(8, &[]), None, "larger than the pool");
        assert_eq!(free_block(33, &[]), None);
    }
}
