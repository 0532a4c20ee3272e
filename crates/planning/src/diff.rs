//! What changes between two documents, as clients show it: lines of YAML, each added, removed or there to say where.
//!
//! The comparison is one of structure, as the original's: lists of things with names are matched by name (those without, by
//! range), so that moving something changes nothing. A deployment is compared together with the configs that it uses.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_contract::secret::REDACTED;
use windlass_manifest::{Document, to_yaml};

use crate::records::ConfigRecord;

/// A line, and `added`, `removed` or nothing.
pub type Line = (String, Option<&'static str>);

const ADDED: Option<&str> = Some("added");
const REMOVED: Option<&str> = Some("removed");
const INDENT: usize = 2;

/// How many bytes of lines a difference has. Each level of a document is two letters on every line below it, so the difference
/// of a small document with many levels would be a hundred times as large.
const MOST: usize = 8 << 20;

/// Top-level keys that come first, in this order; the others follow in theirs.
const ORDER: [&str; 15] = [
    "azs",
    "vm_types",
    "vm_extensions",
    "resource_pools",
    "compilation",
    "networks",
    "disk_types",
    "disk_pools",
    "name",
    "stemcells",
    "releases",
    "update",
    "jobs",
    "addons",
    "variables",
];

/// The difference between two texts; empty when they mean the same.
pub fn diff(before: Option<&str>, after: &str, redact: bool) -> Result<Vec<Line>, String> {
    compare(&read(before.unwrap_or_default())?, &read(after)?, redact)
}

/// The difference between two deployments, each with the configs that it uses.
pub fn diff_deployments(
    before: Option<(&str, &[ConfigRecord])>,
    after: (&str, &[ConfigRecord]),
    redact: bool,
) -> Result<Vec<Line>, String> {
    let before = before.map(|(manifest, configs)| manifest_with_configs(manifest, configs)).transpose()?;
    compare(&before.unwrap_or_default(), &manifest_with_configs(after.0, after.1)?, redact)
}

fn read(text: &str) -> Result<Object, String> {
    match Document::parse(text).map_err(|error| error.to_string())?.node().to_json() {
        Value::Null => Ok(Object::new()),
        Value::Object(object) => Ok(object),
        _ => Err("expected an object".to_owned()),
    }
}

/// The manifest with what the configs add to it.
fn manifest_with_configs(manifest: &str, configs: &[ConfigRecord]) -> Result<Object, String> {
    let mut whole = read(manifest)?;
    let mut cloud = Object::new();
    let mut tags = Object::new();
    for config in configs {
        let content = read(&config.content)?;
        match config.kind.as_str() {
            "cloud" => {
                for key in ["azs", "vm_types", "disk_types", "networks", "vm_extensions"] {
                    let list = cloud.entry(key).or_insert_with(|| json!([]));
                    append(list, content.get(key));
                }
                cloud.extend(content.get("compilation").map(|block| ("compilation".to_owned(), block.clone())));
            }
            "runtime" => {
                for key in ["releases", "addons", "variables"] {
                    if content.get(key).is_some_and(|list| *list != json!([])) {
                        append(whole.entry(key).or_insert_with(|| json!([])), content.get(key));
                    }
                }
                tags.extend(content.get("tags").and_then(Value::as_object).cloned().unwrap_or_default());
            }
            _ => {}
        }
    }
    whole.extend(cloud);
    if !tags.is_empty() {
        tags.extend(whole.get("tags").and_then(Value::as_object).cloned().unwrap_or_default());
        whole.insert("tags".into(), tags.into());
    }
    Ok(whole)
}

/// Adds what is not there yet.
fn append(list: &mut Value, more: Option<&Value>) {
    if let (Value::Array(list), Some(Value::Array(more))) = (list, more) {
        let known: BTreeSet<String> = list.iter().map(canonical).collect();
        list.extend(more.iter().filter(|new| !known.contains(&canonical(new))).cloned());
    }
}

/// The same text for the same value, whatever the order of its keys. It is as long as the value: text within text would double
/// with each level.
fn canonical(value: &Value) -> String {
    let mut sorted = value.clone();
    sorted.sort_all_objects();
    sorted.to_string()
}

/// A value, and what of it is shown.
#[derive(Clone, Copy)]
struct Shown<'a> {
    value: &'a Value,
    shown: &'a Value,
}

