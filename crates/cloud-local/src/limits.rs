//! What a plan cannot have on this machine, told by `info`. All of it is found out again when it is asked for; here, what cannot be
//! found out is left out.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use windlass_contract::cpi::limits::MOST_IN_USE;
use windlass_contract::cpi::{CloudLimits, NetworkInUse};

use crate::address;
use crate::cloud::LocalCloud;
use crate::isolation::{Isolation, IsolationChoice};
use crate::methods::create_disk;
use crate::network::bridge;
use crate::network::netlink::Netlink;

const LOOPBACK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8));

impl LocalCloud {
    pub(crate) fn limits_of_machine(&self) -> CloudLimits {
        let mut limits = CloudLimits {
            largest_disk_mib: Some(create_disk::LARGEST),
            addresses_in_use: self.addresses_in_use(),
            ..CloudLimits::default()
        };
        match self.isolation() {
            Ok(Isolation::Process) => limits.networks_within = vec![LOOPBACK],
            Ok(Isolation::Container) => limits.networks_in_use = self.networks_of_machine(),
            Err(_) => {}
        }
        limits
    }

    /// What bridges must not overlap. A VM on a loopback address is a process, unless it may not be one.
    fn networks_of_machine(&self) -> Vec<NetworkInUse> {
        let is_only_for_processes = self.config.isolation == IsolationChoice::Container;
        let mut networks: Vec<NetworkInUse> = is_only_for_processes
            .then(|| NetworkInUse {
                range: LOOPBACK,
                by: "the machine itself, and by VMs that are processes".to_owned(),
            })
            .into_iter()
            .collect();
        let others = Netlink::open()
            .map_err(|error| error.to_string())
            .and_then(|mut netlink| {
                bridge::used_by_others(&mut netlink, self.state()).map_err(|error| error.to_string())
            })
            .unwrap_or_default();
        networks.extend(
            others
                .into_iter()
                .filter(|(range, _)| !range.network().is_loopback())
                .map(|(range, on)| NetworkInUse { range, by: format!("the machine on {on}") }),
        );
        networks.truncate(MOST_IN_USE);
        networks
    }

    /// Of all VMs of this cloud, running or not, and of those of other state folders that run.
    fn addresses_in_use(&self) -> BTreeMap<IpAddr, String> {
        let count = self.vms.cids().map_or(usize::MAX, |cids| cids.len());
        if count > MOST_IN_USE {
            return BTreeMap::new();
        }
        let sockets = File::open("/proc/net/unix").map(BufReader::new);
        let claimed = sockets.into_iter().flat_map(address::claimed).take(MOST_IN_USE);
        let mut holders: BTreeMap<IpAddr, String> = claimed.map(|address| (address, String::new())).collect();
        for vm in self.vms.all().unwrap_or_default() {
            holders.extend(vm.addresses.iter().map(|address| (*address, vm.cid.to_string())));
        }
        holders.retain(|address, holder| {
            if holder.is_empty() {
                *holder = address::claimant(*address).unwrap_or_default();
            }
            !holder.is_empty()
        });
        holders
    }
}
