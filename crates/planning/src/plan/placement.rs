//! Which instances stay, which go, and in which zones new ones are made.
//!
//! As the original does it: an instance that owns a static address keeps it; one with a disk stays in its zone; the others are
//! spread evenly, from the lowest index on, so that the highest go first. New instances get the lowest free index.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use super::CurrentInstance;
use crate::desired::{DesiredGroup, NetworkPlacement, Zone};
use crate::names::InstanceId;

/// A place for an instance: one that is there, or a new one.
#[derive(Debug)]
pub(super) struct InstanceSlot<'a> {
    pub(super) id: InstanceId,
    pub(super) index: i64,
    pub(super) zone: &'a Zone,
    pub(super) present: Option<&'a CurrentInstance>,
    /// Addresses that it is given, by network.
    pub(super) statics: BTreeMap<String, IpAddr>,
}

/// An instance that is there, in its own group or in one that is taken over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Present<'a> {
    pub(super) instance: &'a CurrentInstance,
    /// The zone on record, or the one that the manifest gives to instances of the old group.
    pub(super) az: Option<&'a str>,
}

/// Slots by index, and the instances that go.
pub(super) type Placement<'a> = (Vec<InstanceSlot<'a>>, Vec<&'a CurrentInstance>);

/// Places the instances of a group.
pub(super) fn place<'a>(
    group: &'a DesiredGroup,
    mut present: Vec<Present<'a>>,
    new_id: &mut dyn FnMut() -> InstanceId,
) -> Result<Placement<'a>, String> {
    present.sort_by_key(|present| {
        let record = &present.instance.record;
        // Those that are left alone stay.
        (!record.ignored, record.group != group.name, record.index, record.id.clone())
    });
    let mut table = Table::new(group, &present, new_id);
    let mut claims = Claims::of(group, StaticNetworkKind::Manual);
    if claims.0.is_empty() {
        table.spread(present);
    } else {
        table.follow_addresses(present, &mut claims)?;
    }
    let Table { mut slots, surplus, .. } = table;
    slots.sort_by_key(|slot| slot.index);
    hand_out_vips(group, &mut slots);
    Ok((slots, surplus))
}

struct Table<'a, 'i> {
    group: &'a DesiredGroup,
    slots: Vec<InstanceSlot<'a>>,
    surplus: Vec<&'a CurrentInstance>,
    /// How many slots each zone has.
    counts: Vec<usize>,
    used_indices: BTreeSet<i64>,
    next_index: i64,
    new_id: &'i mut dyn FnMut() -> InstanceId,
}

