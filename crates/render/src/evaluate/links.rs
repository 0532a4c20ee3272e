//! Links and their instances.

use std::rc::Rc;

use super::blocks::Arguments;
use super::scope::Closure;
use super::{Answer, Evaluator};
use crate::memory::Map;
use crate::value::{ElseBlock, GroupQuery, Instance, Key, Link, LinkAddress, Value};

impl Evaluator<'_> {
    pub(super) fn link(&mut self, name: &Value) -> Answer {
        match self.found_link(name)? {
            Some(link) => Ok(link),
            None => {
                let name = self.display(name)?;
                self.will_write(name.len())?;
                self.raise("UnknownLink", format!("Can't find link '{name}'"))
            }
        }
    }

    pub(super) fn if_link(&mut self, name: &Value, block: Option<&Rc<Closure>>) -> Answer {
        let Some(link) = self.found_link(name)? else { return self.keep(ElseBlock::Active).map(Value::Else) };
        let Some(block) = block else { return self.refuse("'if_link' without a block") };
        self.invoke(block, vec![link])?;
        self.keep(ElseBlock::Inactive).map(Value::Else)
    }

    fn found_link(&mut self, name: &Value) -> Answer<Option<Value>> {
        let links = self.binding.links.clone();
        let content = match self.lookup(&links, name)? {
            Value::Nil => return Ok(None),
            Value::Hash(content) => content,
            other => return self.refuse(format!("a link of class {}", other.class_name())),
        };
        let instances = match content.named("instances") {
            None => return Ok(None),
            Some(Value::Array(instances)) => instances.items(),
            Some(other) => return self.refuse(format!("instances of class {}", other.class_name())),
        };
        let mut members = self.places(instances.len())?;
        for instance in instances.iter() {
            let Value::Hash(instance) = instance else { return self.refuse("this link") };
            let member = |name: &'static str| (name, entry(instance, name));
            let names = ["name", "index", "id", "az", "address", "properties", "bootstrap"];
            members.push(Value::Instance(self.keep(Instance { members: names.map(member) })?));
        }
        let instances = self.list(members)?;
        let link = Link { instances, properties: entry(&content, "properties"), address: address(&content) };
        Ok(Some(Value::Link(self.keep(link)?)))
    }

    pub(super) fn link_method(
        &mut self,
        link: &Link,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer {
        match (name, arguments.values.as_slice()) {
            ("instances", []) => Ok(link.instances.clone()),
            ("properties", []) => Ok(link.properties.clone()),
            ("p", values) => self.property(Some(&link.properties), values),
            ("if_p", names) => {
                self.if_properties(Some(&link.properties), names, block, ElseBlock::ActiveOf(link.properties.clone()))
            }
            ("address", criteria) => self.address(&link.address, criteria),
            ("nil?", []) => Ok(Value::Bool(false)),
            _ => self.refuse(format!("'{name}' of a link")),
        }
    }

    fn address(&mut self, address: &LinkAddress, criteria: &[Value]) -> Answer {
        match (address, criteria) {
            (LinkAddress::Given(value), []) | (LinkAddress::Given(value), [Value::Hash(_)]) => Ok(value.clone()),
            (LinkAddress::Group(group), []) => self.query(group, &[], 0),
            (LinkAddress::Group(group), [Value::Hash(criteria)]) => {
                let entries = criteria.entries();
                let known = |key: &Key| matches!(key, Key::Symbol(name) if ["status", "azs"].contains(&&**name));
                if !entries.keys().all(known) {
                    return self.refuse("a link's address by something else than zones and status");
                }
                let status = match criteria.member("status").as_ref().map(Value::as_text) {
                    None => 0,
                    Some(Some(status)) => match &*status {
                        "default" => 0,
                        "unhealthy" => 1,
                        "healthy" => 3,
                        "all" => 4,
                        _ => return self.refuse(format!("a link's address with status '{status}'")),
                    },
                    Some(None) => return self.refuse("a link's address with this status"),
                };
                let azs = match criteria.member("azs") {
                    None | Some(Value::Nil) => Rc::default(),
                    Some(Value::Array(azs)) => azs.items(),
                    Some(other) => return self.refuse(format!("zones of class {}", other.class_name())),
                };
                self.query(group, &azs, status)
            }
            _ => self.refuse("a link's address by numbers"),
        }
    }

    fn query(&mut self, group: &GroupQuery, azs: &[Value], status: u8) -> Answer {
        let mut parts = vec![format!("s{status}")];
        parts.extend(group.network.iter().map(|network| format!("n{network}")));
        self.take(azs.len() * 64)?;
        for az in azs {
            let (Some(Value::Hash(numbers)), Some(az)) = (&group.azs, az.as_text()) else {
                return self.refuse("a link's address in some zones only");
            };
            match number(&entry(numbers, &az)) {
                Some(number) => parts.push(format!("a{number}")),
                None => {
                    self.will_write(az.len())?;
                    return self.raise("RuntimeError", format!("Unknown AZ: '{az}'"));
                }
            }
        }
        parts.sort();
        self.text(format!("q-{}.{}", parts.concat(), group.group))
    }

    pub(super) fn instance_method(
        &mut self,
        instance: &Instance,
        name: &str,
        arguments: &Arguments,
        block: Option<&Rc<Closure>>,
    ) -> Answer {
        let member = |name: &str| instance.members.iter().find(|member| member.0 == name).map(|found| found.1.clone());
        let properties = member("properties").unwrap_or(Value::Nil);
        match (name, arguments.values.as_slice()) {
            ("p", values) => self.property(Some(&properties), values),
            ("if_p", names) => {
                self.if_properties(Some(&properties), names, block, ElseBlock::ActiveOf(properties.clone()))
            }
            ("nil?", []) => Ok(Value::Bool(false)),
            (name, []) => match member(name) {
                Some(value) => Ok(value),
                None => self.refuse(format!("'{name}' of a link's instance")),
            },
            _ => self.refuse(format!("'{name}' of a link's instance")),
        }
    }
}

