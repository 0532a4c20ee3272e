//! Names of instances in DNS, as BOSH writes them, and the document of all names that agents get.
//!
//! | name | means |
//! |---|---|
//! | `<uuid>.<group>.<network>.<deployment>.bosh` | one instance |
//! | `q-<filters>.<group>.<network>.<deployment>.bosh` | the instances of a group that pass the filters |
//! | `q-<filters>.q-g<number>.bosh` | the same in short; a group is one of the manifest, or what provides a link |
//!
//! Filters are letters with numbers: `a` zone, `m` instance, `n` network, `s` health. They are written in the order of their letters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::names::InstanceId;

/// The root of all names of instances.
pub const DOMAIN: &str = "bosh";

/// Names that mean the same in DNS.
pub fn canonical(name: &str) -> String {
    let lower = name.to_lowercase().replace('_', "-");
    lower.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}

/// The keys of a row of `record_infos`, in their order.
pub const RECORD_KEYS: [&str; 13] = [
    "id",
    "num_id",
    "instance_group",
    "group_ids",
    "az",
    "az_id",
    "network",
    "network_id",
    "deployment",
    "ip",
    "domain",
    "agent_id",
    "instance_index",
];

/// What a group in DNS stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKind {
    InstanceGroup,
    /// The instances that provide a link.
    Link,
}

/// The numbers that names are made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsNumbers {
    pub azs: BTreeMap<String, i64>,
    pub networks: BTreeMap<String, i64>,
    /// By deployment, kind and name.
    pub groups: BTreeMap<(String, GroupKind, String), i64>,
}

impl DnsNumbers {
    /// The numbers that zones and networks would get next, for a plan that gives none.
    pub fn foresee(&mut self, azs: &[&str], networks: &[&str]) {
        for (names, known) in [(azs, &mut self.azs), (networks, &mut self.networks)] {
            for name in names {
                let next = known.values().max().map_or(1, |highest| highest + 1);
                known.entry((*name).to_owned()).or_insert(next);
            }
        }
    }

    /// 0 for a group that no deploy gave a number yet: numbers are counted from 1.
    pub fn group(&self, deployment: &str, kind: GroupKind, name: &str) -> i64 {
        self.groups.get(&(deployment.to_owned(), kind, name.to_owned())).copied().unwrap_or_default()
    }
}

/// The number of an instance in DNS. It follows from the id, so that a plan knows it before anything is on record; it has 53 bits,
/// so that two instances share one as good as never.
pub fn instance_number(id: &InstanceId) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = id.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    (hash ^ (hash >> 53)) & ((1 << 53) - 1)
}

/// The name of one instance in one network.
pub fn instance_name(host: &str, group: &str, network: &str, deployment: &str) -> String {
    format!("{host}.{}.{}.{}.{DOMAIN}", canonical(group), canonical(network), canonical(deployment))
}

/// The short name of one instance in one network.
pub fn short_instance_name(id: &InstanceId, network: i64, group: i64) -> String {
    format!("q-m{}n{network}s0.q-g{group}.{DOMAIN}", instance_number(id))
}

/// An instance that has addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedInstance {
    pub id: InstanceId,
    pub index: i64,
    pub deployment: String,
    pub group: String,
    pub az: Option<String>,
    /// None while it has no VM.
    pub agent_id: Option<String>,
    /// Networks and the address in each.
    pub addresses: Vec<(String, String)>,
    /// The links that its group provides, as [`LinkProvider::group_name`](crate::links::LinkProvider::group_name) writes them:
    /// one list for all instances of the group.
    pub links: Arc<Vec<String>>,
}

/// Another name for the instances that provide a link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsAlias {
    pub deployment: String,
    pub link_group: String,
    pub domain: String,
    pub health_filter: Option<String>,
    pub initial_health_check: Option<String>,
    pub placeholder_type: Option<String>,
}

/// A row of `record_infos`, as [`RECORD_KEYS`] says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct RecordInfo(
    InstanceId,
    String,
    String,
    #[serde(serialize_with = "listed")] Arc<Vec<String>>,
    Option<String>,
    Option<String>,
    String,
    Option<String>,
    String,
    String,
    &'static str,
    Option<String>,
    i64,
);

