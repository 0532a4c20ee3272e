//! The table of crates in docs/architecture.md against their Cargo.toml: which there are, and which of ours each uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use regex_lite::Regex;

use super::pages::root;

/// What each crate uses of ours, features included, as its Cargo.toml says.
fn used() -> BTreeMap<String, BTreeSet<String>> {
    let ours = Regex::new(r"(?m)^windlass-([a-z-]+)\b").unwrap();
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let manifests = folders.filter(|folder| folder.join("Cargo.toml").exists()).map(|folder| {
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let dependencies = text.split("\n[").filter_map(|section| section.strip_prefix("dependencies]\n"));
        let uses = dependencies.flat_map(|section| ours.captures_iter(section).map(|found| found[1].to_owned()));
        (folder.file_name().unwrap().to_str().unwrap().to_owned(), uses.collect())
    });
    manifests.collect()
}

/// What the table says; behind a semicolon stands what a feature uses.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `crates/([a-z-]+)` \|.*\| ([^|]+) \|$").unwrap();
    let uses = |cell: &str| {
        let names = cell.split([',', ';']).map(|part| part.rsplit(':').next().unwrap_or(part).trim());
        names.filter(|name| *name != "–").map(str::to_owned).collect()
    };
    row.captures_iter(&page).map(|found| (found[1].to_owned(), uses(&found[2]))).collect()
}

#[test]
fn the_table_of_crates_says_what_each_uses() {
    let (used, documented) = (used(), documented());
    assert!(used.len() > 15, "{used:?}");
    assert_eq!(documented.keys().collect::<Vec<_>>(), used.keys().collect::<Vec<_>>());
    for (name, uses) in used {
        assert_eq!(documented[&name], uses, "docs/architecture.md, crates/{name}, column 'uses (of ours)'");
    }
}

/// Each binary of tests links everything that a crate depends on, so a crate has one, with modules.
#[test]
fn each_crate_has_one_binary_of_integration_tests() {
    for name in used().keys() {
        let Ok(entries) = fs::read_dir(root().join("crates").join(name).join("tests")) else { continue };
        let paths = entries.map(|entry| entry.unwrap().path());
        let targets: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|it| it == "rs") || path.join("main.rs").exists())
            .collect();
        assert_eq!(targets.len(), 1, "crates/{name}: {targets:?}");
    }
}
