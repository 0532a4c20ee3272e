//! What the jobs of a deployment get of their links, once every instance has its addresses.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use windlass_contract::Networks;
use windlass_contract::network::NetworkKind;

use crate::desired::{Desired, DesiredGroup};
use crate::dns::{DOMAIN, DnsNumbers, GroupKind, instance_name, short_instance_name};
use crate::links::{DNS_NUMBERS, LinkProvider, LinkSource, PlannedLink, PlannedLinks, ProviderKind, is_same_content};
use crate::names::InstanceId;
use crate::software::{ProvidedLink, Software};
use crate::weight::{self, Room};

/// An instance, as those see it who consume links of its jobs.
#[derive(Debug)]
pub(super) struct LinkedInstance<'a> {
    pub(super) id: &'a InstanceId,
    pub(super) index: i64,
    pub(super) bootstrap: bool,
    pub(super) az: Option<&'a str>,
    pub(super) networks: &'a Networks,
}

/// All links with their contents. `instances` has those of each group in the order of their update.
pub(super) fn contents(
    desired: &Desired,
    numbers: &DnsNumbers,
    instances: &BTreeMap<&str, Vec<LinkedInstance<'_>>>,
    room: &mut Room,
) -> (PlannedLinks, Vec<String>) {
    let mut problems = Vec::new();
    let is_used = |position: usize| {
        let is_it = |source: &Option<LinkSource>| matches!(source, Some(LinkSource::Own(own)) if *own == position);
        desired.links.links.iter().any(|link| is_it(&link.source))
    };
    let mut providers = desired.links.providers.clone();
    for (position, provider) in providers.iter_mut().enumerate() {
        let group = desired.groups.iter().find(|group| group.name == provider.group);
        if let (ProviderKind::Job, Some(group)) = (provider.kind, group) {
            let properties = provider.content.take();
            if provider.shared || is_used(position) {
                let instances = instances.get(group.name.as_str()).map_or(&[][..], Vec::as_slice);
                provider.content = content(desired, group, (properties, &provider.group_name()), numbers, instances);
                // Each has all instances of its group, and a group may have thousands of both.
                if let Err(message) = room.take(weight::of(&provider.content)) {
                    return (PlannedLinks::default(), vec![message]);
                }
            }
        }
    }
    let mut links = Vec::new();
    // Templates see them with each link of another deployment.
    let of_azs: usize = azs(desired, numbers).keys().map(|az| 128 + az.len()).sum();
    for link in &desired.links.links {
        let provider = provider_of(&providers, link.source.as_ref());
        // Each consumer has a copy of all instances of its provider.
        let of_azs = if matches!(link.source, Some(LinkSource::Shared(_))) { of_azs } else { 0 };
        if let Err(message) = room.take(provider.map_or(0, |provider| of_azs + weight::of(&provider.content))) {
            problems.push(message);
            break;
        }
        let content = provider
            .map_or(Ok(Value::Null), |provider| provider.content_for(link.network.as_deref(), link.ip_addresses));
        match content {
            Ok(content) => {
                links.push(PlannedLink { consumer: link.consumer.clone(), source: link.source.clone(), content });
            }
            Err(message) => problems.push(format!(
                "link '{}' of job '{}' in instance group '{}': {message}",
                link.consumer.original_name, link.consumer.job, link.consumer.group
            )),
        }
    }
    let taken_over = |group: &DesiredGroup| {
        let new = group.name.clone();
        group.migrated_from.iter().map(move |(old, _)| (old.clone(), new.clone())).collect::<Vec<_>>()
    };
    (PlannedLinks { providers, links, renamed: desired.groups.iter().flat_map(taken_over).collect() }, problems)
}

/// A group's software with its links. What templates saw already is kept where it is the same in another order. `numbers` has
/// those of groups in DNS.
pub(super) fn linked(
    software: &Software,
    group: &str,
    links: &PlannedLinks,
    (desired, numbers): (&Desired, &DnsNumbers),
    before: Option<&Software>,
) -> Software {
    let mut software = software.clone();
    for job in &mut software.jobs {
        let own = links.providers.iter().filter(|provider| provider.group == group && provider.owner == job.name);
        job.provides = own.map(|provider| provided(provider, numbers)).collect();
        let before = before.and_then(|before| before.jobs.iter().find(|known| known.name == job.name));
        for link in links.links.iter().filter(|link| link.consumer.group == group && link.consumer.job == job.name) {
            let Some(provider) = provider_of(&links.providers, link.source.as_ref()) else { continue };
            let name = &link.consumer.original_name;
            let mut seen = provider.for_templates(&link.content);
            if let Some(known) = seen.pointer_mut(&format!("/{DNS_NUMBERS}/azs")).and_then(Value::as_object_mut) {
                // A template may ask for the instances in its own zone, which those of another deployment need not be in.
                known.extend(azs(desired, numbers).into_iter().map(|(az, number)| (az.to_owned(), number.into())));
                known.sort_keys();
            }
            let known = before.and_then(|before| before.links.get(name)).filter(|known| is_same_content(known, &seen));
            job.links.insert(name.clone(), known.cloned().unwrap_or(seen));
        }
    }
    software
}

