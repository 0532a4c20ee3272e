//! What templates see: the `spec`, properties and links of one job on one instance.

use serde_json::{Value, json};
use windlass_contract::network::NetworkKind;
use windlass_contract::{MiB, Network, Networks};

use crate::desired::canonical;
use crate::dns::DOMAIN;
use crate::software::{JobOfGroup, Software, TemplateInstance};

/// What a dynamic network shows before its VM is there.
const UNKNOWN: &str = "127.0.0.1";

/// What the templates of one job see on an instance.
pub fn of(software: &Software, job: &JobOfGroup, instance: &TemplateInstance<'_>) -> Value {
    let ip = address(instance.networks);
    json!({
        "deployment": instance.deployment,
        "name": instance.group,
        "index": instance.index,
        "id": instance.id,
        "az": instance.az,
        "bootstrap": instance.bootstrap,
        "job": jobs(software, instance.group),
        "networks": networks(instance),
        "ip": ip,
        "address": instance.dns_address.map(str::to_owned).or(ip.clone()),
        "persistent_disk": instance.persistent_disk.unwrap_or(MiB(0)),
        "dns_domain_name": DOMAIN,
        "properties": job.properties,
        "links": job.links,
        "release": {"name": job.release, "version": job.release_version},
    })
}

/// The group's jobs, as agents and templates know them.
pub fn jobs(software: &Software, group: &str) -> Value {
    let templates: Vec<_> = software.jobs.iter().map(|job| json!({"name": job.name, "version": job.version})).collect();
    let first = software.jobs.first();
    json!({
        "name": group,
        "templates": templates,
        "template": first.map_or("", |job| &job.name),
        "version": first.map_or("", |job| &job.version),
    })
}

/// The address that others reach the instance at.
fn address(networks: &Networks) -> Option<String> {
    let is_default = |network: &Network, purpose: &str| network.default.iter().flatten().any(|known| known == purpose);
    let by = |purpose: &str| networks.values().find(|network| is_default(network, purpose));
    let network = by("addressable").or_else(|| by("gateway")).or_else(|| networks.values().next())?;
    Some(network.ip.clone().unwrap_or_else(|| UNKNOWN.to_owned()))
}

fn networks(instance: &TemplateInstance<'_>) -> Value {
    let mut shown = serde_json::Map::new();
    for (name, network) in instance.networks {
        let mut seen = json!(network);
        if network.kind == NetworkKind::Dynamic {
            for (key, known) in [("ip", &network.ip), ("netmask", &network.netmask), ("gateway", &network.gateway)] {
                if known.is_none() {
                    seen[key] = UNKNOWN.into();
                }
            }
        }
        let (group, deployment) = (canonical(instance.group), canonical(instance.deployment));
        seen["dns_record_name"] =
            format!("{}.{group}.{}.{deployment}.{DOMAIN}", instance.index, canonical(name)).into();
        shown.insert(name.clone(), seen);
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(networks: Value) -> Value {
        let networks: Networks = serde_json::from_value(networks).unwrap();
        let job = JobOfGroup {
            name: "app".into(),
            release: "web".into(),
            release_version: "1".into(),
            version: "fp".into(),
            properties: json!({"port": 80}),
            links: Default::default(),
            provides: Vec::new(),
        };
        let software = Software { jobs: vec![job.clone()], packages: Vec::new() };
        let instance = TemplateInstance {
            deployment: "My_Shop",
            group: "web",
            index: 2,
            id: &"uuid".into(),
            az: Some("z1"),
            bootstrap: true,
            networks: &networks,
            persistent_disk: Some(MiB(64)),
            variables: None,
            dns_address: None,
        };
        of(&software, &job, &instance)
    }

    #[test]
    fn an_instance_has_the_address_of_its_default_network_and_names_of_its_own() {
        let spec = seen(json!({
            "a": {"type": "manual", "ip": "127.1.0.1", "default": ["gateway", "dns"]},
            "b": {"type": "manual", "ip": "127.2.0.1", "default": ["addressable"]}
        }));
        assert_eq!(spec["ip"], "127.2.0.1");
        assert_eq!(spec["networks"]["a"]["dns_record_name"], "2.web.a.my-shop.bosh");
        assert_eq!(spec["job"]["name"], "web");
        assert_eq!(spec["release"], json!({"name": "web", "version": "1"}));
    }

    #[test]
    fn a_dynamic_network_shows_a_placeholder_until_its_vm_is_there() {
        let spec = seen(json!({"a": {"type": "dynamic"}}));
        assert_eq!(spec["ip"], "127.0.0.1");
        assert_eq!(spec["networks"]["a"]["gateway"], "127.0.0.1");
    }
}
