//! Jobs of a group, looked up in the uploaded releases: their packages, and a value for each property that they declare.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};
use windlass_contract::Object;
use windlass_release::{JobSpec, Package, PackageGraph, Version};

use super::DeploymentManifest;
use super::findings::Findings;
use super::instance_group::InstanceGroup;
use super::jobs::{JobReference, ReleaseReference};
use super::links::LinkReader;
use super::runtime_config::RuntimeConfig;
use crate::records::{JobRecord, PackageRecord, ReleaseRecord};
use crate::software::{CompiledFor, JobOfGroup, PackageOfGroup, Software};
use crate::weight::{self, Room};

/// The releases that a manifest names, each with the uploaded version that it means.
#[derive(Debug)]
pub(super) struct Releases<'a> {
    manifest: &'a DeploymentManifest,
    chosen: Vec<ChosenRelease<'a>>,
    /// Specs of jobs that were read, by the id of the release and the name: thousands of groups may have the same job.
    specs: RefCell<HashMap<(i64, &'a str), Rc<JobSpec>>>,
}

/// A release that a document names.
#[derive(Debug)]
struct ChosenRelease<'a> {
    name: &'a str,
    /// As it is written.
    version: &'a str,
    /// None if it was said already why there is none.
    record: Option<&'a ReleaseRecord>,
    exported_from: &'a [CompiledFor],
}