fn entry(map: &Map, name: &str) -> Value {
    map.named(name).unwrap_or(Value::Nil)
}

fn address(content: &Map) -> LinkAddress {
    if content.named("address").is_some() {
        return LinkAddress::Given(entry(content, "address"));
    }
    let is_set = |name| entry(content, name).is_true();
    let part = |name| entry(content, name).as_text();
    let numbers = match entry(content, "dns_numbers") {
        Value::Hash(numbers) => Some(numbers),
        _ => None,
    };
    let azs = numbers.as_ref().map(|numbers| entry(numbers, "azs"));
    let names = (part("instance_group"), part("default_network"), part("deployment_name"), part("domain"));
    let (Some(group), Some(network), Some(deployment), Some(domain)) = names else { return LinkAddress::Numbered };
    if !is_set("use_link_dns_names") && !is_set("use_short_dns_addresses") {
        let parts = [canonical(&group), canonical(&network), canonical(&deployment)];
        return LinkAddress::Group(GroupQuery { group: format!("{}.{domain}", parts.join(".")), network: None, azs });
    }
    let Some(numbers) = numbers else { return LinkAddress::Numbered };
    let of_network = match entry(&numbers, "networks") {
        Value::Hash(networks) => number(&entry(&networks, &network)),
        _ => None,
    };
    match (number(&entry(&numbers, "group")), of_network) {
        (Some(group), Some(network)) => {
            let network = Some(network.to_string());
            LinkAddress::Group(GroupQuery { group: format!("q-g{group}.{domain}"), network, azs })
        }
        _ => LinkAddress::Numbered,
    }
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// A name as it is written in DNS.
fn canonical(name: &str) -> String {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    lower.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
}