/// A group's software with the links that it had.
pub(super) fn kept(software: &Software, before: Option<&Software>) -> Software {
    let mut software = software.clone();
    for job in &mut software.jobs {
        let known = before.and_then(|before| before.jobs.iter().find(|known| known.name == job.name));
        job.links = known.map(|known| known.links.clone()).unwrap_or_default();
        job.provides = known.map(|known| known.provides.clone()).unwrap_or_default();
    }
    software
}

fn provided(provider: &LinkProvider, numbers: &DnsNumbers) -> ProvidedLink {
    ProvidedLink {
        name: provider.name.clone(),
        link_type: provider.link_type.clone(),
        group: numbers.group(&provider.deployment, GroupKind::Link, &provider.group_name()),
    }
}

fn provider_of<'p>(providers: &'p [LinkProvider], source: Option<&'p LinkSource>) -> Option<&'p LinkProvider> {
    match source? {
        LinkSource::Own(position) => providers.get(*position),
        LinkSource::Shared(provider) => Some(provider),
    }
}

/// The numbers of the zones that a deployment is in. Those of others would change what its jobs are rendered with.
fn azs<'d>(desired: &'d Desired, numbers: &DnsNumbers) -> BTreeMap<&'d str, i64> {
    let named = desired.groups.iter().flat_map(|group| &group.zones).filter_map(|zone| zone.az.as_deref());
    named.filter_map(|az| Some((az, *numbers.azs.get(az)?))).collect()
}

/// The name of one instance in a network: by the link that it provides, where consumers call it so.
pub(super) fn name_of(
    desired: &Desired,
    group: &DesiredGroup,
    numbers: &DnsNumbers,
    id: &InstanceId,
    network: &str,
    link: Option<&str>,
) -> String {
    if !desired.names.short {
        return instance_name(id, &group.name, network, &desired.deployment);
    }
    let network = numbers.networks.get(network).copied().unwrap_or_default();
    short_instance_name(id, network, group_number(desired, group, numbers, link))
}

fn group_number(desired: &Desired, group: &DesiredGroup, numbers: &DnsNumbers, link: Option<&str>) -> i64 {
    match link.filter(|_| desired.names.links) {
        Some(link) => numbers.group(&desired.deployment, GroupKind::Link, link),
        None => numbers.group(&desired.deployment, GroupKind::InstanceGroup, &group.name),
    }
}

fn content(
    desired: &Desired,
    group: &DesiredGroup,
    (properties, link): (Value, &str),
    numbers: &DnsNumbers,
    instances: &[LinkedInstance<'_>],
) -> Value {
    let default = group.default_network();
    let names = desired.names;
    let networks: Vec<_> = group.networks.iter().map(|network| network.definition.name.as_str()).collect();
    let named = |network: &&str, id: &InstanceId| name_of(desired, group, numbers, id, network, Some(link));
    let instances: Vec<_> = instances
        .iter()
        .map(|instance| instance_content(desired, group, instance, &|id, network| named(&network, id)))
        .collect();
    let mut content = json!({
        "deployment_name": desired.deployment,
        "domain": DOMAIN,
        "default_network": default,
        "networks": networks,
        "instance_group": group.name,
        "properties": properties,
        "use_short_dns_addresses": names.short,
        "use_dns_addresses": names.dns_addresses,
        "use_link_dns_names": names.links,
        "instances": instances,
    });
    if names.served {
        // Templates ask for the instances of some zones, or by numbers.
        let of_networks = numbers.networks.iter().filter(|(name, _)| networks.contains(&name.as_str()));
        content[DNS_NUMBERS] = json!({
            "group": group_number(desired, group, numbers, Some(link)),
            "networks": of_networks.collect::<BTreeMap<_, _>>(),
            "azs": azs(desired, numbers),
        });
    }
    content
}

fn instance_content(
    desired: &Desired,
    group: &DesiredGroup,
    instance: &LinkedInstance<'_>,
    name: &dyn Fn(&InstanceId, &str) -> String,
) -> Value {
    let (mut addresses, mut names) = (Map::new(), Map::new());
    for (network, settings) in instance.networks {
        // Nobody knows before which address a cloud will choose, so such an instance is called by its name.
        let address = settings.ip.clone().filter(|_| settings.kind != NetworkKind::Dynamic);
        let name = name(instance.id, network);
        let address = address.unwrap_or_else(|| name.clone());
        names.insert(network.clone(), if desired.names.served { name.into() } else { address.clone().into() });
        addresses.insert(network.clone(), address.into());
    }
    let by_default = if desired.names.dns_addresses { &names } else { &addresses };
    let address = group.default_network().and_then(|network| by_default.get(network)).cloned();
    json!({
        "name": group.name,
        "id": instance.id,
        "index": instance.index,
        "bootstrap": instance.bootstrap,
        "az": instance.az,
        "address": address,
        "addresses": addresses,
        "dns_addresses": names,
    })
}
