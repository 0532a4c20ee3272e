//! docs/configuration.md against the code: every key and every variable of either is in the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex_lite::Regex;
use windlass_director::settings::Settings;

use super::pages::{Page, all, root};

/// Structures that are read from configurations, and the page that has their keys.
const STRUCTURES: [(&str, &str, &str); 10] = [
    ("crates/cloud-incus/src/config.rs", "IncusConfig", REFERENCE),
    ("crates/cloud-local/src/config.rs", "LocalConfig", REFERENCE),
    ("crates/cpi/src/config.rs", "AgentProperties", REFERENCE),
    ("crates/cpi/src/config.rs", "RegistryProperties", REFERENCE),
    ("crates/cpi/src/config.rs", "Limits", REFERENCE),
    ("crates/cloud-sim/src/config.rs", "SimConfig", SIM),
    ("crates/cloud-sim/src/config.rs", "Capacity", SIM),
    ("crates/cloud-sim/src/agents/behaviour.rs", "AgentBehaviour", SIM),
    ("crates/cloud-sim/src/faults.rs", "Fault", SIM),
    ("crates/cloud-sim/src/catalogue.rs", "VmType", SIM),
];
const REFERENCE: &str = "docs/configuration.md";
const SIM: &str = "crates/cloud-sim/README.md";
/// What reads documents of operators, with lists of the keys that it knows.
const DIRECTOR: &str = "crates/director/src/settings/read.rs";
const CPI_CONFIG: &str = "crates/planning/src/desired/cpi_config.rs";

/// Variables of tests and of processes that we start ourselves; nobody sets them by hand.
const INTERNAL: [&str; 23] = [
    "BOSH_COMPILE_TARGET",
    "BOSH_DEPLOYMENT_NEXT_STATE",
    "BOSH_INSTALL_TARGET",
    "BOSH_INSTANCE_NEXT_STATE",
    "BOSH_JOBS_DIR",
    "BOSH_JOB_NEXT_STATE",
    "BOSH_JOB_STATE",
    "BOSH_PACKAGES_DIR",
    "BOSH_PACKAGE_NAME",
    "BOSH_PACKAGE_VERSION",
    "BOSH_VM_NEXT_STATE",
    "WINDLASS_AGENT",
    "WINDLASS_INCUS_ROOT",
    "WINDLASS_KILL_AT",
    "WINDLASS_MONIT",
    "WINDLASS_MONIT_FILES",
    "WINDLASS_ORIGINAL_AGENT",
    "WINDLASS_ORIGINAL_AGENTS",
    "WINDLASS_OWN_MACHINE",
    "WINDLASS_PEAK_FROM",
    "WINDLASS_POINTS",
    "WINDLASS_SEED",
    "WINDLASS_VM",
];

fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn page(name: &str) -> Page {
    all().into_iter().find(|page| page.name == name).unwrap()
}

/// Whether a page has a word, in code or in a block.
fn has(page: &Page, word: &str) -> bool {
    let whole = Regex::new(&format!(r"\b{word}\b")).unwrap();
    page.code().iter().any(|(_, code)| whole.is_match(code)) || page.blocks.iter().any(|it| whole.is_match(&it.text))
}

fn fields(path: &str, structure: &str) -> Vec<String> {
    let text = source(path);
    let (_, after) = text.split_once(&format!("struct {structure} {{")).unwrap();
    let (body, _) = after.split_once("\n}").unwrap();
    let field = Regex::new(r"(?m)^    (?:pub )?([a-z_]+): ").unwrap();
    field.captures_iter(body).map(|found| found[1].to_owned()).collect()
}

