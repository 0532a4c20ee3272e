//! One provider for each consumer, or why there is none.

use std::collections::BTreeSet;

use super::{DesiredLinks, LinkReader, WantedLink};
use crate::desired::resolve::DesiredGroup;
use crate::desired::{Findings, NetworkPlacement};
use crate::links::{LinkConsumer, LinkProvider, LinkSource, ProviderKind};

impl LinkReader<'_> {
    /// Finds the provider of each link. `groups` tell the networks of the deployment's own providers.
    pub(in crate::desired) fn resolve(self, groups: &[DesiredGroup], findings: &mut Findings) -> DesiredLinks {
        if self.others.is_none() {
            return DesiredLinks { are_kept: true, ..DesiredLinks::default() };
        }
        let mut links = Vec::new();
        let mut lacking = BTreeSet::new();
        for wanted in &self.wanted {
            findings.begin(wanted.document.clone());
            match self.source(wanted, groups) {
                Ok(source) => {
                    self.warn_of_names(wanted, source.as_ref(), groups, findings);
                    let mut link = wanted.link.clone();
                    link.source = source;
                    links.push(link);
                }
                Err(message) => {
                    lacking.insert(wanted.link.consumer.group.clone());
                    findings.push(wanted.place.problem(message));
                }
            }
        }
        findings.begin("");
        DesiredLinks { providers: self.providers, links, are_kept: false, lacking }
    }

    /// A group that could not be completed may provide what others seem to lack, so nothing is looked for.
    pub(in crate::desired) fn give_up(self) -> DesiredLinks {
        let lacking = self.wanted.into_iter().map(|wanted| wanted.link.consumer.group).collect();
        DesiredLinks { lacking, ..DesiredLinks::default() }
    }

    fn source(&self, wanted: &WantedLink, groups: &[DesiredGroup]) -> Result<Option<LinkSource>, String> {
        let consumer = &wanted.link.consumer;
        if wanted.link.source.is_some() {
            return Ok(wanted.link.source.clone());
        }
        let candidates = self.candidates(wanted);
        if candidates.is_empty() && consumer.optional && (consumer.blocked || !wanted.is_explicit) {
            return Ok(None);
        }
        let network = wanted.link.network.as_deref();
        let [(source, provider)] = candidates.as_slice() else {
            let providers: Vec<_> = candidates.iter().map(|(_, provider)| *provider).collect();
            return Err(failure(consumer, &providers, network));
        };
        if let Some(network) = network.filter(|network| !networks(provider, source, groups).contains(network)) {
            return Err(failure(consumer, &[*provider], Some(network)));
        }
        if provider.kind == ProviderKind::Disk {
            provider.content_for(None, wanted.link.ip_addresses)?;
        }
        Ok(Some(source.clone()))
    }

    fn candidates(&self, wanted: &WantedLink) -> Vec<(LinkSource, &LinkProvider)> {
        let consumer = &wanted.link.consumer;
        let fits = |provider: &LinkProvider| {
            provider.kind != ProviderKind::Manual
                && provider.link_type == consumer.link_type
                && provider.consumable
                && (!wanted.is_explicit || provider.name == consumer.name)
        };
        if consumer.blocked {
            return Vec::new();
        }
        match &wanted.from {
            None => {
                let own = self.providers.iter().enumerate().filter(|(_, provider)| fits(provider));
                own.map(|(position, provider)| (LinkSource::Own(position), provider)).collect()
            }
            Some(from) => {
                let others = self.others.and_then(|others| others.get(from)).into_iter().flatten();
                let shared = others.filter(|provider| provider.shared && fits(provider));
                shared.map(|provider| (LinkSource::Shared(provider.clone()), &**provider)).collect()
            }
        }
    }

    /// Names of instances are of use only to those who can look them up.
    fn warn_of_names(
        &self,
        wanted: &WantedLink,
        source: Option<&LinkSource>,
        groups: &[DesiredGroup],
        findings: &mut Findings,
    ) {
        let Some(LinkSource::Own(position)) = source.filter(|_| !self.names.served) else { return };
        let provider = &self.providers[*position];
        let group = groups.iter().find(|group| group.name == provider.group && provider.kind == ProviderKind::Job);
        let Some(group) = group else { return };
        let network = group.networks.iter().find(|network| match &wanted.link.network {
            Some(name) => network.definition.name == *name,
            None => Some(network.definition.name.as_str()) == group.default_network(),
        });
        let is_dynamic = |placement: &NetworkPlacement| matches!(placement, NetworkPlacement::Dynamic(_));
        if network.is_some_and(|network| is_dynamic(&network.definition.placement)) {
            findings.warn(wanted.place.problem(format!(
                "the link '{}' has names of instances instead of addresses, because the network of '{}' is dynamic; this director \
                 serves no DNS that knows them",
                wanted.link.consumer.original_name, group.name
            )));
        } else if wanted.link.ip_addresses == Some(false) {
            findings.warn(wanted.place.problem(format!(
                "DNS address not available for the link provider instances of '{}': this director serves no DNS",
                group.name
            )));
        }
    }
}

fn networks<'a>(provider: &'a LinkProvider, source: &LinkSource, groups: &'a [DesiredGroup]) -> Vec<&'a str> {
    match (source, provider.kind) {
        (LinkSource::Own(_), ProviderKind::Job) => {
            let group = groups.iter().find(|group| group.name == provider.group);
            group
                .into_iter()
                .flat_map(|group| &group.networks)
                .map(|network| network.definition.name.as_str())
                .collect()
        }
        _ => provider.networks().collect(),
    }
}

/// How many providers an error names: every consumer may have found all of them.
const NAMED_PROVIDERS: usize = 10;

fn failure(consumer: &LinkConsumer, providers: &[&LinkProvider], network: Option<&str>) -> String {
    let alias = match consumer.name == consumer.original_name {
        true => String::new(),
        false => format!("alias '{}' and ", consumer.name),
    };
    let found = if providers.len() > 1 { "Multiple link providers found:" } else { "Details below:" };
    let mut text = format!(
        "Failed to resolve link '{}' with {alias}type '{}' from job '{}' in instance group '{}'. {found}",
        consumer.original_name, consumer.link_type, consumer.job, consumer.group
    );
    if providers.is_empty() {
        text.push_str("\n    - No link providers found");
    }
    for provider in providers.iter().take(NAMED_PROVIDERS) {
        text.push_str(&format!("\n    - {}", detail(provider, network)));
    }
    if let Some(more) = providers.len().checked_sub(NAMED_PROVIDERS).filter(|more| *more > 0) {
        text.push_str(&format!("\n    - … and {more} more"));
    }
    text
}

fn detail(provider: &LinkProvider, network: Option<&str>) -> String {
    if provider.kind == ProviderKind::Disk {
        let why = if network.is_some() { " does not contain any networks" } else { "" };
        return format!(
            "Disk link provider '{}' from instance group '{}'{why}",
            provider.original_name, provider.group
        );
    }
    let alias = match provider.name == provider.original_name {
        true => String::new(),
        false => format!("with alias '{}' ", provider.name),
    };
    let why = network.map(|network| format!(" does not belong to network '{network}'")).unwrap_or_default();
    format!(
        "Link provider '{}' {alias}from job '{}' in instance group '{}' in deployment '{}'{why}",
        provider.original_name, provider.owner, provider.group, provider.deployment
    )
}
