//! Addons: jobs that a manifest or a runtime config adds to the groups that match.

use std::sync::Arc;

use serde_json::Value;
use windlass_contract::Object;
use windlass_manifest::At;

use super::DeploymentManifest;
use super::fields::Fields;
use super::findings::{Findings, Placed};
use super::instance_group::InstanceGroup;
use super::jobs::{JobReference, ReleaseReference, read_job};
use super::runtime_config::RuntimeConfig;
use crate::weight::Room;

/// Jobs for instance groups that match.
#[derive(Debug, Clone, PartialEq)]
pub struct Addon {
    pub name: Placed<String>,
    /// What it adds.
    pub jobs: Vec<Arc<JobReference>>,
    include: Filter,
    exclude: Filter,
}

/// What an addon looks at in a group.
#[derive(Debug)]
pub struct Candidate<'a> {
    pub deployment: &'a str,
    /// Of the deployment.
    pub teams: &'a [String],
    /// The group with the jobs that it has by now.
    pub group: &'a InstanceGroup,
    /// The operating system of its stemcell.
    pub os: &'a str,
}

/// Kinds that are given must all match, each by any of its words.
#[derive(Debug, Clone, Default, PartialEq)]
struct Filter(Vec<Kind>);

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Deployments(Vec<String>),
    InstanceGroups(Vec<String>),
    Lifecycle(String),
    Stemcell(Vec<String>),
    Networks(Vec<String>),
    Azs(Vec<String>),
    /// Name and release of each.
    Jobs(Vec<(String, String)>),
    Teams(Vec<String>),
}

impl Filter {
    fn matches(&self, candidate: &Candidate<'_>) -> bool {
        let group = candidate.group;
        self.0.iter().all(|kind| match kind {
            Kind::Deployments(names) => names.iter().any(|name| name == candidate.deployment),
            Kind::InstanceGroups(names) => names.contains(&group.name),
            Kind::Lifecycle(word) => word == group.lifecycle.as_str(),
            Kind::Stemcell(names) => names.iter().any(|os| os == candidate.os),
            Kind::Networks(names) => group.networks.iter().any(|network| names.contains(&network.name.value)),
            Kind::Azs(names) => group.azs.iter().any(|az| names.contains(&az.value)),
            Kind::Jobs(jobs) => group
                .jobs
                .iter()
                .any(|job| jobs.iter().any(|(name, release)| (name, release) == (&job.name.value, &job.release.value))),
            Kind::Teams(names) => names.iter().any(|name| candidate.teams.contains(name)),
        })
    }
}

impl Addon {
    /// Whether a group gets it.
    pub fn applies_to(&self, candidate: &Candidate<'_>) -> bool {
        self.include.matches(candidate) && (self.exclude.0.is_empty() || !self.exclude.matches(candidate))
    }
}

/// Where an addon stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level<'a> {
    Deployment,
    /// In this document.
    Runtime(&'a str),
}

impl Level<'_> {
    fn word(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::Runtime(_) => "runtime",
        }
    }

    fn document(self) -> String {
        match self {
            Self::Deployment => String::new(),
            Self::Runtime(document) => document.to_owned(),
        }
    }
}

const KEYS: [&str; 5] = ["name", "jobs", "include", "exclude", "properties"];
const FILTER_KEYS: [&str; 8] =
    ["deployments", "instance_groups", "lifecycle", "stemcell", "networks", "azs", "jobs", "teams"];

/// Reads an addon. Its jobs are of these releases; none if they could not be read.
pub(super) fn read_addon(
    at: &At<'_>,
    level: Level<'_>,
    releases: Option<&[ReleaseReference]>,
    findings: &mut Findings,
) -> Option<Addon> {
    let mut fields = Fields::of(at, &KEYS, findings)?;
    let name = fields.text("name");
    // One for all of its jobs, of which there may be thousands.
    let shared: Arc<Object> = Arc::new(fields.object("properties"));
    if let Some(at) = fields.optional("properties") {
        let message = "Top level 'properties' in addons are deprecated. Please define 'properties' at the job level.";
        fields.findings().warn(at.problem(message));
    }
    let mut jobs = Vec::new();
    for at in fields.list("jobs") {
        let Some(mut job) = read_job(&at, fields.findings()) else { continue };
        if !std::mem::take(&mut Arc::make_mut(&mut job.links).custom).is_empty() {
            fields.findings().warn(at.problem("'custom_provider_definitions' have no effect in addons"));
        }
        job.document = level.document();
        job.properties.get_or_insert_with(|| shared.clone());
        let release = &job.release;
        if releases.is_some_and(|listed| !listed.iter().any(|listed| listed.name.value == release.value)) {
            fields.findings().push(release.problem(format!(
                "Manifest specifies job '{}' which is defined in '{}', but '{}' is not listed in the {} releases section.",
                job.name.value,
                release.value,
                release.value,
                level.word()
            )));
            continue;
        }
        jobs.push(Arc::new(job));
    }
    let mut filter = |key: &str| {
        let at = fields.optional(key)?;
        Some(read_filter(&at, key, level, fields.findings()))
    };
    let (include, exclude) = (filter("include").unwrap_or_default(), filter("exclude").unwrap_or_default());
    Some(Addon { name: name?, jobs, include, exclude })
}

