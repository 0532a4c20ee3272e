//! `records.json`, as directors send it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::Value;

use super::query::{Group, Query, Target};

/// How many addresses one name has at most: an answer has to be sent, and nobody tries more.
const MOST_ADDRESSES: usize = 1000;
/// How many aliases are followed for one name.
const MOST_TARGETS: usize = 100;

#[derive(Debug, Deserialize)]
struct Document {
    version: u64,
    #[serde(default)]
    records: Vec<(String, String)>,
    #[serde(default)]
    record_keys: Vec<String>,
    #[serde(default)]
    record_infos: Vec<Value>,
    #[serde(default)]
    aliases: BTreeMap<String, Value>,
    /// Directors of ours tell them.
    #[serde(default)]
    unhealthy_agents: Vec<String>,
}

/// What an alias leads to.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AliasTarget {
    root_domain: String,
    group_id: String,
    #[serde(default)]
    health_filter: Option<String>,
    #[serde(default)]
    placeholder_type: Option<String>,
}

/// One address of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddressRecord {
    pub(crate) id: String,
    pub(crate) number: Option<String>,
    pub(crate) group: String,
    pub(crate) group_ids: Vec<String>,
    pub(crate) az_id: Option<String>,
    pub(crate) network: String,
    pub(crate) network_id: Option<String>,
    pub(crate) deployment: String,
    pub(crate) address: IpAddr,
    pub(crate) domain: String,
    pub(crate) agent_id: Option<String>,
    pub(crate) index: Option<u64>,
}

/// All names, by what they are asked for.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) version: u64,
    /// Addresses and names for a hosts file.
    pub(crate) hosts: Vec<(String, String)>,
    pub(crate) all: Vec<AddressRecord>,
    aliases: BTreeMap<String, Vec<AliasTarget>>,
    /// By `group.network.deployment.domain`.
    by_group: HashMap<String, Vec<usize>>,
    /// By `number.domain` of a group.
    by_number: HashMap<String, Vec<usize>>,
    by_agent: HashMap<String, Vec<usize>>,
    by_id: HashMap<String, Vec<usize>>,
    domains: Vec<String>,
    /// Agents whose instances are ill, as the director knows.
    ill: HashSet<String>,
}

/// The instance on this machine, and whether its jobs are well.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnHealth {
    pub(crate) agent_id: String,
    pub(crate) is_well: bool,
}

