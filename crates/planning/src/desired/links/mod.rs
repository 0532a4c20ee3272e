//! Links of jobs: what manifest and releases say about them, and who provides what to whom. In BOSH's words.
//!
//! - [`settings`]: what the manifest says of a job's links.
//! - [`resolution`]: one provider for each consumer.

mod resolution;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use windlass_contract::Object;
use windlass_release::JobSpec;

use super::findings::{Findings, Place, Placed};
use super::instance_group::InstanceGroup;
use super::jobs::JobReference;
use super::names_in_use::NamesInUse;
use super::{DeploymentManifest, RuntimeConfig};
use crate::links::{LinkConsumer, LinkProvider, LinkSource, ProviderKind, disk_content};
use crate::names::DiskName;
use crate::weight::{self, Room};
pub use settings::JobLinks;
use settings::{Consumed, Provided, Words};

/// Where a deploy has its links from.
#[derive(Debug, Clone, Copy)]
pub enum LinksFrom<'a> {
    /// Manifest and releases, and these providers of other deployments, by deployment. One that is not here does not exist.
    Manifest(&'a BTreeMap<String, Vec<Arc<LinkProvider>>>),
    /// What the instances were rendered with last.
    Records,
}

/// All links of a deployment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredLinks {
    pub providers: Vec<LinkProvider>,
    pub links: Vec<DesiredLink>,
    /// Whether instances keep what they were rendered with last.
    pub are_kept: bool,
    /// Groups that lack a link, which was told: their templates would only complain of it again.
    pub lacking: BTreeSet<String>,
}

/// A consumer, with the provider of its link.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredLink {
    pub consumer: LinkConsumer,
    /// The network whose addresses it wants; none for the provider's default.
    pub network: Option<String>,
    /// Whether it wants addresses rather than names; none for what the provider says.
    pub ip_addresses: Option<bool>,
    /// None if it does without.
    pub source: Option<LinkSource>,
}

/// Other deployments that jobs consume links from, and what those links may be called there.
pub fn linked_deployments(
    manifest: &DeploymentManifest,
    runtime: &RuntimeConfig,
) -> BTreeMap<String, BTreeSet<String>> {
    let addons = manifest.addons.iter().chain(runtime.addons.iter().map(|(_, addon)| addon));
    let jobs = manifest.groups.iter().flat_map(|group| &group.jobs).chain(addons.flat_map(|addon| &addon.jobs));
    let mut linked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (link, given) in jobs.flat_map(|job| &job.links.consumes) {
        let Some(deployment) = given.value.get("deployment").and_then(Value::as_str) else { continue };
        let alias = given.value.get("from").and_then(Value::as_str).unwrap_or(link);
        linked.entry(deployment.to_owned()).or_default().insert(provider_name(alias).to_owned());
    }
    linked
}

/// What a provider is called that a consumer names.
fn provider_name(alias: &str) -> &str {
    alias.rsplit('.').next().unwrap_or(alias)
}

/// Gathers the links of a deployment's jobs.
#[derive(Debug)]
pub(super) struct LinkReader<'a> {
    deployment: &'a str,
    /// None if links are not looked at.
    others: Option<&'a BTreeMap<String, Vec<Arc<LinkProvider>>>>,
    names: NamesInUse,
    providers: Vec<LinkProvider>,
    wanted: Vec<WantedLink>,
}

/// A link that a job wants.
#[derive(Debug)]
struct WantedLink {
    link: DesiredLink,
    is_explicit: bool,
    /// Another deployment.
    from: Option<String>,
    /// Where it is asked for, and in which document.
    place: Place,
    document: String,
}

/// How much a provider takes in memory beside its properties, roughly.
const OF_A_PROVIDER: usize = 512;

/// A job of a group, as messages name it.
#[derive(Debug, Clone, Copy)]
struct JobOf<'a> {
    group: &'a InstanceGroup,
    job: &'a JobReference,
    spec: &'a JobSpec,
}

impl JobOf<'_> {
    fn words<'w>(&'w self, link: &'w str) -> Words<'w> {
        Words { link, job: &self.job.name.value, group: &self.group.name }
    }
}

impl<'a> LinkReader<'a> {
    pub(super) fn new(deployment: &'a str, from: LinksFrom<'a>, names: NamesInUse) -> Self {
        let others = match from {
            LinksFrom::Manifest(others) => Some(others),
            LinksFrom::Records => None,
        };
        Self { deployment, others, names, providers: Vec::new(), wanted: Vec::new() }
    }