fn read_filter(at: &At<'_>, section: &str, level: Level<'_>, findings: &mut Findings) -> Filter {
    let mut filter = Filter::default();
    let Some(mut fields) = Fields::of(at, &FILTER_KEYS, findings) else { return filter };
    let mut words = |key: &str| -> Option<Vec<String>> {
        let words: Vec<String> = fields.texts(key).into_iter().map(|word| word.value).collect();
        (!words.is_empty()).then_some(words)
    };
    filter.0.extend(words("deployments").map(Kind::Deployments));
    filter.0.extend(words("instance_groups").map(Kind::InstanceGroups));
    filter.0.extend(words("networks").map(Kind::Networks));
    filter.0.extend(words("azs").map(Kind::Azs));
    filter.0.extend(words("teams").filter(|_| level != Level::Deployment).map(Kind::Teams));
    if level == Level::Deployment && !fields.list("deployments").is_empty() {
        fields.refuse("deployments", "Deployment filter is not allowed for deployment level addons.");
    }
    filter.0.extend(fields.optional_text("lifecycle").map(|word| Kind::Lifecycle(word.value)));
    let of = format!("in {} config's {section} section must have", level.word());
    let mut stemcells = Vec::new();
    for at in fields.list("stemcell") {
        match text(&at, "os") {
            Some(os) => stemcells.push(os),
            None => fields.findings().push(at.problem(format!("Stemcell {} {of} an os name.", at.node().to_json()))),
        }
    }
    filter.0.extend(Some(stemcells).filter(|stemcells| !stemcells.is_empty()).map(Kind::Stemcell));
    let mut jobs = Vec::new();
    for at in fields.list("jobs") {
        match (text(&at, "name"), text(&at, "release")) {
            (Some(name), Some(release)) => jobs.push((name, release)),
            _ => {
                let message = format!("Job {} {of} both name and release.", at.node().to_json());
                fields.findings().push(at.problem(message));
            }
        }
    }
    filter.0.extend(Some(jobs).filter(|jobs| !jobs.is_empty()).map(Kind::Jobs));
    filter
}

fn text(at: &At<'_>, key: &str) -> Option<String> {
    let value = at.node().to_json();
    value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What a group takes of memory for a job that it only shares.
const OF_AN_ADDED_JOB: usize = 64;

/// The manifest's groups with the jobs of addons, and the releases of runtime configs that those are of, each with its document. No
/// groups where there is no room for all of that.
pub(super) fn with_addons<'a>(
    manifest: &DeploymentManifest,
    teams: &[String],
    runtime: &'a RuntimeConfig,
    os: impl Fn(&InstanceGroup) -> String,
    room: &mut Room,
    findings: &mut Findings,
) -> (Vec<InstanceGroup>, Vec<(&'a str, &'a ReleaseReference)>) {
    let deployment = manifest.name.as_ref().map_or("", |name| &name.value);
    let mut groups = manifest.groups.clone();
    let mut releases: Vec<(&str, &ReleaseReference)> = Vec::new();
    let own = manifest.addons.iter().map(|addon| ("", addon));
    let everywhere = runtime.addons.iter().map(|(document, addon)| (document.as_str(), addon));
    for (document, addon) in own.chain(everywhere) {
        findings.begin(document);
        for group in &mut groups {
            let candidate = Candidate { deployment, teams, group, os: &os(group) };
            if !addon.applies_to(&candidate) {
                continue;
            }
            for job in &addon.jobs {
                if group.jobs.iter().any(|known| known.name.value == job.name.value) {
                    findings.push(job.name.problem(format!(
                        "Colocated job '{}' is already added to the instance group '{}'.",
                        job.name.value, group.name
                    )));
                    continue;
                }
                let listed = runtime.releases.iter().filter(|(of, _)| of == document);
                for (of, release) in listed.filter(|(_, release)| release.name.value == job.release.value) {
                    let is_known =
                        |(known, other): &(&str, &ReleaseReference)| *known == of && other.name == release.name;
                    if !releases.iter().any(is_known) {
                        releases.push((of, release));
                    }
                }
                if let Err(message) = room.take(OF_AN_ADDED_JOB) {
                    findings.push(job.name.problem(message));
                    findings.begin("");
                    return (Vec::new(), releases);
                }
                group.jobs.push(job.clone());
            }
        }
    }
    findings.begin("");
    (groups, releases)
}
