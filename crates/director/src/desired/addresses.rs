//! Ranges of addresses: never expanded in memory.

use std::net::IpAddr;

use ipnet::IpNet;

/// From one address to another, both included, both of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: u128,
    last: u128,
    v4: bool,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl AddressRange {
    /// `a - b`, `a/24` or `a`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let address =
            |text: &str| text.trim().parse::<IpAddr>().map_err(|_| format!("'{}' is not an address", text.trim()));
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (address(first)?, address(last)?);
            if first.is_ipv4() != last.is_ipv4() || number(first) > number(last) {
                return Err(format!("'{text}' does not go from a lower to a higher address"));
            }
            return Ok(Self { first: number(first), last: number(last), v4: first.is_ipv4() });
        }
        if text.contains('/') {
            let net: IpNet = text.trim().parse().map_err(|_| format!("'{text}' is not a range such as 10.0.0.0/24"))?;
            return Ok(Self::of(net));
        }
        let one = address(text)?;
        Ok(Self { first: number(one), last: number(one), v4: one.is_ipv4() })
    }

    /// All addresses of a subnet.
    pub fn of(net: IpNet) -> Self {
        Self { first: number(net.network()), last: number(net.broadcast()), v4: net.addr().is_ipv4() }
    }

    /// Whether the address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.v4 && (self.first..=self.last).contains(&number(address))
    }

    /// Whether all of `other` lies in it.
    pub fn contains_range(&self, other: &Self) -> bool {
        self.v4 == other.v4 && self.first <= other.first && other.last <= self.last
    }

    /// Whether they share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.v4 == other.v4 && self.first <= other.last && other.first <= self.last
    }

    /// The lowest address that is in none of `excluded` and for which `is_free`. Excluded ranges are jumped over, so a
    /// huge subnet costs no more than a small one.
    pub fn lowest_free(&self, excluded: &[Self], mut is_free: impl FnMut(IpAddr) -> bool) -> Option<IpAddr> {
        let mut candidate = self.first;
        while candidate <= self.last {
            let blocking = excluded
                .iter()
                .filter(|range| range.v4 == self.v4 && range.first <= candidate && candidate <= range.last)
                .map(|range| range.last)
                .max();
            match blocking {
                Some(last) => candidate = last.checked_add(1)?,
                None => {
                    let address = self.address(candidate);
                    if is_free(address) {
                        return Some(address);
                    }
                    candidate = candidate.checked_add(1)?;
                }
            }
        }
        None
    }

    fn address(&self, number: u128) -> IpAddr {
        // A range of the IPv4 family only holds numbers of 32 bits.
        if self.v4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddressRange {
        AddressRange::parse(text).unwrap()
    }

    #[test]
    fn the_three_forms_are_read() {
        assert!(range("10.0.0.5 - 10.0.0.9").contains("10.0.0.7".parse().unwrap()));
        assert!(range("10.0.0.0/24").contains_range(&range("10.0.0.5-10.0.0.9")));
        assert!(!range("10.0.0.5").contains("10.0.0.6".parse().unwrap()));
        for wrong in ["10.0.0.9 - 10.0.0.5", "10.0.0.0/40", "here", "::1 - 10.0.0.1", ""] {
            assert!(AddressRange::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_huge_range_is_searched_without_expanding_it() {
        let excluded = [range("fd00::-fd00::ffff:ffff:ffff"), range("fd00::1:0:0:0 - fd00::1:0:0:5")];
        let free = range("fd00::/64").lowest_free(&excluded, |address| address.to_string() != "fd00::1:0:0:6");
        assert_eq!(free.unwrap().to_string(), "fd00::1:0:0:7");
        assert_eq!(range("10.0.0.1").lowest_free(&[range("10.0.0.0/24")], |_| true), None);
    }
}