    /// The links of one job. `given` are its properties as the manifest has them.
    pub(super) fn job(
        &mut self,
        group: &InstanceGroup,
        job: &JobReference,
        spec: &JobSpec,
        given: &Object,
        room: &mut Room,
        findings: &mut Findings,
    ) {
        if self.others.is_none() {
            return;
        }
        let of = JobOf { group, job, spec };
        let released = definitions(spec, "provides");
        let custom = custom_definitions(&of, &released, findings);
        for definition in custom.iter().chain(&released) {
            self.provide(&of, definition, given, room, findings);
        }
        let mut provided: Vec<&str> =
            custom.iter().chain(&released).map(|definition| definition.name.as_str()).collect();
        let consumed = definitions(spec, "consumes");
        for definition in &consumed {
            self.consume(&of, definition, room, findings);
        }
        let unknown = |(name, _): &&(String, Placed<Value>), known: &[&str]| !known.contains(&name.as_str());
        let name = &job.name.value;
        for (link, at) in job.links.provides.iter().filter(|entry| unknown(entry, &provided)) {
            findings
                .warn(at.problem(format!("Job '{name}' does not define link provider '{link}' in the release spec")));
        }
        provided = consumed.iter().map(|definition| definition.name.as_str()).collect();
        for (link, at) in job.links.consumes.iter().filter(|entry| unknown(entry, &provided)) {
            findings
                .warn(at.problem(format!("Job '{name}' does not define link consumer '{link}' in the release spec")));
        }
    }

    /// The links of a group's named disks.
    pub(super) fn disks(&mut self, group: &InstanceGroup) {
        for disk in group.disks.iter().filter(|_| self.others.is_some()) {
            let DiskName::Named(name) = &disk.name else { continue };
            self.providers.push(LinkProvider {
                id: 0,
                deployment: self.deployment.to_owned(),
                group: group.name.clone(),
                owner: group.name.clone(),
                kind: ProviderKind::Disk,
                original_name: name.clone(),
                link_type: "disk".to_owned(),
                name: name.clone(),
                shared: false,
                consumable: true,
                content: disk_content(self.deployment, name),
                aliases: Vec::new(),
            });
        }
    }

    /// Each has a copy of its properties, and a manifest may add thousands of providers to a job.
    fn provide(
        &mut self,
        of: &JobOf<'_>,
        definition: &Definition,
        given: &Object,
        room: &mut Room,
        findings: &mut Findings,
    ) {
        if room.is_spent() {
            return;
        }
        let setting = of.job.links.provides.iter().find(|(name, _)| *name == definition.name);
        let Some(Provided { name, shared, consumable, aliases }) =
            Provided::read(&of.words(&definition.name), setting, findings)
        else {
            return;
        };
        let properties = match listed_properties(of.spec, &definition.properties, given) {
            Ok(properties) => properties,
            Err(problems) => {
                return problems.into_iter().for_each(|problem| findings.push(of.job.name.problem(problem)));
            }
        };
        if let Err(message) = room.take(OF_A_PROVIDER + weight::of(&properties)) {
            return findings.push(of.job.name.problem(message));
        }
        self.providers.push(LinkProvider {
            id: 0,
            deployment: self.deployment.to_owned(),
            group: of.group.name.clone(),
            owner: of.job.name.value.clone(),
            kind: ProviderKind::Job,
            original_name: definition.name.clone(),
            link_type: definition.link_type.clone(),
            name,
            shared,
            consumable,
            content: properties,
            aliases,
        });
    }