impl<'a> Releases<'a> {
    /// `added` are the releases of runtime configs that addons need, each with its document.
    pub(super) fn choose(
        manifest: &'a DeploymentManifest,
        added: &[(&str, &'a ReleaseReference)],
        uploaded: &'a [ReleaseRecord],
        findings: &mut Findings,
    ) -> Self {
        let mut chosen: Vec<ChosenRelease<'_>> = Vec::new();
        let take = |reference: &'a ReleaseReference, findings: &mut Findings| {
            let record = find(reference, uploaded);
            if let Err(message) = &record {
                findings.push(reference.version.problem(message.clone()));
            }
            ChosenRelease {
                name: &reference.name.value,
                version: &reference.version.value,
                record: record.ok(),
                exported_from: &reference.exported_from,
            }
        };
        for reference in &manifest.releases {
            let name = reference.name.value.as_str();
            if chosen.iter().any(|known| known.name == name) {
                findings.push(reference.name.problem(format!("the release '{name}' is named already")));
                continue;
            }
            chosen.push(take(reference, findings));
        }
        for (document, reference) in added {
            findings.begin(*document);
            let (name, version) = (reference.name.value.as_str(), reference.version.value.as_str());
            if let Some(ChosenRelease { version: other, .. }) = chosen.iter().find(|known| known.name == name) {
                if *other != version {
                    findings.push(reference.version.problem(format!(
                        "Runtime manifest specifies release '{name}' with version as '{version}'. This conflicts with version \
                         '{other}' specified in the deployment manifest."
                    )));
                }
                continue;
            }
            chosen.push(take(reference, findings));
        }
        findings.begin("");
        Self { manifest, chosen, specs: RefCell::default() }
    }

    /// Ids of the versions in use.
    pub(super) fn ids(&self) -> Vec<i64> {
        self.chosen.iter().filter_map(|chosen| Some(chosen.record?.id)).collect()
    }

    /// A release that is in use, and the stemcells that its packages must have been compiled for.
    pub(super) fn release(&self, name: &str) -> Option<(&'a ReleaseRecord, &'a [CompiledFor])> {
        let chosen = self.chosen.iter().find(|chosen| chosen.name == name)?;
        Some((chosen.record?, chosen.exported_from))
    }

    /// What runs on a group, as yet without links; none if it has no jobs, or if it was said why there is none.
    pub(super) fn software(
        &self,
        group: &InstanceGroup,
        links: &mut LinkReader<'_>,
        room: &mut Room,
        findings: &mut Findings,
    ) -> Option<Software> {
        let problems = findings.problems().len();
        let mut software = Software::default();
        let mut earlier = HashSet::new();
        let mut shared = None;
        for reference in &group.jobs {
            findings.begin(reference.document.clone());
            let name = &reference.name;
            if !earlier.insert(&name.value) {
                findings.push(name.problem(format!("the job '{}' is there already", name.value)));
                continue;
            }
            let Some((release, record)) = self.job(reference, findings) else { continue };
            let spec = match self.spec(release.id, record) {
                Ok(spec) => spec,
                Err(message) => {
                    findings.push(name.problem(message));
                    continue;
                }
            };
            let given: &Object = match &reference.properties {
                Some(own) => own,
                None => shared.get_or_insert_with(|| self.shared_properties(group)),
            };
            links.job(group, reference, &spec, given, room, findings);
            if room.is_spent() {
                break;
            }
            let properties = bound_properties(reference, &spec, given, findings);
            if let Err(message) = room.take(weight::of(&properties)) {
                findings.push(name.problem(message));
                break;
            }
            let known = software.packages.len();
            let added = add_packages(&mut software, &group.name, release, &spec).and_then(|()| {
                let added = software.packages[known..].iter();
                room.take(added.map(PackageOfGroup::weight).sum())
            });
            if let Err(message) = added {
                findings.push(name.problem(message));
            }
            software.jobs.push(JobOfGroup {
                name: record.name.clone(),
                release: release.name.clone(),
                release_version: release.version.clone(),
                version: record.version.clone(),
                properties,
                links: BTreeMap::new(),
                provides: Vec::new(),
            });
        }
        findings.begin("");
        (findings.problems().len() == problems && !software.jobs.is_empty()).then_some(software)
    }

    fn job(&self, reference: &JobReference, findings: &mut Findings) -> Option<(&'a ReleaseRecord, &'a JobRecord)> {
        let (name, release) = (&reference.name, &reference.release);
        let Some(found) = self.chosen.iter().find(|known| known.name == release.value) else {
            if self.manifest.knows_all_releases {
                findings.push(
                    release.problem(format!("the release '{}' is not in the manifest's releases", release.value)),
                );
            }
            return None;
        };
        let found = found.record?;
        let job = found.jobs.iter().find(|job| job.name == name.value);
        if job.is_none() {
            let have: Vec<_> = found.jobs.iter().map(|job| job.name.as_str()).collect();
            findings.push(name.problem(format!(
                "the release {}/{} has no job '{}'; it has {}",
                found.name,
                found.version,
                name.value,
                have.join(", ")
            )));
        }
        job.map(|job| (found, job))
    }

    fn spec(&self, release: i64, record: &'a JobRecord) -> Result<Rc<JobSpec>, String> {
        let key = (release, record.name.as_str());
        if let Some(known) = self.specs.borrow().get(&key) {
            return Ok(known.clone());
        }
        let read = JobSpec::parse(&record.spec.to_string(), &record.name);
        let read = Rc::new(read.map_err(|error| format!("{error}; upload the release again with --fix"))?);
        self.specs.borrow_mut().insert(key, read.clone());
        Ok(read)
    }

    /// What the manifest says for the jobs of a group that have no properties of their own.
    fn shared_properties(&self, group: &InstanceGroup) -> Cow<'a, Object> {
        if group.properties.is_empty() {
            return Cow::Borrowed(&self.manifest.properties);
        }
        let mut shared = self.manifest.properties.clone();
        merge(&mut shared, &group.properties);
        Cow::Owned(shared)
    }
}

fn bound_properties(job: &JobReference, spec: &JobSpec, given: &Object, findings: &mut Findings) -> Value {
    match bind(spec, given) {
        Ok(properties) => properties,
        Err(problems) => {
            for problem in problems {
                findings.push(job.name.problem(format!("job '{}': {problem}", job.name.value)));
            }
            Value::Null
        }
    }
}

/// The ids of the uploaded versions that documents name: of other releases nobody needs to know more than their names.
pub fn releases_named_by(
    manifest: &DeploymentManifest,
    runtime: &RuntimeConfig,
    uploaded: &[ReleaseRecord],
) -> Vec<i64> {
    let everywhere = runtime.releases.iter().map(|(_, reference)| reference);
    let named = manifest.releases.iter().chain(everywhere);
    named.filter_map(|reference| find(reference, uploaded).ok()).map(|release| release.id).collect()
}