fn listed<S: Serializer>(ids: &Arc<Vec<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    ids.as_slice().serialize(serializer)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct AliasTarget {
    root_domain: &'static str,
    group_id: String,
    health_filter: Option<String>,
    initial_health_check: Option<String>,
    placeholder_type: Option<String>,
}

/// `records.json`: everything that a DNS server on a VM needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DnsDocument {
    records: Vec<(String, String)>,
    version: i64,
    record_keys: [&'static str; 13],
    record_infos: Vec<RecordInfo>,
    aliases: BTreeMap<String, Vec<AliasTarget>>,
    /// Those whose instances are ill. Ours alone: BOSH's agents and DNS server do not look at it, and ask each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unhealthy_agents: Vec<String>,
}

impl DnsDocument {
    /// The names of these instances, without a version. `include_index` gives each a name by its index as well.
    pub fn new(instances: &[NamedInstance], aliases: &[DnsAlias], numbers: &DnsNumbers, include_index: bool) -> Self {
        let (mut records, mut record_infos) = (Vec::new(), Vec::new());
        // A group has thousands of instances and of links, and each instance a row for each network.
        let mut ids_of_groups: BTreeMap<(&str, &str), Arc<Vec<String>>> = BTreeMap::new();
        for instance in instances {
            let group_id = |kind, name: &str| numbers.group(&instance.deployment, kind, name).to_string();
            let ids = || {
                let own = group_id(GroupKind::InstanceGroup, &instance.group);
                let of_links = instance.links.iter().map(|link| group_id(GroupKind::Link, link));
                Arc::new([own].into_iter().chain(of_links).collect())
            };
            let group_ids = ids_of_groups.entry((&instance.deployment, &instance.group)).or_insert_with(ids);
            for (network, address) in &instance.addresses {
                let name = |host: &str| instance_name(host, &instance.group, network, &instance.deployment);
                records.push((address.clone(), name(&instance.id)));
                if include_index {
                    records.push((address.clone(), name(&instance.index.to_string())));
                }
                record_infos.push(RecordInfo(
                    instance.id.clone(),
                    instance_number(&instance.id).to_string(),
                    canonical(&instance.group),
                    group_ids.clone(),
                    instance.az.clone(),
                    instance.az.as_ref().and_then(|az| numbers.azs.get(az)).map(i64::to_string),
                    canonical(network),
                    numbers.networks.get(network).map(i64::to_string),
                    canonical(&instance.deployment),
                    address.clone(),
                    DOMAIN,
                    instance.agent_id.clone(),
                    instance.index,
                ));
            }
        }
        let mut targets: BTreeMap<String, Vec<AliasTarget>> = BTreeMap::new();
        for alias in aliases {
            targets.entry(alias.domain.clone()).or_default().push(AliasTarget {
                root_domain: DOMAIN,
                group_id: numbers.group(&alias.deployment, GroupKind::Link, &alias.link_group).to_string(),
                health_filter: alias.health_filter.clone(),
                initial_health_check: alias.initial_health_check.clone(),
                placeholder_type: alias.placeholder_type.clone(),
            });
        }
        let unhealthy_agents = Vec::new();
        Self { records, version: 0, record_keys: RECORD_KEYS, record_infos, aliases: targets, unhealthy_agents }
    }

    /// The same with those who are ill, as far as they have names.
    pub fn with_unhealthy(mut self, agents: &BTreeSet<String>) -> Self {
        let named: BTreeSet<&String> = self.record_infos.iter().filter_map(|info| info.11.as_ref()).collect();
        self.unhealthy_agents = agents.iter().filter(|agent| named.contains(agent)).cloned().collect();
        self
    }

    /// The same as a version of it.
    pub fn with_version(self, version: i64) -> Self {
        Self { version, ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instance() -> NamedInstance {
        NamedInstance {
            id: "u-1".into(),
            index: 2,
            deployment: "simple.local_dns".into(),
            group: "my_db".into(),
            az: Some("Z_1".into()),
            agent_id: Some("agent-1".into()),
            addresses: vec![("net_a".into(), "10.0.0.5".into())],
            links: Arc::new(vec!["conn-db".into()]),
        }
    }

    fn numbers() -> DnsNumbers {
        let group = |kind, name: &str| ("simple.local_dns".to_owned(), kind, name.to_owned());
        DnsNumbers {
            azs: BTreeMap::from([("Z_1".into(), 1)]),
            networks: BTreeMap::from([("net_a".into(), 2)]),
            groups: BTreeMap::from([
                (group(GroupKind::InstanceGroup, "my_db"), 5),
                (group(GroupKind::Link, "conn-db"), 9),
            ]),
        }
    }

    /// DNS servers of releases read it, and skip what has another form.
    #[test]
    fn the_document_has_the_form_that_bosh_gives_it() {
        let alias = DnsAlias {
            deployment: "simple.local_dns".into(),
            link_group: "conn-db".into(),
            domain: "x.internal".into(),
            health_filter: Some("all".into()),
            initial_health_check: None,
            placeholder_type: None,
        };
        let document = DnsDocument::new(&[instance()], &[alias], &numbers(), true).with_version(7);
        let name = "my-db.net-a.simplelocal-dns.bosh";
        assert_eq!(
            serde_json::to_value(document).unwrap(),
            json!({
                "records": [["10.0.0.5", format!("u-1.{name}")], ["10.0.0.5", format!("2.{name}")]],
                "version": 7,
                "record_keys": ["id", "num_id", "instance_group", "group_ids", "az", "az_id", "network", "network_id",
                    "deployment", "ip", "domain", "agent_id", "instance_index"],
                "record_infos": [["u-1", instance_number(&"u-1".into()).to_string(), "my-db", ["5", "9"], "Z_1", "1", "net-a", "2",
                    "simplelocal-dns", "10.0.0.5", "bosh", "agent-1", 2]],
                "aliases": {"x.internal": [{"root_domain": "bosh", "group_id": "9", "health_filter": "all",
                    "initial_health_check": null, "placeholder_type": null}]},
            })
        );
    }

    /// Five thousand instances whose job provides forty thousand links took gigabytes.
    #[test]
    fn instances_of_a_group_share_the_numbers_of_its_links() {
        let two = [instance(), NamedInstance { id: "u-2".into(), ..instance() }];
        let document = DnsDocument::new(&two, &[], &numbers(), false);
        assert!(Arc::ptr_eq(&document.record_infos[0].3, &document.record_infos[1].3));
    }

    /// What others do not know they ignore; what nobody needs is not there.
    #[test]
    fn the_document_tells_who_is_ill_of_those_who_have_names() {
        let document = DnsDocument::new(&[instance()], &[], &numbers(), false);
        let well = serde_json::to_value(document.clone().with_unhealthy(&BTreeSet::from(["gone".to_owned()]))).unwrap();
        assert_eq!(well, serde_json::to_value(&document).unwrap());
        assert!(well.get("unhealthy_agents").is_none());
        let ill = document.with_unhealthy(&["agent-1", "gone"].map(str::to_owned).into());
        assert_eq!(serde_json::to_value(ill).unwrap()["unhealthy_agents"], json!(["agent-1"]));
    }

    #[test]
    fn what_has_no_zone_agent_or_index_has_none_in_the_document() {
        let bare = NamedInstance { az: None, agent_id: None, links: Arc::default(), ..instance() };
        let document = serde_json::to_value(DnsDocument::new(&[bare], &[], &numbers(), false)).unwrap();
        assert_eq!(document["records"].as_array().unwrap().len(), 1);
        let info = &document["record_infos"][0];
        assert!(info[4].is_null() && info[5].is_null() && info[11].is_null(), "{info}");
        assert_eq!(info[3], json!(["5"]));
    }

    /// A plan before the first deploy renders templates that ask for the instances of a zone.
    #[test]
    fn a_plan_foresees_the_numbers_that_a_deploy_gives() {
        let mut numbers = numbers();
        numbers.foresee(&["Z_1", "z2", "z2", "z3"], &["net_a", "net_b"]);
        assert_eq!(numbers.azs, BTreeMap::from([("Z_1".into(), 1), ("z2".into(), 2), ("z3".into(), 3)]));
        assert_eq!(numbers.networks, BTreeMap::from([("net_a".into(), 2), ("net_b".into(), 3)]));
    }

    #[test]
    fn numbers_of_instances_follow_from_their_ids_and_are_numbers_for_readers_in_any_language() {
        let number = instance_number(&"2f9c7a54-61a3-5c3b-9d0e-6b2b61a8a3f1".into());
        assert_eq!(number, instance_number(&"2f9c7a54-61a3-5c3b-9d0e-6b2b61a8a3f1".into()));
        assert!(number < 1 << 53);
        let many: std::collections::BTreeSet<u64> =
            (0..20_000_u128).map(|at| instance_number(&uuid::Uuid::from_u128(at << 3).to_string().into())).collect();
        assert_eq!(many.len(), 20_000);
    }
}
