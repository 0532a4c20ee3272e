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
        Ok(address(text)?.into())
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

    /// How many addresses it has; at most `u128::MAX`.
    pub fn size(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Its addresses from the lowest on.
    pub fn iter(self) -> impl Iterator<Item = IpAddr> {
        (self.first..=self.last).map(move |number| self.address(number))
    }

    /// What is left of it without `excluded`: ranges from the lowest on. Costs as much as there are ranges, however many
    /// addresses they have.
    pub fn without(&self, excluded: &[Self]) -> Vec<Self> {
        let mut holes: Vec<_> = excluded.iter().filter(|range| self.overlaps(range)).collect();
        holes.sort_by_key(|range| range.first);
        let mut left = Vec::new();
        let mut next = Some(self.first);
        for hole in holes {
            let Some(from) = next else { break };
            if from < hole.first {
                left.push(Self { first: from, last: hole.first - 1, v4: self.v4 });
            }
            next = hole.last.checked_add(1).map(|after| after.max(from));
        }
        if let Some(from) = next.filter(|from| *from <= self.last) {
            left.push(Self { first: from, last: self.last, v4: self.v4 });
        }
        left
    }

    fn address(&self, number: u128) -> IpAddr {
        // A range of the IPv4 family only holds numbers of 32 bits.
        if self.v4 { IpAddr::V4((number as u32).into()) } else { IpAddr::V6(number.into()) }
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        Self { first: number(address), last: number(address), v4: address.is_ipv4() }
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.address(self.first)),
            false => write!(f, "{} - {}", self.address(self.first), self.address(self.last)),
        }
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

    fn text(ranges: &[AddressRange]) -> Vec<String> {
        ranges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_huge_range_is_searched_without_expanding_it() {
        let excluded = [range("fd00::1:0:0:0 - fd00::1:0:0:5"), range("fd00::-fd00::ffff:ffff:ffff")];
        let left = range("fd00::/64").without(&excluded);
        assert_eq!(text(&left), ["fd00::1:0:0:6 - fd00::ffff:ffff:ffff:ffff"]);
        assert_eq!(left[0].iter().next().unwrap().to_string(), "fd00::1:0:0:6");
        assert_eq!(range("10.0.0.1").without(&[range("10.0.0.0/24")]), []);
        assert_eq!(range("::/0").size(), u128::MAX);
        let slash_8 = range("10.0.0.0/8").without(&[range("10.0.0.0"), range("10.0.0.9"), range("10.255.255.255")]);
        assert_eq!(text(&slash_8), ["10.0.0.1 - 10.0.0.8", "10.0.0.10 - 10.255.255.254"]);
    }

    proptest::proptest! {
        #[test]
        fn what_is_left_and_what_is_excluded_make_up_the_whole(
            holes in proptest::collection::vec((0_u8..40, 0_u8..12), 0..6)
        ) {
            let address = |last: u8| IpAddr::from([10, 0, 0, last]);
            let whole = range("10.0.0.4 - 10.0.0.35");
            let holes: Vec<_> = holes.iter().map(|(from, many)| range(&format!("10.0.0.{from} - 10.0.0.{}", from + many))).collect();
            let left = whole.without(&holes);
            for last in 0..60 {
                let expected = whole.contains(address(last)) && !holes.iter().any(|hole| hole.contains(address(last)));
                proptest::prop_assert_eq!(left.iter().filter(|range| range.contains(address(last))).count(), usize::from(expected));
            }
            proptest::prop_assert!(left.windows(2).all(|pair| pair[0].last < pair[1].first));
        }
    }
}