impl<'a> Shown<'a> {
    fn get(self, key: &str) -> Option<Self> {
        let of = |value: &'a Value| value.get(key).filter(|value| !value.is_null());
        Some(Self { value: of(self.value)?, shown: of(self.shown)? })
    }

    fn elements(self) -> Vec<Self> {
        let (Value::Array(values), Value::Array(shown)) = (self.value, self.shown) else { return Vec::new() };
        values.iter().zip(shown).map(|(value, shown)| Self { value, shown }).collect()
    }
}

fn compare(before: &Object, after: &Object, redact: bool) -> Result<Vec<Line>, String> {
    let (before, after) = (Value::Object(before.clone()), Value::Object(after.clone()));
    let (mut shown_before, mut shown_after) = (before.clone(), after.clone());
    if redact {
        hide(&mut shown_before);
        hide(&mut shown_after);
    }
    let (before, after) =
        (Shown { value: &before, shown: &shown_before }, Shown { value: &after, shown: &shown_after });
    let room = RoomForLines(Cell::new(MOST));
    let mut lines = Lines::new(&room);
    objects(before, after, 0, &mut lines).map_err(|TooLarge| {
        format!(
            "the difference has more than {} MiB; compare less at once, or with fewer levels within each other",
            MOST >> 20
        )
    })?;
    Ok(in_sections(lines.lines))
}

/// The difference has more lines than anybody reads.
#[derive(Debug)]
struct TooLarge;

/// How many bytes of lines there may still be.
struct RoomForLines(Cell<usize>);

impl RoomForLines {
    fn take(&self, bytes: usize) -> Result<(), TooLarge> {
        self.0.set(self.0.get().checked_sub(bytes).ok_or(TooLarge)?);
        Ok(())
    }

    /// Takes the room of a value's lines before anything is written.
    fn take_for(&self, value: &Value, level: usize) -> Result<(), TooLarge> {
        match value {
            Value::Object(object) => object.iter().try_for_each(|(key, value)| {
                self.take(level * INDENT + key.len() + 2)?;
                self.take_for(value, level + 1)
            }),
            Value::Array(values) => values.iter().try_for_each(|value| {
                self.take(level * INDENT + 2)?;
                self.take_for(value, level + 1)
            }),
            Value::String(text) => self.take(level * INDENT * text.matches('\n').count() + text.len()),
            _ => self.take(1),
        }
    }
}

struct Lines<'r> {
    lines: Vec<Line>,
    room: &'r RoomForLines,
}

impl<'r> Lines<'r> {
    fn new(room: &'r RoomForLines) -> Self {
        Self { lines: Vec::new(), room }
    }

    fn push(&mut self, line: String) -> Result<(), TooLarge> {
        self.room.take(line.len())?;
        self.lines.push((line, None));
        Ok(())
    }
}

fn objects(before: Shown<'_>, after: Shown<'_>, indent: usize, lines: &mut Lines<'_>) -> Result<(), TooLarge> {
    let keys = |shown: Shown<'_>| -> Vec<String> {
        shown.value.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all = keys(before);
    all.extend(keys(after).into_iter().filter(|key| before.value.get(key).is_none()));
    for key in all {
        let entry = |shown: Shown<'_>| json!({ &key: shown.shown });
        match (before.get(&key), after.get(&key)) {
            (None, None) => {}
            (Some(old), Some(new)) if old.value == new.value => {}
            (None, Some(new)) => write(&entry(new), indent, ADDED, lines)?,
            (Some(old), None) => write(&entry(old), indent, REMOVED, lines)?,
            (Some(old), Some(new)) => match (old.value, new.value) {
                (Value::Array(_), Value::Array(_)) => {
                    under(&key, indent, lines, |lines| lists(old, new, indent, lines))?;
                }
                (Value::Object(_), Value::Object(_)) => {
                    under(&key, indent, lines, |lines| objects(old, new, indent + 1, lines))?;
                }
                _ => {
                    write(&entry(old), indent, REMOVED, lines)?;
                    write(&entry(new), indent, ADDED, lines)?;
                }
            },
        }
    }
    Ok(())
}