fn find<'a>(reference: &ReleaseReference, uploaded: &'a [ReleaseRecord]) -> Result<&'a ReleaseRecord, String> {
    let (name, wanted) = (&reference.name.value, reference.version.value.as_str());
    let versions: Vec<&ReleaseRecord> = uploaded.iter().filter(|release| release.name == *name).collect();
    let is_same = |release: &&&ReleaseRecord| {
        release.version == wanted || Version::parse(wanted).is_ok_and(|version| version.to_string() == release.version)
    };
    let found = match wanted.strip_suffix("latest").map(|prefix| prefix.strip_suffix('.').unwrap_or(prefix)) {
        Some(prefix) => versions
            .iter()
            .filter(|release| continues(&release.version, prefix))
            .max_by_key(|release| Version::parse(&release.version).ok()),
        None => versions.iter().find(is_same),
    };
    found.copied().ok_or_else(|| {
        let have: Vec<_> = versions.iter().map(|release| release.version.as_str()).collect();
        let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
        format!("the release {name}/{wanted} was not uploaded (versions of '{name}' here: {have}); use upload-release")
    })
}

/// Whether a version is the prefix, or goes on after it.
fn continues(version: &str, prefix: &str) -> bool {
    prefix.is_empty()
        || version.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+']))
}

/// The packages of a job and all that they need, each after what it needs itself.
pub fn add_packages(
    software: &mut Software,
    group: &str,
    release: &ReleaseRecord,
    spec: &JobSpec,
) -> Result<(), String> {
    let listed: Vec<Package> = release.packages.iter().map(as_listed).collect();
    let keyed = PackageGraph::new(&listed).and_then(|graph| {
        let order = graph.order(spec.packages.iter().map(String::as_str))?;
        let keyed = |name: &str| Ok((name.to_owned(), graph.dependency_key(name)?));
        order.into_iter().map(keyed).collect::<Result<Vec<_>, _>>()
    });
    for (name, dependency_key) in keyed.map_err(|error| format!("release '{}': {error}", release.name))? {
        let Some(record) = release.packages.iter().find(|package| package.name == name) else { continue };
        let is_direct = spec.packages.contains(&name);
        let has_name = |package: &&PackageOfGroup| package.name == name && package.is_direct;
        let is_same = |package: &PackageOfGroup| {
            package.name == name && package.version == record.version && package.dependency_key == dependency_key
        };
        // What only compiles others never meets what another release compiles with.
        if let Some(other) = software.packages.iter().find(has_name).filter(|other| is_direct && !is_same(other)) {
            return Err(collision(software, group, other, &spec.name, (release, record)));
        }
        match software.packages.iter_mut().find(|package| is_same(package)) {
            Some(known) => known.is_direct |= is_direct,
            None => software.packages.push(PackageOfGroup {
                name,
                release: release.name.clone(),
                version: record.version.clone(),
                dependencies: record.dependencies.clone(),
                dependency_key,
                is_direct,
                compiled_for: None,
            }),
        }
    }
    Ok(())
}

/// In BOSH's words: one VM has one package of a name.
fn collision(
    software: &Software,
    group: &str,
    other: &PackageOfGroup,
    job: &str,
    (release, record): (&ReleaseRecord, &PackageRecord),
) -> String {
    let owner = software.jobs.iter().find(|job| job.release == other.release).map_or("?", |job| job.name.as_str());
    format!(
        "Package name collision detected in instance group '{group}': job '{}/{owner}' depends on package '{}/{}' with fingerprint \
         '{}', job '{}/{}' depends on package '{}/{}' with fingerprint '{}'. One VM cannot have both; put the jobs into \
         different groups",
        other.release,
        other.release,
        other.name,
        other.version,
        release.name,
        job,
        release.name,
        record.name,
        record.version,
    )
}

