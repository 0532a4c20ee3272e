//! Names for a hosts file, where nobody answers queries: every name that a director hands out, as far as it can be listed.
//!
//! A group's queries are those without zones, those for one zone, and those for each choice of a few zones. The file is written with
//! each version of the names, which tells who is ill.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::records::{AddressRecord, OwnHealth, Records};

/// Of so many zones every choice has a name.
const MOST_ZONES: usize = 4;
/// Smart, unhealthy, healthy, all.
const HEALTHS: [u64; 4] = [0, 1, 3, 4];

/// Addresses and names: those of the director, then those of queries and aliases.
pub(crate) fn with_queries(records: &Records) -> Vec<(String, String)> {
    let anybody = OwnHealth { agent_id: String::new(), is_well: true };
    let mut names: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    let mut groups: BTreeMap<(String, String), Vec<&AddressRecord>> = BTreeMap::new();
    for record in &records.all {
        let domain = &record.domain;
        let long = format!("{}.{}.{}.{domain}", record.group, record.network, record.deployment);
        groups.entry((long, String::new())).or_default().push(record);
        for group in &record.group_ids {
            let short = format!("q-g{group}.{domain}");
            groups.entry((short.clone(), String::new())).or_default().push(record);
            let Some(network) = &record.network_id else { continue };
            groups.entry((short.clone(), format!("n{network}"))).or_default().push(record);
            if let Some(number) = &record.number {
                let name = format!("q-m{number}n{network}s0.{short}");
                names.entry(name).or_default().insert(record.address);
            }
        }
    }
    for ((group, network), members) in groups {
        let zones: BTreeSet<&str> = members.iter().filter_map(|record| record.az_id.as_deref()).collect();
        for chosen in choices(&zones.into_iter().collect::<Vec<_>>()) {
            let is_in = |record: &&&AddressRecord| {
                chosen.is_empty() || record.az_id.as_deref().is_some_and(|zone| chosen.contains(&zone))
            };
            let chosen_records: Vec<&AddressRecord> = members.iter().filter(is_in).copied().collect();
            // Filters are sorted as texts, as directors write them.
            let mut filters: Vec<String> = chosen.iter().map(|zone| format!("a{zone}")).collect();
            filters.sort();
            for health in HEALTHS {
                let name = format!("q-{}{network}s{health}.{group}", filters.concat());
                let of_that_health = records.healthy(chosen_records.clone(), health, &anybody);
                names.entry(name).or_default().extend(of_that_health.iter().map(|record| record.address));
            }
        }
    }
    for alias in records.plain_aliases() {
        names.entry(alias.to_owned()).or_default().extend(records.resolve(alias, &anybody).unwrap_or_default());
    }
    let mut hosts = records.hosts.clone();
    for (name, addresses) in names {
        hosts.extend(addresses.into_iter().map(|address| (address.to_string(), name.clone())));
    }
    hosts
}

/// Every choice of some zones, none at first; of many zones, one at a time.
fn choices<'z>(zones: &[&'z str]) -> Vec<Vec<&'z str>> {
    if zones.len() > MOST_ZONES {
        return std::iter::once(Vec::new()).chain(zones.iter().map(|zone| vec![*zone])).collect();
    }
    let chosen =
        |mask: usize| zones.iter().enumerate().filter(move |(at, _)| mask >> at & 1 == 1).map(|(_, zone)| *zone);
    (0..1_usize << zones.len()).map(|mask| chosen(mask).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::{example, example_with};
    use super::*;

    #[test]
    fn a_hosts_file_has_every_query_that_directors_write_and_what_a_resolver_would_answer() {
        is_as_answered(&example());
        let one_is_ill = example_with(&["agent-2"]);
        is_as_answered(&one_is_ill);
        let has =
            |name: &str, address: &str| with_queries(&one_is_ill).contains(&(address.to_owned(), name.to_owned()));
        assert!(has("q-s0.db.a.shop.bosh", "10.0.0.1") && !has("q-s0.db.a.shop.bosh", "10.0.0.2"));
        assert!(has("q-s1.db.a.shop.bosh", "10.0.0.2") && !has("q-s1.db.a.shop.bosh", "10.0.0.1"));
    }

    fn is_as_answered(records: &Records) {
        let hosts = with_queries(records);
        let anybody = OwnHealth { agent_id: String::new(), is_well: true };
        let mut by_name: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        for (address, name) in &hosts {
            by_name.entry(name).or_default().push(address.parse().unwrap());
        }
        for name in [
            "u1.db.a.shop.bosh",
            "q-s0.db.a.shop.bosh",
            "q-a1s0.db.a.shop.bosh",
            "q-a1a2s3.db.a.shop.bosh",
            "q-s0.web.a.shop.bosh",
            "q-n2s0.q-g9.bosh",
            "q-a2n2s4.q-g5.bosh",
            "q-m11n3s0.q-g5.bosh",
            "q-m13n2s0.q-g6.bosh",
            "db.internal",
        ] {
            assert!(by_name.contains_key(name), "{name} is not in {by_name:?}");
        }
        for (name, mut addresses) in by_name {
            let mut expected = records.resolve(name, &anybody).unwrap();
            addresses.sort();
            expected.sort();
            assert_eq!(addresses, expected, "{name}");
        }
    }

    #[test]
    fn many_zones_are_named_one_at_a_time() {
        assert_eq!(choices(&["1", "2"]), [vec![], vec!["1"], vec!["2"], vec!["1", "2"]]);
        assert_eq!(choices(&["1", "2", "3", "4", "5"]).len(), 6);
    }
}