/// What changed below a key, with the key above it.
fn under(
    key: &str,
    indent: usize,
    lines: &mut Lines<'_>,
    write: impl FnOnce(&mut Lines<'_>) -> Result<(), TooLarge>,
) -> Result<(), TooLarge> {
    let mut below = Lines::new(lines.room);
    write(&mut below)?;
    if !below.lines.is_empty() {
        lines.push(format!("{}{key}:", " ".repeat(indent * INDENT)))?;
        lines.lines.extend(below.lines);
    }
    Ok(())
}

/// Elements that are not among those of the other list.
fn without<'a>(list: Shown<'a>, other: Shown<'_>) -> Vec<Shown<'a>> {
    let others: BTreeSet<String> = other.elements().iter().map(|element| canonical(element.value)).collect();
    list.elements().into_iter().filter(|element| !others.contains(&canonical(element.value))).collect()
}

fn lists(before: Shown<'_>, after: Shown<'_>, indent: usize, lines: &mut Lines<'_>) -> Result<(), TooLarge> {
    let (added, removed) = (without(after, before), without(before, after));
    let all_have = |key: &str| {
        let mut elements = added.iter().chain(&removed).filter(|element| !element.value.is_null());
        elements.all(|element| element.get(key).is_some())
    };
    let key = ["name", "range"].into_iter().find(|key| all_have(key));
    let name_of = |element: &Shown<'_>| Some(canonical(element.get(key?)?.value));
    let mut by_name: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
    for (index, element) in removed.iter().enumerate() {
        if let Some(name) = name_of(element) {
            by_name.entry(name).or_default().push_back(index);
        }
    }
    let mut matched = BTreeSet::new();
    for new in &added {
        let Some(index) = name_of(new).and_then(|name| by_name.get_mut(&name)?.pop_front()) else {
            write(&json!([new.shown]), indent, ADDED, lines)?;
            continue;
        };
        matched.insert(index);
        let mut below = Lines::new(lines.room);
        objects(removed[index], *new, indent + 1, &mut below)?;
        if let (false, Some(key)) = (below.lines.is_empty(), key) {
            write(&json!([{ key: new.shown.get(key) }]), indent, None, lines)?;
            lines.lines.extend(below.lines);
        }
    }
    let gone: Vec<_> =
        removed.iter().enumerate().filter(|(index, _)| !matched.contains(index)).map(|(_, old)| old.shown).collect();
    if !gone.is_empty() {
        write(&json!(gone), indent, REMOVED, lines)?;
    }
    Ok(())
}

fn write(value: &Value, indent: usize, status: Option<&'static str>, lines: &mut Lines<'_>) -> Result<(), TooLarge> {
    lines.room.take_for(value, indent)?;
    let yaml = to_yaml(value);
    lines.lines.extend(yaml.lines().map(|line| (format!("{}{line}", " ".repeat(indent * INDENT)), status)));
    Ok(())
}

/// One section per top-level key, with an empty line between them.
fn in_sections(lines: Vec<Line>) -> Vec<Line> {
    let mut sections: Vec<Vec<Line>> = Vec::new();
    for line in lines {
        match sections.last_mut() {
            Some(section) if line.0.starts_with([' ', '-']) => section.push(line),
            _ => sections.push(vec![line]),
        }
    }
    let rank = |section: &Vec<Line>| {
        let is_it = |key: &&str| section[0].0.strip_suffix(':') == Some(*key);
        ORDER.iter().position(is_it).unwrap_or(ORDER.len())
    };
    sections.sort_by_key(rank);
    let mut ordered = Vec::new();
    for section in sections {
        if !ordered.is_empty() {
            ordered.push((String::new(), None));
        }
        ordered.extend(section);
    }
    ordered
}

/// Values below `properties` and `bosh` are often secrets; so are credentials in the addresses of releases.
fn hide(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match (key.as_str(), &mut *value) {
                    ("properties" | "bosh", value) => hide_leaves(value),
                    ("url", Value::String(url)) => hide_credentials(url),
                    (_, value) => hide(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        _ => {}
    }
}

fn hide_leaves(value: &mut Value) {
    match value {
        Value::Object(object) => object.values_mut().for_each(hide_leaves),
        Value::Array(values) => values.iter_mut().for_each(hide_leaves),
        leaf => *leaf = Value::String(REDACTED.to_owned()),
    }
}

fn hide_credentials(url: &mut String) {
    if let Some((scheme, rest)) = url.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if let Some(at) = rest[..end].rfind('@') {
            *url = format!("{scheme}://{REDACTED}{}", &rest[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(lines: &[Line]) -> String {
        let sign = |status: &Option<&str>| match *status {
            ADDED => '+',
            REMOVED => '-',
            _ => ' ',
        };
        lines.iter().map(|(line, status)| format!("{} {line}\n", sign(status))).collect()
    }

    #[test]
    fn only_what_changed_is_shown_and_secrets_are_not() {
        let before = "name: a\nenv: {bosh: {password: old}}\ninstances: 1\n";
        assert_eq!(diff(Some(before), before, true).unwrap(), []);
        let after = "name: a\nenv: {bosh: {password: new}}\ninstances: 2\n";
        let lines = text(&diff(Some(before), after, true).unwrap());
        assert_eq!(
            lines,
            "  env:\n    bosh:\n-     password: \"<redacted>\"\n+     password: \"<redacted>\"\n  \n- instances: 1\n  \n+ instances: 2\n",
            "that it changed is told, to what is not"
        );
        assert!(text(&diff(Some(before), after, false).unwrap()).contains("+     password: new"));
        let url = "releases: [{name: r, url: 'https://user:secret@host/r.tgz'}]\n";
        assert!(text(&diff(None, url, true).unwrap()).contains("url: https://<redacted>@host/r.tgz"));
    }

    #[test]
    fn everything_of_a_new_document_is_added() {
        assert_eq!(diff(None, "name: a\n", true).unwrap(), [("name: a".to_owned(), ADDED)]);
        assert!(diff(None, "a: [", true).is_err());
        assert!(diff(None, "[a]", true).is_err());
    }

    #[test]
    fn things_are_matched_by_name_and_the_path_to_a_change_is_shown() {
        let before =
            "instance_groups:\n- {name: db, instances: 1}\n- {name: web, instances: 2, networks: [{name: a}]}\n";
        let after =
            "instance_groups:\n- {name: web, instances: 3, networks: [{name: b}]}\n- {name: db, instances: 1}\n";
        assert_eq!(
            text(&diff(Some(before), after, true).unwrap()),
            "  instance_groups:\n  - name: web\n-   instances: 2\n+   instances: 3\n    networks:\n+   - name: b\n-   - name: a\n"
        );
    }

    /// Readers choose both sides, and a document may have a hundred levels.
    #[test]
    fn deep_documents_are_compared_as_quickly_as_flat_ones() {
        let deep = |leaf: &str| format!("a: {}{leaf}{}\n", "[".repeat(90), "]".repeat(90));
        let maps = |leaf: &str| format!("a: [{}{leaf}{}]\n", "{b: ".repeat(90), "}".repeat(90));
        let begun = std::time::Instant::now();
        for document in [&deep as &dyn Fn(&str) -> String, &maps] {
            let lines = text(&diff(Some(&document("x")), &document("y"), true).unwrap());
            assert!(lines.contains('x') && lines.contains('y'), "{lines}");
        }
        assert!(begun.elapsed().as_secs() < 1, "{:?}", begun.elapsed());
    }

    /// What readers ask for is not a hundred times as large as what they send.
    #[test]
    fn a_difference_that_nobody_could_read_is_refused_with_the_remedy() {
        let deep = |lines: usize, levels: usize| {
            let keys: Vec<String> = (0..lines).map(|number| format!("k{number}: 1")).collect();
            format!("a: {}{{{}}}{}\n", "{b: ".repeat(levels), keys.join(", "), "}".repeat(levels))
        };
        let refused = diff(None, &deep(60_000, 90), true).unwrap_err();
        assert!(refused.starts_with("the difference has more than 8 MiB; compare less at once"), "{refused}");
        let refused = diff_deployments(None, (&deep(60_000, 90), &[]), true).unwrap_err();
        assert!(refused.contains("8 MiB"), "{refused}");
        assert_eq!(diff(None, &deep(60_000, 3), true).unwrap().len(), 60_004);
        let lists = format!("a: {}{}{}\n", "[".repeat(90), vec!["1"; 60_000].join(", "), "]".repeat(90));
        let lines = diff(None, &lists, true);
        let bytes = lines.map_or(0, |lines| lines.iter().map(|(line, _)| line.len()).sum());
        assert!(bytes <= MOST, "{bytes}");
    }

    fn config(kind: &str, content: &str) -> ConfigRecord {
        ConfigRecord {
            id: 1,
            kind: kind.into(),
            name: "default".into(),
            content: content.into(),
            created_at: 0,
            team: None,
        }
    }

    #[test]
    fn a_deployment_is_shown_with_its_configs_in_the_originals_order() {
        let configs = [
            config("cloud", "networks: [{name: net, type: dynamic}]\nazs: [{name: z1}]\n"),
            config("runtime", "releases: []\ntags: {runtime: 'x', team: none}\n"),
        ];
        let manifest =
            "name: shop\ninstance_groups: [{name: web}]\nstemcells: [{alias: default}]\ntags: {team: shop}\n";
        let lines = diff_deployments(None, (manifest, &configs), true).unwrap();
        assert_eq!(
            text(&lines),
            "+ azs:\n+ - name: z1\n  \n+ networks:\n+ - name: net\n+   type: dynamic\n  \n+ stemcells:\n+ - alias: default\n  \n+ name: shop\n  \n+ instance_groups:\n+ - name: web\n  \n+ tags:\n+   runtime: x\n+   team: shop\n  \n+ vm_types: []\n  \n+ disk_types: []\n  \n+ vm_extensions: []\n"
        );
        let again = Some((manifest, &configs[..]));
        assert_eq!(diff_deployments(again, (manifest, &configs), true).unwrap(), []);
        let bigger = [
            config("cloud", "networks: [{name: net, type: dynamic}]\nazs: [{name: z1, cpi: c}]\n"),
            configs[1].clone(),
        ];
        let lines = diff_deployments(again, (manifest, &bigger), true).unwrap();
        assert_eq!(
            text(&lines),
            "  azs:\n  - name: z1\n+   cpi: c\n",
            "a change of the cloud config is a change of the deployment"
        );
    }

    /// Null counts as missing, and the order of a list means nothing: `plain` documents have neither.
    fn documents(plain: bool) -> impl Strategy<Value = Object> {
        let number = (0..3).prop_map(|number| json!(number));
        let leaf = if plain {
            number.boxed()
        } else {
            prop_oneof![Just(json!(null)), number, "[ab]".prop_map(Value::from)].boxed()
        };
        let values = leaf.prop_recursive(4, 24, 4, move |inner| {
            let list = prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
            let object = objects_of(inner).prop_map(Value::from);
            if plain { object.boxed() } else { prop_oneof![list, object].boxed() }
        });
        objects_of(values)
    }

    fn objects_of(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Object> {
        let keys = prop::sample::select(vec!["name", "range", "azs", "properties", "x"]);
        prop::collection::vec((keys, values), 0..4)
            .prop_map(|entries| entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    proptest! {
        #[test]
        fn something_is_said_if_and_only_if_something_changed(before in documents(true), after in documents(true)) {
            prop_assert_eq!(compare(&before, &after, true).unwrap().is_empty(), before == after);
        }

        #[test]
        fn no_document_makes_it_panic(before in documents(false), after in documents(false)) {
            prop_assert_eq!(compare(&before, &before, true).unwrap(), []);
            compare(&before, &after, true).unwrap();
        }
    }
}