impl<'a, 'i> Table<'a, 'i> {
    fn new(group: &'a DesiredGroup, present: &[Present<'a>], new_id: &'i mut dyn FnMut() -> InstanceId) -> Self {
        let own = present.iter().filter(|present| present.instance.record.group == group.name);
        Self {
            group,
            slots: Vec::new(),
            surplus: Vec::new(),
            counts: vec![0; group.zones.len()],
            // Also of those that go: they are still on record while the others are made.
            used_indices: own.map(|present| present.instance.record.index).collect(),
            next_index: 0,
            new_id,
        }
    }

    fn is_full(&self) -> bool {
        self.slots.len() >= self.group.instances
    }

    fn zone_of(&self, present: Present<'_>) -> Option<usize> {
        self.group.zones.iter().position(|zone| zone.az.as_deref() == present.az)
    }

    fn free_index(&mut self) -> i64 {
        while !self.used_indices.insert(self.next_index) {
            self.next_index += 1;
        }
        self.next_index
    }

    fn fill_slot(&mut self, zone: usize, present: Option<&'a CurrentInstance>, statics: BTreeMap<String, IpAddr>) {
        self.counts[zone] += 1;
        let (id, index) = match present.map(|present| &present.record) {
            Some(record) if record.group == self.group.name => (record.id.clone(), record.index),
            // From a group that is taken over: its index, unless somebody has that.
            Some(record) if self.used_indices.insert(record.index) => (record.id.clone(), record.index),
            Some(record) => (record.id.clone(), self.free_index()),
            None => ((self.new_id)(), self.free_index()),
        };
        self.slots.push(InstanceSlot { id, index, zone: &self.group.zones[zone], present, statics });
    }

    /// Without addresses to look after.
    fn spread(&mut self, present: Vec<Present<'a>>) {
        let mut waiting: Vec<VecDeque<&'a CurrentInstance>> = vec![VecDeque::new(); self.group.zones.len()];
        for one in present {
            match self.zone_of(one) {
                // A disk that the group does not want any more is no reason to stay.
                Some(zone) if !self.group.disks.is_empty() && !one.instance.disks.is_empty() && !self.is_full() => {
                    self.fill_slot(zone, Some(one.instance), BTreeMap::new());
                }
                Some(zone) => waiting[zone].push_back(one.instance),
                None => self.surplus.push(one.instance),
            }
        }
        let had: Vec<usize> = waiting.iter().map(VecDeque::len).collect();
        while !self.is_full() {
            let order = |zone: &usize| {
                let unmatched = !waiting[*zone].is_empty();
                let most_first = std::cmp::Reverse(if unmatched { had[*zone] } else { 0 });
                (self.counts[*zone], !unmatched, most_first, &self.group.zones[*zone].az)
            };
            let Some(zone) = (0..self.group.zones.len()).min_by_key(order) else { break };
            let present = waiting[zone].pop_front();
            self.fill_slot(zone, present, BTreeMap::new());
        }
        self.surplus.extend(waiting.into_iter().flatten());
    }

    /// With static addresses: instances that have one of them stay; the others are placed where there is one left for them.
    fn follow_addresses(&mut self, present: Vec<Present<'a>>, claims: &mut Claims) -> Result<(), String> {
        let mut others = Vec::new();
        let mut owners = Vec::new();
        for one in present {
            let Some(zone) = self.zone_of(one) else {
                self.surplus.push(one.instance);
                continue;
            };
            let is_full = self.slots.len() + owners.len() >= self.group.instances;
            match claims.owned_by(one.instance, zone) {
                owned if owned.is_empty() || is_full => others.push((one.instance, zone)),
                owned => {
                    claims.mark(&owned);
                    owners.push((one.instance, zone, owned));
                }
            }
        }
        for (instance, zone, mut owned) in owners {
            claims.complete(zone, &mut owned).ok_or_else(|| self.cannot_distribute(zone))?;
            self.fill_slot(zone, Some(instance), owned);
        }
        for (instance, zone) in others {
            let mut addresses = BTreeMap::new();
            if !self.is_full() && claims.can_serve(zone) && claims.complete(zone, &mut addresses).is_some() {
                self.fill_slot(zone, Some(instance), addresses);
            } else {
                self.surplus.push(instance);
            }
        }
        while !self.is_full() {
            let zones = 0..self.group.zones.len();
            let possible: Vec<usize> = zones.filter(|zone| claims.can_serve(*zone)).collect();
            let order = |zone: &&usize| (self.counts[**zone], &self.group.zones[**zone].az);
            let zone = *possible.iter().min_by_key(order).ok_or_else(|| self.cannot_distribute(0))?;
            let mut addresses = BTreeMap::new();
            claims.complete(zone, &mut addresses).ok_or_else(|| self.cannot_distribute(zone))?;
            self.fill_slot(zone, None, addresses);
        }
        Ok(())
    }

    fn cannot_distribute(&self, zone: usize) -> String {
        match self.group.zones.get(zone).and_then(|zone| zone.az.as_ref()) {
            Some(az) => format!(
                "its static_ips cannot be spread over its azs: an instance in az '{az}' would lack one; \
                 give each network the same number of addresses per az"
            ),
            None => "there are not enough static_ips that nobody has".to_owned(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StaticNetworkKind {
    Manual,
    Vip,
}

/// Static addresses of a group that nobody claimed yet, by network.
struct Claims(Vec<NetworkClaims>);

struct NetworkClaims {
    network: String,
    /// Zones that each address can be used in.
    zones: BTreeMap<IpAddr, Vec<usize>>,
    claimed: BTreeSet<IpAddr>,
    /// By zone, those first that fit into few zones. Claimed ones are dropped when they are met.
    free: Vec<VecDeque<IpAddr>>,
}

impl Claims {
    fn of(group: &DesiredGroup, kind: StaticNetworkKind) -> Self {
        let mut claims = Vec::new();
        for network in group.networks.iter().filter(|network| !network.static_ips.is_empty()) {
            let reached = |address: IpAddr| -> Option<Vec<usize>> {
                let all = 0..group.zones.len();
                match &network.definition.placement {
                    NetworkPlacement::Manual(subnets) if kind == StaticNetworkKind::Manual => {
                        let subnet = subnets.iter().find(|subnet| subnet.is_static(address))?;
                        Some(all.filter(|zone| subnet.reaches(group.zones[*zone].az.as_deref())).collect())
                    }
                    NetworkPlacement::Vip { .. } if kind == StaticNetworkKind::Vip => Some(all.collect()),
                    _ => None,
                }
            };
            let mut listed: Vec<(IpAddr, Vec<usize>)> =
                network.static_ips.iter().filter_map(|address| Some((*address, reached(*address)?))).collect();
            if listed.is_empty() {
                continue;
            }
            let zones = listed.iter().cloned().collect();
            listed.sort_by_key(|(_, zones)| zones.len());
            let free = (0..group.zones.len()).map(|zone| {
                listed.iter().filter(|(_, zones)| zones.contains(&zone)).map(|(address, _)| *address).collect()
            });
            claims.push(NetworkClaims {
                network: network.definition.name.clone(),
                zones,
                claimed: BTreeSet::new(),
                free: free.collect(),
            });
        }
        Self(claims)
    }

    /// Listed addresses that the instance has and nobody claimed.
    fn owned_by(&self, instance: &CurrentInstance, zone: usize) -> BTreeMap<String, IpAddr> {
        let Some(spec) = &instance.record.spec else { return BTreeMap::new() };
        let owned = self.0.iter().filter_map(|claims| {
            let address: IpAddr = spec.networks.get(&claims.network)?.ip.as_ref()?.parse().ok()?;
            let fits = claims.zones.get(&address)?.contains(&zone) && !claims.claimed.contains(&address);
            fits.then(|| (claims.network.clone(), address))
        });
        owned.collect()
    }

    fn mark(&mut self, owned: &BTreeMap<String, IpAddr>) {
        for claims in &mut self.0 {
            claims.claimed.extend(owned.get(&claims.network));
        }
    }

    fn can_serve(&mut self, zone: usize) -> bool {
        self.0.iter_mut().all(|claims| {
            let free = &mut claims.free[zone];
            while free.front().is_some_and(|address| claims.claimed.contains(address)) {
                free.pop_front();
            }
            !free.is_empty()
        })
    }

    /// Claims what is missing in `addresses`; none if a network has none left for the zone.
    fn complete(&mut self, zone: usize, addresses: &mut BTreeMap<String, IpAddr>) -> Option<()> {
        for claims in &mut self.0 {
            if addresses.contains_key(&claims.network) {
                continue;
            }
            let claimed = &mut claims.claimed;
            let address = std::iter::from_fn(|| claims.free[zone].pop_front()).find(|free| !claimed.contains(free))?;
            claimed.insert(address);
            addresses.insert(claims.network.clone(), address);
        }
        Some(())
    }
}

/// Vips follow their owners; the rest goes to instances that have none, in the order of the list.
fn hand_out_vips(group: &DesiredGroup, slots: &mut [InstanceSlot<'_>]) {
    let mut claims = Claims::of(group, StaticNetworkKind::Vip);
    let zone_of = |slot: &InstanceSlot<'_>| group.zones.iter().position(|zone| zone == slot.zone).unwrap_or_default();
    for slot in slots.iter_mut() {
        if let Some(present) = slot.present {
            let owned = claims.owned_by(present, zone_of(slot));
            claims.mark(&owned);
            slot.statics.extend(owned);
        }
    }
    for slot in slots.iter_mut() {
        let zone = zone_of(slot);
        // There is one per instance, so none lacks any.
        let _ = claims.complete(zone, &mut slot.statics);
    }
}