impl Records {
    pub(crate) fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let document: Document = serde_json::from_slice(json)?;
        let position = |key: &str| document.record_keys.iter().position(|known| known == key);
        let places = ["id", "instance_group", "network", "deployment", "ip", "domain"].map(position);
        let optional = ["num_id", "group_ids", "az_id", "network_id", "agent_id", "instance_index"].map(position);
        let ill = document.unhealthy_agents.into_iter().collect();
        let mut records = Self { version: document.version, hosts: document.records, ill, ..Self::default() };
        // What nobody can make sense of is left out, as BOSH's DNS server does: the rest is still of use.
        for row in document.record_infos.iter().filter_map(Value::as_array) {
            if row.len() == document.record_keys.len()
                && let Some(record) = record(row, places, optional)
            {
                records.add(record);
            }
        }
        for (domain, targets) in &document.aliases {
            let read = |target: &Value| serde_json::from_value(target.clone()).ok();
            let targets = targets.as_array().into_iter().flatten().filter_map(read).collect();
            records.aliases.insert(domain.trim_end_matches('.').to_ascii_lowercase(), targets);
        }
        Ok(records)
    }

    fn add(&mut self, record: AddressRecord) {
        let at = self.all.len();
        let long = format!("{}.{}.{}.{}", record.group, record.network, record.deployment, record.domain);
        self.by_group.entry(long).or_default().push(at);
        for number in &record.group_ids {
            self.by_number.entry(format!("{number}.{}", record.domain)).or_default().push(at);
        }
        self.by_id.entry(record.id.clone()).or_default().push(at);
        if let Some(agent) = &record.agent_id {
            self.by_agent.entry(agent.clone()).or_default().push(at);
        }
        if !self.domains.contains(&record.domain) {
            self.domains.push(record.domain.clone());
        }
        self.all.push(record);
    }

    /// Whether a name is for these records to know, so that nobody else is asked.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        let is_below = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        is_below("bosh")
            || is_below("bosh-agent-id")
            || self.domains.iter().any(|domain| is_below(domain))
            || self.alias(name).is_some()
    }

    /// The addresses that a name stands for, in lower case and without a dot at its end; none if it is no name of an instance.
    pub(crate) fn resolve(&self, name: &str, own: &OwnHealth) -> Option<Vec<IpAddr>> {
        if let Some((host, targets)) = self.alias(name) {
            let mut found = Vec::new();
            for target in targets.iter().take(MOST_TARGETS) {
                let query = Query::of_alias(host, &target.group_id, &target.root_domain, target.filter());
                found.extend(self.answer(&query, own));
            }
            return Some(unique(found));
        }
        Some(unique(self.answer(&Query::parse(name, &self.domains)?, own)))
    }

    /// The targets of an alias, and the host that stands for its `_`.
    fn alias<'n>(&self, name: &'n str) -> Option<(Option<&'n str>, &[AliasTarget])> {
        if self.aliases.is_empty() {
            return None;
        }
        if let Some(targets) = self.aliases.get(name) {
            return Some((None, targets));
        }
        let (host, rest) = name.split_once('.')?;
        let targets = self.aliases.get(&format!("_.{rest}"))?;
        let is_of_instance = |target: &&AliasTarget| target.placeholder_type.as_deref() == Some("uuid");
        targets.iter().any(|target| is_of_instance(&target)).then_some((Some(host), targets.as_slice()))
    }

    fn answer(&self, query: &Query<'_>, own: &OwnHealth) -> Vec<IpAddr> {
        const NONE: &[usize] = &[];
        let globbed;
        let candidates: &[usize] = match &query.target {
            Target::Agent(agent) => self.by_agent.get(*agent).map_or(NONE, Vec::as_slice),
            Target::Group(Group::Number(key)) => self.by_number.get(key).map_or(NONE, Vec::as_slice),
            Target::Group(Group::Name(key)) if !key.contains('*') => {
                self.by_group.get(*key).map_or(NONE, Vec::as_slice)
            }
            Target::Group(Group::Name(key)) => {
                let fits = |(long, _): &(&String, _)| matches_parts(key, long);
                globbed = self.by_group.iter().filter(fits).flat_map(|(_, at)| at).copied().collect::<Vec<_>>();
                &globbed
            }
        };
        let by_id;
        let candidates = match query.host.filter(|_| candidates.len() > 16) {
            // A large group need not be walked for one of its instances.
            Some(host) if self.by_id.contains_key(host) => {
                by_id = self.by_id[host].iter().filter(|at| candidates.contains(at)).copied().collect::<Vec<_>>();
                &by_id
            }
            _ => candidates,
        };
        let found: Vec<&AddressRecord> =
            candidates.iter().map(|at| &self.all[*at]).filter(|record| query.fits(record)).collect();
        self.healthy(found, query.health, own).into_iter().map(|record| record.address).collect()
    }

    /// Those of the wanted health: 0 smart, 1 unhealthy, 3 healthy, 4 all. Of the own instance this machine knows best; of the
    /// others the director tells who is ill.
    pub(crate) fn healthy<'r>(
        &self,
        found: Vec<&'r AddressRecord>,
        filter: u64,
        own: &OwnHealth,
    ) -> Vec<&'r AddressRecord> {
        let is_ill = |record: &AddressRecord| match record.agent_id.as_deref() {
            Some(agent) if agent == own.agent_id => !own.is_well,
            Some(agent) => self.ill.contains(agent),
            None => false,
        };
        match filter {
            1 => found.into_iter().filter(|record| is_ill(record)).collect(),
            3 => found.into_iter().filter(|record| !is_ill(record)).collect(),
            4 => found,
            // A smart answer is never empty because everybody is ill.
            _ if found.iter().all(|record| is_ill(record)) => found,
            _ => found.into_iter().filter(|record| !is_ill(record)).collect(),
        }
    }
}

impl AliasTarget {
    fn filter(&self) -> u64 {
        match self.health_filter.as_deref() {
            Some("unhealthy") => 1,
            Some("healthy") => 3,
            Some("all") => 4,
            _ => 0,
        }
    }
}

