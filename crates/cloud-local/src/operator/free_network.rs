//! A range of addresses for VMs, on a machine about which nothing was said yet.

use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use windlass_contract::cpi::CloudLimits;
use windlass_contract::cpi::CpiError;

use crate::cloud::LocalCloud;
use crate::isolation::Isolation;

/// The second number of all ranges that are tried, as in the examples.
const SECOND: u8 = 84;

impl LocalCloud {
    /// How VMs are kept apart here, and the first range of 256 addresses that they can have; none if all that are tried are in
    /// use.
    pub fn free_network(&self) -> Result<(Isolation, Option<IpNet>), CpiError> {
        let isolation = self.isolation()?;
        let first = match isolation {
            Isolation::Container => 10,
            Isolation::Process => 127,
        };
        Ok((isolation, free(first, &self.limits_of_machine())))
    }
}

fn free(first: u8, limits: &CloudLimits) -> Option<IpNet> {
    let ranges = (0..=u8::MAX).map(|third| IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(first, SECOND, third, 0), 24)));
    let is_free = |range: &IpNet| {
        limits.network_refusal(*range).is_none() && !limits.addresses_in_use.keys().any(|used| range.contains(used))
    };
    ranges.into_iter().find(is_free)
}

#[cfg(test)]
mod tests {
    use windlass_contract::cpi::NetworkInUse;

    use super::*;

    #[test]
    fn a_range_is_chosen_that_neither_the_machine_nor_another_vm_uses() {
        assert_eq!(free(127, &CloudLimits::default()), Some("127.84.0.0/24".parse().unwrap()));
        let mut limits = CloudLimits::default();
        limits.networks_in_use.push(NetworkInUse { range: "10.84.0.0/23".parse().unwrap(), by: "eth0".into() });
        limits.addresses_in_use.insert("10.84.2.7".parse().unwrap(), "another VM".into());
        assert_eq!(free(10, &limits), Some("10.84.3.0/24".parse().unwrap()));
        limits.networks_in_use.push(NetworkInUse { range: "10.0.0.0/8".parse().unwrap(), by: "eth1".into() });
        assert_eq!(free(10, &limits), None);
    }
}
