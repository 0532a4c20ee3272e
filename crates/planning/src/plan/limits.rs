//! What a plan needs that its clouds cannot give: said before anything is stopped for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use windlass_contract::cpi::CloudLimits;
use windlass_contract::{MiB, Networks};

use super::{ActionKind, InstancePlan, Plan};
use crate::desired::{Desired, DesiredGroup, Findings, NetworkPlacement};
use crate::names::CpiName;
use crate::spec::{InstanceSpec, reserved_addresses};

/// What an instance needs of its cloud.
struct Needs<'a> {
    cpi: &'a CpiName,
    disks: Vec<MiB>,
    /// Of the VM that is made, with their networks; none if none is made.
    addresses: Vec<(&'a str, IpAddr)>,
}

impl<'a> Needs<'a> {
    fn of(instance: &'a InstancePlan) -> Option<Self> {
        let spec: &InstanceSpec = instance.spec.as_ref()?;
        let (mut disks, mut addresses) = (Vec::new(), Vec::new());
        for action in instance.actions.iter() {
            match &action.what {
                ActionKind::CreateDisk { size, .. } => disks.push(*size),
                ActionKind::ResizeDisk { to, .. } | ActionKind::MigrateDisk { to, .. } => disks.push(*to),
                ActionKind::CreateVm | ActionKind::CreateSpareVm => {
                    addresses = reserved_addresses(&spec.networks).collect();
                }
                _ => {}
            }
        }
        (!disks.is_empty() || !addresses.is_empty()).then_some(Self { cpi: &spec.cpi, disks, addresses })
    }

    /// Why the cloud cannot give it, where networks have these ranges.
    fn refusals(&self, limits: &CloudLimits, range_of: impl Fn(&'a str, IpAddr) -> Option<IpNet>) -> Vec<String> {
        let mut refusals: Vec<String> = self.disks.iter().filter_map(|size| limits.disk_refusal(*size)).collect();
        for (network, address) in &self.addresses {
            let range = range_of(network, *address);
            let refusal = range.and_then(|range| limits.network_refusal(range));
            let refusal = refusal.or_else(|| limits.address_refusal(*address));
            refusals.extend(refusal.map(|why| format!("its network '{network}' cannot be had: {why}")));
        }
        refusals
    }
}

/// The range of a network as an instance has it on record; a vip network has none.
fn range_on_record(networks: &Networks, network: &str, address: IpAddr) -> Option<IpNet> {
    let mask = networks.get(network)?.netmask.as_ref()?.parse().ok()?;
    IpNet::with_netmask(address, mask).ok().map(|net| net.trunc())
}

/// Addresses on a vip network are in no range of ours.
fn range_of(group: &DesiredGroup, network: &str, address: IpAddr) -> Option<IpNet> {
    let network = group.networks.iter().find(|known| known.definition.name == network)?;
    let NetworkPlacement::Manual(subnets) = &network.definition.placement else { return None };
    subnets.iter().find(|subnet| subnet.contains(address)).map(|subnet| subnet.range)
}

impl Plan {
    /// The addresses that VMs will be made with, by the CPI that makes them; none with a CPI that is asked only for disks. Without
    /// workers: packages are compiled before anything stops.
    pub fn needs(&self) -> BTreeMap<&CpiName, BTreeSet<IpAddr>> {
        needs(self.instances())
    }
}

/// The addresses that the VMs of these instances will be made with, by the CPI that makes them.
pub fn needs<'p>(instances: impl Iterator<Item = &'p InstancePlan>) -> BTreeMap<&'p CpiName, BTreeSet<IpAddr>> {
    let mut needs: BTreeMap<&CpiName, BTreeSet<IpAddr>> = BTreeMap::new();
    for need in instances.filter_map(Needs::of) {
        needs.entry(need.cpi).or_default().extend(need.addresses.iter().map(|(_, address)| *address));
    }
    needs
}

/// Why an instance that is planned from what is on record cannot have what it needs. Then nothing of it is to be stopped or deleted.
pub fn impossible_for(instance: &InstancePlan, limits: &BTreeMap<CpiName, CloudLimits>) -> Option<String> {
    let needs = Needs::of(instance)?;
    let networks = &instance.spec.as_ref()?.networks;
    let range = |network: &str, address| range_on_record(networks, network, address);
    let refusals = needs.refusals(limits.get(needs.cpi)?, range);
    (!refusals.is_empty()).then(|| refusals.join("; "))
}

/// Finds what the clouds, by the names of their CPIs, cannot give. What several instances of a group need is said once.
pub fn refuse_impossible(
    plan: &Plan,
    desired: &Desired,
    limits: &BTreeMap<CpiName, CloudLimits>,
    findings: &mut Findings,
) {
    findings.begin("");
    for group in &desired.groups {
        let instances = plan.groups.iter().filter(|planned| planned.name == group.name).flat_map(|it| &it.instances);
        let needs = instances.filter_map(Needs::of);
        let range = |network: &str, address| range_of(group, network, address);
        let refusals: BTreeSet<String> =
            needs.filter_map(|needs| Some(needs.refusals(limits.get(needs.cpi)?, range))).flatten().collect();
        refusals.into_iter().for_each(|refusal| findings.push(group.place.problem(refusal)));
    }
}
