//! Links: what jobs and disks of a deployment provide, who gets it, and what that is.
//!
//! A provider's content has every address of its instances; a link's content is made from it for one consumer; templates see part of
//! that. What a job was rendered with stays in the [`Software`](crate::software::Software) of its instances.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A link that a deployment provides.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkProvider {
    /// 0 before it is on record.
    pub id: i64,
    pub deployment: String,
    pub group: String,
    /// The job; the group where a disk is the provider.
    pub owner: String,
    pub kind: ProviderKind,
    /// Its name in the release.
    pub original_name: String,
    pub link_type: String,
    /// Its name in the manifest.
    pub name: String,
    /// Whether other deployments may consume it.
    pub shared: bool,
    pub consumable: bool,
    /// Of a job only the properties, until its instances are planned.
    pub content: Value,
    /// Other names for the instances that provide it.
    pub aliases: Vec<LinkAlias>,
}

/// Another name, in DNS, for the instances that provide a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAlias {
    pub domain: String,
    /// `smart`, `healthy`, `unhealthy` or `all`.
    #[serde(default)]
    pub health_filter: Option<String>,
    /// `asynchronous` or `synchronous`.
    #[serde(default)]
    pub initial_health_check: Option<String>,
    /// What `_` in the domain stands for.
    #[serde(default)]
    pub placeholder_type: Option<String>,
}

/// What provides a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    Job,
    /// The manifest says what the link has.
    Manual,
    Disk,
}

impl ProviderKind {
    const WORDS: [(Self, &'static str); 3] = [(Self::Job, "job"), (Self::Manual, "manual"), (Self::Disk, "disk")];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.into_iter().find(|(kind, _)| *kind == self).map_or("job", |(_, word)| word)
    }

    /// By the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(kind, _)| kind)
    }
}

/// A link that a job of a group consumes.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConsumer {
    pub group: String,
    pub job: String,
    /// Its name in the release, which templates use.
    pub original_name: String,
    pub link_type: String,
    /// The provider's name for it, as the manifest says.
    pub name: String,
    pub optional: bool,
    /// Whether the manifest says that there is none.
    pub blocked: bool,
}

/// Where a link comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkSource {
    /// One of the deployment's own providers, by its position.
    Own(usize),
    /// A provider of another deployment, whose content may be large, for each of thousands of consumers.
    Shared(Arc<LinkProvider>),
}

/// What a deploy notes about links.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlannedLinks {
    pub providers: Vec<LinkProvider>,
    pub links: Vec<PlannedLink>,
    /// Groups that took over others: old name, new name.
    pub renamed: Vec<(String, String)>,
}

/// A consumer, and what it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedLink {
    pub consumer: LinkConsumer,
    /// None if nobody provides it.
    pub source: Option<LinkSource>,
    pub content: Value,
}

impl LinkProvider {
    /// What distinguishes its instances from those of others in DNS.
    pub fn group_name(&self) -> String {
        format!("{}-{}", self.name, self.link_type)
    }

    /// Networks that its instances are in.
    pub fn networks(&self) -> impl Iterator<Item = &str> {
        self.content.get("networks").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// What a consumer gets: each instance has one address, that in the network that the consumer names or else in the default one.
    pub fn content_for(&self, network: Option<&str>, ip_addresses: Option<bool>) -> Result<Value, String> {
        let mut content = self.content.clone();
        if self.kind != ProviderKind::Job {
            let message = "Unable to retrieve default network from provider. Please redeploy provider deployment";
            let wants_addresses = self.kind == ProviderKind::Disk && ip_addresses.is_some();
            return if wants_addresses { Err(message.to_owned()) } else { Ok(content) };
        }
        let default = content.get("default_network").and_then(Value::as_str);
        let network = network.or(default).unwrap_or_default().to_owned();
        let uses_dns = content.get("use_dns_addresses") == Some(&Value::Bool(true));
        let key = if ip_addresses.map_or(uses_dns, |wanted| !wanted) { "dns_addresses" } else { "addresses" };
        content["default_network"] = network.as_str().into();
        for instance in content.get_mut("instances").and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(instance) = instance.as_object_mut() else { continue };
            let address = instance.get(key).and_then(|addresses| addresses.get(&network)).cloned();
            let address = address.ok_or_else(|| format!("Provider link does not have network: '{network}'"))?;
            instance.insert("address".to_owned(), address);
            instance.shift_remove("addresses");
            instance.shift_remove("dns_addresses");
        }
        Ok(content)
    }

