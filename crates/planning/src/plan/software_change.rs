//! Why the jobs of an instance have to be stopped and started again, down to the property that changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{CurrentInstance, InstanceSpec};
use crate::software::{RenderedAtDeploy, Software};

/// At most so many changes are named.
const NAMED: usize = 3;

/// Why an instance gets other software than it has; none if what it has will do.
pub(super) fn why_other_software(
    known: &BTreeMap<String, Software>,
    present: &CurrentInstance,
    software: Option<&Software>,
    wanted: &InstanceSpec,
    later: Option<&RenderedAtDeploy>,
) -> Option<String> {
    let has = present.record.spec.as_ref().and_then(|spec| spec.software.as_ref());
    let (has, wanted) = match (has, &wanted.software) {
        (None, None) => return None,
        (None, Some(_)) => return Some("it gets jobs".to_owned()),
        (Some(_), None) => return Some("it has no jobs any more".to_owned()),
        (Some(has), Some(wanted)) if has == wanted => return None,
        (Some(has), Some(wanted)) => (has, wanted),
    };
    let same_files = has.configuration_hash == wanted.configuration_hash;
    let (Some(before), Some(after)) = (known.get(&has.digest), software) else {
        return (!same_files).then(|| "its configuration changes".to_owned());
    };
    let mut changes = archives(before, after);
    if let Some(later) = later {
        changes.push(later.to_string());
    } else if !same_files {
        changes.extend(properties(before, after));
        changes.extend(links(before, after));
        if changes.is_empty() && has_variables(present, after) {
            changes.push("values of its variables change".to_owned());
        } else if changes.is_empty() {
            changes.push("its configuration changes".to_owned());
        }
    }
    let more = changes.len().saturating_sub(NAMED);
    changes.truncate(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!changes.is_empty()).then(|| format!("{}{more}", changes.join(", ")))
}

fn has_variables(present: &CurrentInstance, after: &Software) -> bool {
    present.record.spec.as_ref().is_some_and(|spec| spec.variables.is_some()) && after.has_variables()
}

/// Jobs and packages that come, go, or are of another version.
fn archives(before: &Software, after: &Software) -> Vec<String> {
    let mut changes = Vec::new();
    for (what, before, after) in [("job", jobs(before), jobs(after)), ("package", packages(before), packages(after))] {
        for (name, version) in &after {
            match before.get(name) {
                None => changes.push(format!("it gets {what} '{name}'")),
                Some(known) if known != version => changes.push(format!("{what} '{name}' changes")),
                Some(_) => {}
            }
        }
        let gone = before.keys().filter(|name| !after.contains_key(*name));
        changes.extend(gone.map(|name| format!("{what} '{name}' goes")));
    }
    changes
}

/// What each job is made of.
fn jobs(software: &Software) -> BTreeMap<&str, [&str; 2]> {
    software.jobs.iter().map(|job| (job.name.as_str(), [job.version.as_str(), ""])).collect()
}

/// What each package is made of, and what it was compiled with.
fn packages(software: &Software) -> BTreeMap<&str, [&str; 2]> {
    let direct = software.packages.iter().filter(|package| package.is_direct);
    direct.map(|package| (package.name.as_str(), [package.version.as_str(), package.dependency_key.as_str()])).collect()
}

/// Properties of jobs that are in both.
fn properties(before: &Software, after: &Software) -> Vec<String> {
    let mut changes = Vec::new();
    for job in &after.jobs {
        let Some(known) = before.jobs.iter().find(|known| known.name == job.name) else { continue };
        let mut found = Vec::new();
        compare("", &known.properties, &job.properties, &mut found);
        let told = |change: &PropertyChange<'_>| match change.values() {
            Some(values) => format!("property '{}' of job '{}' changes: {values}", change.path, job.name),
            None => format!("property '{}' of job '{}' changes", change.path, job.name),
        };
        changes.extend(found.iter().map(told));
    }
    changes
}

/// Links of jobs that are in both, and what of them changes.
fn links(before: &Software, after: &Software) -> Vec<String> {
    let mut changes = Vec::new();
    for job in &after.jobs {
        let Some(known) = before.jobs.iter().find(|known| known.name == job.name) else { continue };
        if known.provides != job.provides {
            changes.push(format!("the links that job '{}' provides change", job.name));
        }
        let names: BTreeSet<&String> = known.links.keys().chain(job.links.keys()).collect();
        for name in names {
            let of = format!("link '{name}' of job '{}'", job.name);
            match (known.links.get(name), job.links.get(name)) {
                (None, _) => changes.push(format!("it gets {of}")),
                (_, None) => changes.push(format!("{of} goes")),
                (Some(before), Some(after)) if before != after => {
                    changes.push(format!("{of} changes: {}", link_parts(before, after).join(", ")));
                }
                _ => {}
            }
        }
    }
    changes
}

/// Instances by count and name, everything else by its name alone.
fn link_parts(before: &Value, after: &Value) -> Vec<String> {
    let mut parts = Vec::new();
    let instances = |content: &Value| content.get("instances").and_then(Value::as_array).cloned().unwrap_or_default();
    let (had, has) = (instances(before), instances(after));
    if had.len() != has.len() {
        parts.push(format!("instances {} → {}", had.len(), has.len()));
    } else if had != has {
        let is_new = |instance: &&Value| !had.contains(instance);
        let name = |instance: &Value| {
            let part = |key: &str| {
                instance.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            format!("{}/{}", part("name").unwrap_or_default(), part("id").unwrap_or_default())
        };
        let changed: Vec<_> = has.iter().filter(is_new).take(NAMED).map(name).collect();
        parts.push(format!("instances {}", changed.join(", ")));
    }
    let null = Value::Null;
    let mut found = Vec::new();
    let (had, has) = (before.get("properties").unwrap_or(&null), after.get("properties").unwrap_or(&null));
    compare("", had, has, &mut found);
    parts.extend(found.iter().map(|change| format!("property '{}'", change.path)));
    let keys = before.as_object().into_iter().chain(after.as_object()).flat_map(|content| content.keys());
    let others: BTreeSet<&String> = keys.filter(|key| !["instances", "properties"].contains(&key.as_str())).collect();
    let differs =
        |key: &&&String| before.get(key.as_str()).unwrap_or(&null) != after.get(key.as_str()).unwrap_or(&null);
    parts.extend(others.iter().filter(differs).map(|key| (**key).clone()));
    parts
}

/// A property that is another before and after.
struct PropertyChange<'a> {
    path: String,
    before: &'a Value,
    after: &'a Value,
}

/// Parts of names whose values are never told.
const SECRET: [&str; 6] = ["pass", "secret", "token", "key", "credential", "pin"];

impl PropertyChange<'_> {
    /// Numbers and switches only: a manifest that a client filled in has the values of variables among its texts.
    fn values(&self) -> Option<String> {
        let path = self.path.to_lowercase();
        let shown = |value: &Value| match value {
            Value::Null => Some("none".to_owned()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            _ => None,
        };
        let is_secret = SECRET.iter().any(|part| path.contains(part));
        (!is_secret).then(|| Some(format!("{} → {}", shown(self.before)?, shown(self.after)?)))?
    }
}

static NOTHING: Value = Value::Null;

fn compare<'a>(path: &str, before: &'a Value, after: &'a Value, changed: &mut Vec<PropertyChange<'a>>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let (before, after) = (before.get(key).unwrap_or(&NOTHING), after.get(key).unwrap_or(&NOTHING));
                compare(&inner, before, after, changed);
            }
        }
        _ if before != after => changed.push(PropertyChange { path: path.to_owned(), before, after }),
        _ => {}
    }
}
