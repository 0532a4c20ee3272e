//! What counts as the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::Value;

/// Objects whose keys are the cloud's, the agent's or the operator's.
const FREE: [&str; 4] = ["cloud_properties", "context", "vitals", "processes"];
/// Keys that are there only if there is something to say.
const OPTIONAL: [&str; 6] = ["parent_id", "object_name", "task", "deployment", "instance", "error"];
/// Keys that are ours alone, and that no client looks at.
const OURS: [&str; 1] = ["needs_ruby"];
/// What was recorded of the steps of an instance.
const RECORDED_STEPS: [&str; 10] = [
    "skipped pre-stop & drain",
    "executing pre-stop",
    "executing drain",
    "stopping jobs",
    "executing post-stop",
    "installing packages",
    "configuring jobs",
    "executing pre-start",
    "starting jobs",
    "executing post-start",
];
/// What we tell beside it, because it takes long or changes what there is.
const OUR_STEPS: [&str; 8] = [
    "creating VM",
    "deleting VM",
    "putting the new VM in its place",
    "creating disk",
    "attaching disk",
    "detaching disk",
    "migrating disk",
    "resizing disk",
];

/// What is not the same, if anything.
pub(crate) fn difference<T: PartialEq + Debug>(recorded: &T, ours: &T) -> Option<String> {
    (recorded != ours).then(|| format!("recorded {recorded:?}, ours {ours:?}"))
}

/// A text with ids of all kinds taken out.
pub(crate) fn normal(text: &str) -> String {
    static IDS: LazyLock<Regex> = LazyLock::new(|| {
        let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        Regex::new(&format!("(?:(?:vm|disk|snap|sc)-)?{uuid}|[0-9a-f]{{64}}|[0-9a-f]{{40}}|[0-9a-f]{{32}}")).unwrap()
    });
    IDS.replace_all(text, "ID").trim().to_owned()
}

/// What differs between two results; long ones were cut.
pub(crate) fn result(recorded: &str, ours: &str) -> Option<String> {
    let (recorded, ours) = (normal(recorded), normal(ours));
    match recorded.strip_suffix("...") {
        Some(beginning) if ours.starts_with(beginning) => None,
        _ => difference(&recorded, &ours),
    }
}

/// What differs between the shapes of two answers: keys and types, not values.
pub(crate) fn same_shape(recorded: &Value, ours: &Value) -> Option<String> {
    let mut found = Vec::new();
    compare("", recorded, ours, &mut found);
    (!found.is_empty()).then(|| found.join("; "))
}

fn compare(path: &str, recorded: &Value, ours: &Value, found: &mut Vec<String>) {
    match (recorded, ours) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Array(recorded), Value::Array(ours)) => {
            // A line of a diff is a pair: a text and what became of it.
            if let (Some(one), Some(other)) = (recorded.first(), ours.first()) {
                compare(&format!("{path}[]"), one, other, found);
            }
        }
        (Value::Object(recorded), Value::Object(ours)) => {
            for (key, value) in recorded {
                match ours.get(key) {
                    Some(other) if !FREE.contains(&key.as_str()) => {
                        compare(&format!("{path}.{key}"), value, other, found);
                    }
                    None if !OPTIONAL.contains(&key.as_str()) => found.push(format!("{path}.{key} is missing")),
                    _ => {}
                }
            }
            let is_known = |key: &str| recorded.contains_key(key) || OPTIONAL.contains(&key) || OURS.contains(&key);
            let surplus = ours.keys().filter(|key| !is_known(key));
            found.extend(surplus.map(|key| format!("{path}.{key} is ours alone")));
        }
        (one, other) => {
            if std::mem::discriminant(one) != std::mem::discriminant(other) {
                found.push(format!("{path}: recorded {one}, ours {other}"));
            }
        }
    }
}

/// Whether ours begins with the recorded text, behind which it may say where and what to do.
pub(crate) fn beginning(recorded: &str, ours: &str) -> Option<String> {
    let (recorded, ours) = (normal(recorded), normal(ours));
    let beginning = recorded.strip_suffix("...").unwrap_or(&recorded);
    (!ours.starts_with(beginning)).then(|| format!("recorded {recorded:?}, ours {ours:?}"))
}

/// Steps are told only while instances are updated, and only those that tell something.
pub(crate) fn odd_steps(ours: &[Value]) -> Option<String> {
    let is_told = |status: &str| RECORDED_STEPS.contains(&status) || OUR_STEPS.contains(&status);
    let is_odd = |event: &&Value| {
        let status = event["data"]["status"].as_str().unwrap_or_default();
        // On a busy machine, agents are waited for.
        let is_wait = status.starts_with("waiting for the agent at ");
        event["state"] == "in_progress" && !is_wait && !(event["stage"] == "Updating instance" && is_told(status))
    };
    ours.iter().find(is_odd).map(|event| format!("ours alone: {event}"))
}

/// What differs between the lines of one stage.
pub(crate) fn stage(name: &str, recorded: &[(String, Vec<String>, String, String)], ours: &[Value]) -> Option<String> {
    let recorded: Vec<_> = recorded.iter().filter(|(stage, ..)| stage == name).cloned().collect();
    let ours: Vec<_> = ours.iter().filter(|event| event["stage"] == name).cloned().collect();
    stages(&recorded, &ours, &[], str::to_owned)
}

/// What differs between the stages of two tasks, but for those that are ignored. Tasks of one stage may run at the same time, so
/// only the order of stages counts.
pub(crate) fn stages(
    recorded: &[(String, Vec<String>, String, String)],
    ours: &[Value],
    ignored: &[&str],
    here: impl Fn(&str) -> String,
) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = ours.iter().filter_map(|event| match event.get("stage") {
        Some(_) if event["state"] == "in_progress" => None,
        Some(stage) => Some((text(stage), event["tags"].to_string(), text(&event["task"]), text(&event["state"]))),
        None if event.get("type").is_some() => {
            Some((text(&event["type"]), "[]".into(), text(&event["message"]), String::new()))
        }
        None => None,
    });
    let recorded = recorded.iter().map(|(stage, tags, task, state)| {
        (here(stage), Value::from(tags.clone()).to_string(), here(task), state.clone())
    });
    let (recorded, ours) = (Told::of(recorded, ignored), Told::of(ours, ignored));
    difference(&recorded.order, &ours.order).or_else(|| difference(&recorded.count, &ours.count))
}

#[derive(Debug)]
struct Told {
    /// Stages in their order.
    order: Vec<String>,
    /// How often each line was written.
    count: BTreeMap<String, usize>,
}

impl Told {
    fn of(lines: impl Iterator<Item = (String, String, String, String)>, ignored: &[&str]) -> Self {
        let mut told = Self { order: Vec::new(), count: BTreeMap::new() };
        for (stage, tags, task, state) in lines {
            if ignored.contains(&stage.as_str()) || ignored.contains(&task.as_str()) {
                continue;
            }
            let stage = normal(&stage);
            if told.order.last() != Some(&stage) && !told.order.contains(&stage) {
                told.order.push(stage.clone());
            }
            *told.count.entry(format!("{stage} {tags} {} {state}", normal(&task))).or_default() += 1;
        }
        told
    }
}
