//! What a manifest says of a job's links.

use serde_json::Value;
use windlass_contract::Object;

use super::super::fields::Fields;
use super::super::findings::{Findings, Place, Placed};
use crate::links::LinkAlias;

/// What a manifest says of the links of one job, as it stands there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobLinks {
    /// By the name in the release.
    pub provides: Vec<(String, Placed<Value>)>,
    /// By the name in the release.
    pub consumes: Vec<(String, Placed<Value>)>,
    /// Providers that the release does not have.
    pub custom: Vec<Placed<Value>>,
}

impl JobLinks {
    pub(in crate::desired) fn read(fields: &mut Fields<'_, '_>) -> Self {
        let mut entries = |key: &str| {
            let Some(at) = fields.optional(key) else { return Vec::new() };
            let entries = fields.check(at.entries()).unwrap_or_default();
            entries.into_iter().map(|(name, at)| (name.to_owned(), placed(&at))).collect()
        };
        let (provides, consumes) = (entries("provides"), entries("consumes"));
        let custom = fields.list("custom_provider_definitions").iter().map(placed).collect();
        Self { provides, consumes, custom }
    }
}

fn placed(at: &windlass_manifest::At<'_>) -> Placed<Value> {
    Placed { value: at.node().to_json(), place: Place::of(at) }
}

/// What messages call a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) link: &'a str,
    pub(super) job: &'a str,
    pub(super) group: &'a str,
}

impl Words<'_> {
    fn place(&self) -> String {
        format!("job '{}' in instance group '{}'", self.job, self.group)
    }

    /// The object of a setting; none with what is wrong.
    fn object<'v>(&self, what: &str, given: &'v Placed<Value>, findings: &mut Findings) -> Option<&'v Object> {
        let object = given.value.as_object();
        let Some(object) = object else {
            findings.push(given.problem(format!(
                "{what} '{}' in {} specified in the manifest should only be a hash or string 'nil'",
                self.link,
                self.place()
            )));
            return None;
        };
        if object.contains_key("name") || object.contains_key("type") {
            findings.push(given.problem(format!(
                "Cannot specify 'name' or 'type' properties in the manifest for link '{}' in {}. \
                 Please provide these keys in the release only.",
                self.link,
                self.place()
            )));
        }
        Some(object)
    }

    /// Other names in DNS. Whatever has no domain is told, and left out.
    fn aliases(&self, object: &Object, given: &Placed<Value>, findings: &mut Findings) -> Vec<LinkAlias> {
        let Some(listed) = object.get("aliases").filter(|listed| !listed.is_null()) else { return Vec::new() };
        let mut aliases: Vec<LinkAlias> = Vec::new();
        for entry in listed.as_array().map_or(std::slice::from_ref(listed), Vec::as_slice) {
            match serde_json::from_value::<LinkAlias>(entry.clone()) {
                Ok(alias) if is_domain(&alias.domain) => aliases.push(alias),
                _ => findings.push(given.problem(format!(
                    "each alias of link '{}' in {} needs a 'domain', such as {{domain: db.internal, health_filter: smart}}",
                    self.link,
                    self.place()
                ))),
            }
        }
        aliases
    }
}

/// What a DNS server can be asked for; `_` and `*` stand for instances.
fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_' | b'*'))
    };
    domain.len() <= 253 && domain.split('.').all(is_label)
}

fn is_nil(value: &Value) -> bool {
    value.as_str() == Some("nil")
}

/// How a job provides a link.
#[derive(Debug)]
pub(super) struct Provided {
    pub(super) name: String,
    pub(super) shared: bool,
    pub(super) consumable: bool,
    pub(super) aliases: Vec<LinkAlias>,
}

impl Provided {
    pub(super) fn read(
        words: &Words<'_>,
        setting: Option<&(String, Placed<Value>)>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let name = words.link.to_owned();
        let Some((_, given)) = setting else {
            return Some(Self { name, shared: false, consumable: true, aliases: Vec::new() });
        };
        if is_nil(&given.value) {
            return Some(Self { name, shared: false, consumable: false, aliases: Vec::new() });
        }
        let problems = findings.problems().len();
        let object = words.object("Provider", given, findings)?;
        if findings.problems().len() > problems {
            return None;
        }
        let aliases = words.aliases(object, given, findings);
        let name = object.get("as").and_then(Value::as_str).map_or(name, str::to_owned);
        Some(Self { name, shared: object.get("shared") == Some(&Value::Bool(true)), consumable: true, aliases })
    }
}

/// How a job consumes a link.
#[derive(Debug, Default)]
pub(super) struct Consumed {
    pub(super) from: Option<String>,
    pub(super) deployment: Option<String>,
    pub(super) network: Option<String>,
    pub(super) ip_addresses: Option<bool>,
    pub(super) blocked: bool,
    /// What the link has, where the manifest says it.
    pub(super) manual: Option<Object>,
}

const MANUAL: [&str; 3] = ["instances", "properties", "address"];

impl Consumed {
    pub(super) fn read(
        words: &Words<'_>,
        setting: Option<&(String, Placed<Value>)>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let Some((_, given)) = setting else { return Some(Self::default()) };
        if is_nil(&given.value) {
            return Some(Self { blocked: true, ..Self::default() });
        }
        let problems = findings.problems().len();
        let object = words.object("Consumer", given, findings)?;
        let has = |key: &str| object.contains_key(key);
        let of = format!("link '{}' in {}.", words.link, words.place());
        for key in ["instances", "properties"] {
            if has(key) && has("from") {
                findings.push(given.problem(format!("Cannot specify both '{key}' and 'from' keys for {of}")));
            }
        }
        if has("properties") && !has("instances") {
            findings.push(given.problem(format!("Cannot specify 'properties' without 'instances' for {of}")));
        }
        if object.get("ip_addresses").is_some_and(|value| !value.is_boolean()) {
            findings
                .push(given.problem(format!("Cannot specify non boolean values for 'ip_addresses' field for {of}")));
        }
        if findings.problems().len() > problems {
            return None;
        }
        if MANUAL.iter().any(|key| has(key)) {
            let content = MANUAL.map(|key| (key.to_owned(), object.get(key).cloned().unwrap_or(Value::Null)));
            return Some(Self { manual: Some(content.into_iter().collect()), ..Self::default() });
        }
        let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            from: text("from"),
            deployment: text("deployment"),
            network: text("network"),
            ip_addresses: object.get("ip_addresses").and_then(Value::as_bool),
            blocked: false,
            manual: None,
        })
    }
}