fn unique(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

/// Whether a name with `*` in its parts fits another, part by part; the domain has none.
fn matches_parts(pattern: &str, name: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('.'), name.split('.'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if fits(pattern, name) => {}
            _ => return false,
        }
    }
}

/// `*` at the beginning, at the end, or at both.
fn fits(pattern: &str, part: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (None, None) => pattern == part,
        (Some(end), None) => part.ends_with(end),
        (None, Some(start)) => part.starts_with(start),
        (Some(rest), Some(_)) => part.contains(rest.strip_suffix('*').unwrap_or(rest)),
    }
}

fn record(row: &[Value], needed: [Option<usize>; 6], optional: [Option<usize>; 6]) -> Option<AddressRecord> {
    let text = |at: Option<usize>| row.get(at?)?.as_str().map(str::to_owned);
    let [id, group, network, deployment, ip, domain] = needed.map(text);
    let [number, _, az_id, network_id, agent_id, _] = optional.map(text);
    let group_ids = optional[1].and_then(|at| row.get(at)?.as_array());
    Some(AddressRecord {
        id: id?,
        number,
        group: group?,
        group_ids: group_ids.into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect(),
        az_id,
        network: network?,
        network_id,
        deployment: deployment?,
        address: ip?.parse().ok()?,
        domain: domain?.trim_end_matches('.').to_ascii_lowercase(),
        agent_id,
        index: optional[5].and_then(|at| row.get(at)?.as_u64()),
    })
}