    fn consume(&mut self, of: &JobOf<'_>, definition: &Definition, room: &mut Room, findings: &mut Findings) {
        if room.is_spent() {
            return;
        }
        let setting = of.job.links.consumes.iter().find(|(name, _)| *name == definition.name);
        let Some(read) = Consumed::read(&of.words(&definition.name), setting, findings) else { return };
        if let Some(from) = read.deployment.as_deref().filter(|from| !self.exists(from)) {
            let place = setting.map_or(&of.job.name.place, |(_, at)| &at.place);
            findings.push(place.problem(format!(
                "Link '{}' in job '{}' from instance group '{}' consumes from deployment '{from}', but the deployment does not exist.",
                read.from.as_deref().unwrap_or(&definition.name),
                of.job.name.value,
                of.group.name
            )));
            return;
        }
        // What an addon says of its links belongs to each group.
        if let Some(content) = &read.manual
            && let Err(message) = room.take(OF_A_PROVIDER + weight::of_object(content))
        {
            return findings.push(of.job.name.problem(message));
        }
        let source = read.manual.map(|mut content| {
            content.insert("deployment_name".to_owned(), self.deployment.into());
            self.providers.push(LinkProvider {
                id: 0,
                deployment: self.deployment.to_owned(),
                group: of.group.name.clone(),
                owner: of.job.name.value.clone(),
                kind: ProviderKind::Manual,
                original_name: definition.name.clone(),
                link_type: definition.link_type.clone(),
                name: definition.name.clone(),
                shared: false,
                consumable: true,
                content: content.into(),
                aliases: Vec::new(),
            });
            LinkSource::Own(self.providers.len() - 1)
        });
        let alias = read.from.as_deref().unwrap_or(&definition.name);
        let consumer = LinkConsumer {
            group: of.group.name.clone(),
            job: of.job.name.value.clone(),
            original_name: definition.name.clone(),
            link_type: definition.link_type.clone(),
            name: provider_name(alias).to_owned(),
            optional: definition.optional,
            blocked: read.blocked,
        };
        self.wanted.push(WantedLink {
            link: DesiredLink { consumer, network: read.network, ip_addresses: read.ip_addresses, source },
            is_explicit: setting.is_some(),
            from: read.deployment.filter(|from| from != self.deployment),
            place: setting.map_or_else(|| of.job.name.place.clone(), |(_, at)| at.place.clone()),
            document: of.job.document.clone(),
        });
    }

    fn exists(&self, deployment: &str) -> bool {
        deployment == self.deployment || self.others.is_some_and(|others| others.contains_key(deployment))
    }
}

/// A link as a release or `custom_provider_definitions` define it.
#[derive(Debug, Clone)]
struct Definition {
    name: String,
    link_type: String,
    optional: bool,
    /// Names of properties that come with it.
    properties: Vec<String>,
}

impl Definition {
    fn of(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let listed = value.get("properties").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            name: text("name")?,
            link_type: text("type")?,
            optional: value.get("optional") == Some(&Value::Bool(true)),
            properties: listed.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        })
    }
}

fn definitions(spec: &JobSpec, key: &str) -> Vec<Definition> {
    spec.raw.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Definition::of).collect()
}

/// Providers that the manifest adds to those of the release.
fn custom_definitions(of: &JobOf<'_>, released: &[Definition], findings: &mut Findings) -> Vec<Definition> {
    let (job, group) = (&of.job.name.value, &of.group.name);
    let mut custom: Vec<Definition> = Vec::new();
    for given in &of.job.links.custom {
        let mut is_whole = true;
        for (key, what) in [("name", "Name"), ("type", "Type")] {
            if given.value.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
                is_whole = false;
                findings.push(given.problem(format!(
                    "{what} for custom link provider definition in manifest in job '{job}' in instance group '{group}' must be a \
                     valid non-empty string."
                )));
            }
        }
        let Some(definition) = Definition::of(&given.value).filter(|_| is_whole) else { continue };
        let name = &definition.name;
        let what = format!("Custom provider '{name}' in job '{job}' in instance group '{group}'");
        if released.iter().any(|other| other.name == *name) {
            findings.push(given.problem(format!("{what} is already defined in release '{}'", of.job.release.value)));
        } else if custom.iter().any(|other| other.name == *name) {
            findings.push(given.problem(format!("{what} is defined multiple times in manifest.")));
        } else {
            custom.push(definition);
        }
    }
    custom
}

/// The properties that come with a link: each as the manifest gives it, else the release's default.
fn listed_properties(spec: &JobSpec, listed: &[String], given: &Object) -> Result<Value, Vec<String>> {
    let mut mapped = Map::new();
    let mut problems = Vec::new();
    for name in listed {
        match (find(given, name), spec.properties.get(name)) {
            (Some(value), _) => insert(&mut mapped, name, value.clone()),
            (None, Some(property)) => insert(&mut mapped, name, property.default.clone().unwrap_or(Value::Null)),
            (None, None) => {
                problems.push(format!("Link property {name} in template {} is not defined in release spec", spec.name))
            }
        }
    }
    if problems.is_empty() { Ok(mapped.into()) } else { Err(problems) }
}

fn find<'v>(given: &'v Object, name: &str) -> Option<&'v Value> {
    match name.split_once('.') {
        None => given.get(name),
        Some((first, rest)) => find(given.get(first)?.as_object()?, rest),
    }
}

fn insert(into: &mut Object, name: &str, value: Value) {
    let Some((first, rest)) = name.split_once('.') else {
        into.insert(name.to_owned(), value);
        return;
    };
    let inner = into.entry(first).or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Some(inner) = inner.as_object_mut() {
        insert(inner, rest, value);
    }
}