fn as_listed(record: &PackageRecord) -> Package {
    Package {
        name: record.name.clone(),
        version: record.version.clone(),
        fingerprint: record.fingerprint.clone(),
        sha1: String::new(),
        dependencies: record.dependencies.clone(),
    }
}

/// Objects are merged, everything else is replaced.
pub fn merge(into: &mut Object, from: &Object) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(known)), Value::Object(value)) => merge(known, value),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// A value for each property that a job declares: the given one, else the default, else null. What it does not declare is left
/// out.
pub fn bind(spec: &JobSpec, given: &Object) -> Result<Value, Vec<String>> {
    let mut bound = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, property) in &spec.properties {
        match walk(given, name) {
            Ok(found) => {
                let value = found.filter(|value| !value.is_null()).or(property.default.as_ref());
                bound.insert(name.as_str(), sorted(value.unwrap_or(&Value::Null)));
            }
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut tree = Map::new();
    for (name, value) in bound {
        plant(&mut tree, name, value);
    }
    Ok(sorted(&Value::Object(tree)))
}

fn walk<'a>(given: &'a Object, name: &str) -> Result<Option<&'a Value>, String> {
    let (mut at, mut path) = (given, name);
    loop {
        let Some((first, rest)) = path.split_once('.') else { return Ok(at.get(path)) };
        match at.get(first) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(inner)) => (at, path) = (inner, rest),
            Some(other) => {
                return Err(format!("property '{name}' expects an object at '{first}', but found {}", kind(other)));
            }
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Puts a value at a dotted name. `a` sorts before `a.b`, so an object that is declared as a whole is there before its parts.
fn plant(tree: &mut Object, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            tree.insert(name.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = tree.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            if let Some(inner) = inner.as_object_mut() {
                plant(inner, rest, value);
            }
        }
    }
}

/// With the keys of objects in order, so that the same properties are always rendered alike. Lists stay as they are.
fn sorted(value: &Value) -> Value {
    let Value::Object(object) = value else { return value.clone() };
    let in_order: BTreeMap<&String, Value> = object.iter().map(|(key, value)| (key, sorted(value))).collect();
    Value::Object(in_order.into_iter().map(|(key, value)| (key.clone(), value)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(text: &str) -> JobSpec {
        JobSpec::parse(text, "app").unwrap()
    }

    fn object(value: Value) -> Object {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_job_gets_the_properties_that_it_declares_and_no_others() {
        let spec = spec(
            "name: app\nproperties: {port: {default: 80}, tls.key: {}, tls.on: {default: false}, name: {default: x}, z: {}}",
        );
        let given =
            object(json!({"port": null, "tls": {"key": {"b": 1, "a": [{"d": 1, "c": 2}]}}, "other": 1, "name": ""}));
        let bound = bind(&spec, &given).unwrap();
        assert_eq!(
            bound.to_string(),
            r#"{"name":"","port":80,"tls":{"key":{"a":[{"d":1,"c":2}],"b":1},"on":false},"z":null}"#
                .replace(r#"{"d":1,"c":2}"#, &json!({"d": 1, "c": 2}).to_string())
        );
    }

    #[test]
    fn a_property_below_what_is_no_object_is_named() {
        let problems =
            bind(&spec("name: app\nproperties: {tls.key: {}, a: {}}"), &object(json!({"tls": 7}))).unwrap_err();
        assert_eq!(problems, ["property 'tls.key' expects an object at 'tls', but found a number"]);
    }

    #[test]
    fn properties_of_the_group_lie_over_those_of_the_deployment() {
        let mut shared = object(json!({"a": {"x": 1, "y": 1}, "b": 1}));
        merge(&mut shared, &object(json!({"a": {"y": 2}, "c": 3})));
        assert_eq!(Value::Object(shared), json!({"a": {"x": 1, "y": 2}, "b": 1, "c": 3}));
    }

    #[test]
    fn latest_is_the_greatest_version_and_may_be_the_latest_of_a_line() {
        assert!(continues("1.2.3", "1.2") && continues("1.2", "1.2") && continues("1.2+dev.1", "1.2"));
        assert!(!continues("1.20", "1.2") && continues("anything", ""));
    }
}