impl Records {
    /// The aliases that stand for the same instances in every VM.
    pub(crate) fn plain_aliases(&self) -> impl Iterator<Item = &str> {
        self.aliases.keys().filter(|name| !name.contains(['*', '_'])).map(String::as_str)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Two databases in two zones, the first of which has two networks, and a front end.
    pub(crate) fn example() -> Records {
        example_with(&[])
    }

    /// The same where instances of these agents are ill.
    pub(crate) fn example_with(ill: &[&str]) -> Records {
        let keys = json!([
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
            "instance_index"
        ]);
        let infos = json!([
            ["u1", "11", "db", ["5", "9"], "z1", "1", "a", "2", "shop", "10.0.0.1", "bosh", "agent-1", 0],
            ["u1", "11", "db", ["5", "9"], "z1", "1", "b", "3", "shop", "10.1.0.1", "bosh", "agent-1", 0],
            ["u2", "12", "db", ["5", "9"], "z2", "2", "a", "2", "shop", "10.0.0.2", "bosh", "agent-2", 1],
            ["u3", "13", "web", ["6"], null, null, "a", "2", "shop", "fd00::3", "bosh", null, 0],
            ["too", "short"],
            "no row",
            ["u4", "14", "web", ["6"], null, null, "a", "2", "shop", "nowhere", "bosh", null, 0],
        ]);
        let target = |group: &str, filter: Value, placeholder: Value| {
            json!({"root_domain": "bosh", "group_id": group, "health_filter": filter, "initial_health_check": null,
                "placeholder_type": placeholder})
        };
        let document = json!({
            "version": 3, "unhealthy_agents": ill, "records": [["10.0.0.1", "u1.db.a.shop.bosh"]], "record_keys": keys, "record_infos": infos,
            "aliases": {
                "db.internal": [target("9", json!("all"), json!(null)), {"no": "target"}],
                "broken.internal": "nowhere",
                "everything.internal": [target("9", json!(null), json!(null)), target("6", json!(null), json!(null))],
                "_.db.internal": [target("9", json!(null), json!("uuid"))],
            },
        });
        Records::read(document.to_string().as_bytes()).unwrap()
    }

    fn found(records: &Records, name: &str) -> Vec<String> {
        let own = OwnHealth { agent_id: "agent-9".into(), is_well: true };
        let found = records.resolve(name, &own).unwrap_or_default();
        found.into_iter().map(|address| address.to_string()).collect()
    }

    #[test]
    fn every_form_of_a_name_leads_to_its_instances() {
        let records = example();
        for (name, expected) in [
            ("u1.db.a.shop.bosh", &["10.0.0.1"][..]),
            ("u1.db.b.shop.bosh", &["10.1.0.1"]),
            ("1.db.a.shop.bosh", &["10.0.0.2"]),
            ("q-s0.db.a.shop.bosh", &["10.0.0.1", "10.0.0.2"]),
            ("q-a1s0.db.a.shop.bosh", &["10.0.0.1"]),
            ("q-a1a2s0.db.a.shop.bosh", &["10.0.0.1", "10.0.0.2"]),
            ("q-i1s0.db.a.shop.bosh", &["10.0.0.2"]),
            ("q-a1i1s0.db.a.shop.bosh", &[]),
            ("q-s0.d*.a.*op.bosh", &["10.0.0.1", "10.0.0.2"]),
            ("q-n2s0.q-g5.bosh", &["10.0.0.1", "10.0.0.2"]),
            ("q-n2s0.q-g9.bosh", &["10.0.0.1", "10.0.0.2"]),
            ("q-m11n3s0.q-g5.bosh", &["10.1.0.1"]),
            ("q-s4.q-g6.bosh", &["fd00::3"]),
            ("q-s1.q-g6.bosh", &[]),
            ("agent-2.bosh-agent-id", &["10.0.0.2"]),
            ("db.internal", &["10.0.0.1", "10.1.0.1", "10.0.0.2"]),
            ("everything.internal", &["10.0.0.1", "10.1.0.1", "10.0.0.2", "fd00::3"]),
            ("u2.db.internal", &["10.0.0.2"]),
        ] {
            let mut names = found(&records, name);
            names.sort_by_key(|name| expected.iter().position(|wanted| wanted == name));
            assert_eq!(names, expected, "{name}");
        }
    }

    #[test]
    fn a_name_of_nobody_is_known_to_be_one_and_others_are_left_to_others() {
        let records = example();
        for name in ["u9.db.a.shop.bosh", "q-.db.a.shop.bosh", "bosh-agent-id.bosh", "q-s0.q-gx.bosh", "x.bosh"] {
            assert!(records.is_ours(name) && found(&records, name).is_empty(), "{name}");
        }
        assert!(!records.is_ours("example.com") && !records.is_ours("notbosh") && records.is_ours("db.internal"));
    }

    #[test]
    fn an_instance_that_is_ill_leaves_smart_and_healthy_answers() {
        let records = example();
        let own = OwnHealth { agent_id: "agent-1".into(), is_well: false };
        let of = |name: &str| records.resolve(name, &own).unwrap().len();
        assert_eq!((of("q-s0.db.a.shop.bosh"), of("q-s3.db.a.shop.bosh")), (1, 1));
        assert_eq!((of("q-s1.db.a.shop.bosh"), of("q-s4.db.a.shop.bosh")), (1, 2));
        assert_eq!((of("q-a1s0.db.a.shop.bosh"), of("q-a1s3.db.a.shop.bosh")), (1, 0), "smart is never empty");
    }
    /// Callers would be sent to instances that everybody but them knows to be down.
    #[test]
    fn an_instance_that_the_director_knows_to_be_ill_leaves_the_answers_of_others() {
        let records = example_with(&["agent-2"]);
        assert_eq!(found(&records, "q-s0.db.a.shop.bosh"), ["10.0.0.1"]);
        assert_eq!(found(&records, "q-s3.q-g9.bosh"), ["10.0.0.1", "10.1.0.1"]);
        assert_eq!(found(&records, "q-s1.db.a.shop.bosh"), ["10.0.0.2"]);
        assert_eq!(found(&records, "q-s4.db.a.shop.bosh"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(found(&records, "everything.internal"), ["10.0.0.1", "10.1.0.1", "fd00::3"]);
        // The name of one instance gives that instance.
        assert_eq!(found(&records, "u2.db.a.shop.bosh"), ["10.0.0.2"]);
        assert_eq!(found(&records, "q-m12s0.q-g5.bosh"), ["10.0.0.2"]);
        // What this machine sees of itself is newer.
        let own = OwnHealth { agent_id: "agent-2".into(), is_well: true };
        assert_eq!(records.resolve("q-s0.db.a.shop.bosh", &own).unwrap().len(), 2);
        let all = example_with(&["agent-1", "agent-2"]);
        assert_eq!(found(&all, "q-s0.db.a.shop.bosh").len(), 2);
        assert!(found(&all, "q-s3.db.a.shop.bosh").is_empty());
    }
}