/// The words of lists of keys.
fn listed_keys(path: &str) -> BTreeSet<String> {
    let text = source(path);
    let (code, _) = text.split_once("#[cfg(test)]").unwrap();
    let list = Regex::new(r#"(?:[A-Z_]*KEYS: \[&str; \d+\] = |keys = |strictly\([a-z&]+, &)\[([^\]]*)\]"#).unwrap();
    let word = Regex::new(r#""([a-z_]+)""#).unwrap();
    let lists: Vec<String> = list.captures_iter(code).map(|found| found[1].to_owned()).collect();
    lists
        .iter()
        .flat_map(|list| word.captures_iter(list).map(|found| found[1].to_owned()).collect::<Vec<_>>())
        .collect()
}

pub(crate) fn every_key_of_the_code_is_in_the_reference() {
    let reference = page(REFERENCE);
    for (path, at_least) in [(DIRECTOR, 35), (CPI_CONFIG, 5)] {
        let keys = listed_keys(path);
        assert!(keys.len() >= at_least, "{keys:?}");
        for key in &keys {
            assert!(has(&reference, key), "{REFERENCE} lacks '{key}', which {path} knows");
        }
    }
    for (path, structure, name) in STRUCTURES {
        let page = page(name);
        let fields = fields(path, structure);
        assert!(!fields.is_empty(), "{structure} in {path} has no fields");
        for field in fields {
            assert!(has(&page, &field), "{name} lacks '{field}' of {structure}");
        }
    }
}

pub(crate) fn every_variable_of_the_code_is_in_the_reference() {
    let reference = page(REFERENCE);
    let variable = Regex::new(r#""((?:WINDLASS|BOSH|XDG)_[A-Z_]+)""#).unwrap();
    let mut found = BTreeSet::new();
    for file in sources(&root().join("crates")).iter().filter(|file| !file.iter().any(|part| part == "tests")) {
        let text = fs::read_to_string(file).unwrap();
        found.extend(variable.captures_iter(&text).map(|found| found[1].to_owned()));
    }
    assert!(found.len() > 10, "{found:?}");
    for name in found.iter().filter(|name| !INTERNAL.contains(&name.as_str())) {
        assert!(has(&reference, name), "{REFERENCE} lacks the variable {name}");
    }
}

/// Files in a folder and those below.
pub(crate) fn sources(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false if path.extension().is_some_and(|it| it == "rs") => vec![path],
            false => Vec::new(),
        })
        .collect()
}

pub(crate) fn every_key_of_the_reference_is_in_the_code() {
    let text = source(REFERENCE);
    let (_, section) = text.split_once("## The director").unwrap();
    let (section, after) = section.split_once("## A CPI").unwrap();
    let known = listed_keys(DIRECTOR);
    for key in first_cells(section) {
        for part in key.split('.') {
            assert!(known.contains(part), "{REFERENCE}: director.yml has no '{key}'");
        }
    }
    let (_, local) = after.split_once("### The embedded cloud").unwrap();
    let (local, incus) = local.split_once("### An Incus or LXD cluster").unwrap();
    let (incus, _) = incus.split_once("### The simulated cloud").unwrap();
    for (section, path, structure) in [
        (local, "crates/cloud-local/src/config.rs", "LocalConfig"),
        (incus, "crates/cloud-incus/src/config.rs", "IncusConfig"),
    ] {
        let known = fields(path, structure);
        for key in first_cells(section) {
            assert!(known.contains(&key), "{REFERENCE}: {structure} has no '{key}'");
        }
    }
}

/// The code in the first cells of tables.
fn first_cells(section: &str) -> Vec<String> {
    let cell = Regex::new(r"(?m)^\| `([a-z_.]+)`").unwrap();
    let cells: Vec<String> = cell.captures_iter(section).map(|found| found[1].to_owned()).collect();
    assert!(!cells.is_empty());
    cells
}

/// A director refuses keys that it does not know.
pub(crate) fn the_examples_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let reference = page(REFERENCE);
    let example = reference.blocks_in("yaml").find(|block| block.file.as_deref() == Some("director.yml")).unwrap();
    let path = folder.path().join("director.yml");
    fs::write(&path, &example.text).unwrap();
    let settings = Settings::load(Some(&path), folder.path()).unwrap();
    let defaults = Settings::default();
    // The example shows defaults where there are any.
    assert_eq!(settings.listen, defaults.listen);
    assert_eq!(settings.resurrector, defaults.resurrector);
    assert_eq!(settings.schedules, defaults.schedules);
    assert_eq!((settings.workers, settings.max_threads), (defaults.workers, defaults.max_threads));
    assert_eq!((settings.cpi_deadline, settings.certificates.ca), (defaults.cpi_deadline, defaults.certificates.ca));
    for page in all() {
        for block in page.blocks_in("json") {
            let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block.text);
            assert!(parsed.is_ok(), "{}:{}: {:?}", page.name, block.line, parsed.err());
        }
    }
}