    /// What templates see of a link's content.
    pub fn for_templates(&self, content: &Value) -> Value {
        let mut seen: Map<String, Value> = Map::new();
        for key in SEEN {
            // A link without instances is one that templates do not find.
            let value = content.get(key).filter(|value| key != "instances" || !value.is_null());
            seen.extend(value.map(|value| (key.to_owned(), value.clone())));
        }
        seen.insert("group_name".to_owned(), self.group_name().into());
        seen.into()
    }
}

/// The numbers of a provider's group, networks and zones in DNS, where names are served.
pub const DNS_NUMBERS: &str = "dns_numbers";

const SEEN: [&str; 10] = [
    "address",
    "default_network",
    "deployment_name",
    DNS_NUMBERS,
    "domain",
    "instance_group",
    "instances",
    "properties",
    "use_link_dns_names",
    "use_short_dns_addresses",
];

/// The link that a named disk of a deployment provides.
pub fn disk_content(deployment: &str, disk: &str) -> Value {
    json!({"deployment_name": deployment, "properties": {"name": disk}, "networks": [], "instances": []})
}

/// Whether a consumer need not be told: instances and networks in another order are the same.
pub fn is_same_content(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let in_order = |value: &Value| {
        let mut elements: Vec<String> = value.as_array().into_iter().flatten().map(Value::to_string).collect();
        elements.sort();
        elements
    };
    one.len() == other.len()
        && one.iter().all(|(key, value)| {
            other.get(key).is_some_and(|found| match key.as_str() {
                "instances" | "networks" => in_order(value) == in_order(found),
                _ => value == found,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provider() -> LinkProvider {
        let content = json!({
            "deployment_name": "d", "domain": "bosh", "default_network": "a", "networks": ["a", "b"], "instance_group": "db",
            "properties": {"port": 5432}, "use_short_dns_addresses": false, "use_dns_addresses": false, "use_link_dns_names": false,
            "instances": [{"name": "db", "id": "one", "index": 0, "bootstrap": true, "az": "z1", "address": "10.0.0.5",
                "addresses": {"a": "10.0.0.5", "b": "10.1.0.5"}, "dns_addresses": {"a": "one.db.a.d.bosh"}}]
        });
        LinkProvider {
            id: 0,
            deployment: "d".into(),
            group: "db".into(),
            owner: "pg".into(),
            kind: ProviderKind::Job,
            original_name: "db".into(),
            link_type: "sql".into(),
            name: "main".into(),
            shared: false,
            consumable: true,
            content,
            aliases: Vec::new(),
        }
    }

    fn address(content: &Value) -> &Value {
        assert!(content["instances"][0].get("addresses").is_none(), "{content}");
        &content["instances"][0]["address"]
    }

    #[test]
    fn a_consumer_gets_the_address_in_its_network_and_of_the_kind_that_it_wants() {
        let provider = provider();
        let default = provider.content_for(None, None).unwrap();
        assert_eq!((address(&default), &default["default_network"]), (&json!("10.0.0.5"), &json!("a")));
        let other = provider.content_for(Some("b"), Some(true)).unwrap();
        assert_eq!((address(&other), &other["default_network"]), (&json!("10.1.0.5"), &json!("b")));
        assert_eq!(address(&provider.content_for(None, Some(false)).unwrap()), "one.db.a.d.bosh");
        let missing = provider.content_for(Some("c"), None).unwrap_err();
        assert_eq!(missing, "Provider link does not have network: 'c'");
    }

    #[test]
    fn templates_see_neither_networks_nor_what_chose_the_address() {
        let provider = provider();
        let seen = provider.for_templates(&provider.content_for(None, None).unwrap());
        let keys: Vec<_> = seen.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "default_network",
                "deployment_name",
                "domain",
                "instance_group",
                "instances",
                "properties",
                "use_link_dns_names",
                "use_short_dns_addresses",
                "group_name"
            ]
        );
        assert_eq!(seen["group_name"], "main-sql");
    }

    #[test]
    fn another_order_of_instances_is_the_same_content() {
        let content = |ids: [&str; 2], port: u16| json!({"instances": [{"id": ids[0]}, {"id": ids[1]}], "properties": {"port": port}});
        assert!(is_same_content(&content(["a", "b"], 1), &content(["b", "a"], 1)));
        assert!(!is_same_content(&content(["a", "b"], 1), &content(["b", "a"], 2)));
        assert!(!is_same_content(&content(["a", "b"], 1), &content(["a", "c"], 1)));
    }
}
