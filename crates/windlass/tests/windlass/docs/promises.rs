//! SPECIFICATION.md and the decisions in docs/architecture.md against the tree: a promise whose test was renamed or removed is only words.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use regex_lite::Regex;

use super::pages::{all, root};
use super::reference::sources;

/// What a promise can name in a crate.
struct Names {
    tests: BTreeSet<String>,
    /// Modules that have tests, and those around them.
    modules: BTreeSet<String>,
}

impl Names {
    fn of(folder: &Path) -> Self {
        let test = Regex::new(concat!(
            r"#\[(?:tokio::)?test(?:\([^)]*\))?\]\s*",
            r"(?:(?:#\[[^\]]*\]|///[^\n]*)\s*)*",
            r"(?:async )?fn ([a-z0-9_]+)\("
        ))
        .unwrap();
        // A macro that makes tests is told their names first.
        let made = Regex::new(r"(?m)^\s+([a-z_]+): [A-Z]\w+,").unwrap();
        let mut names = Self { tests: BTreeSet::new(), modules: BTreeSet::new() };
        for file in sources(folder) {
            let text = fs::read_to_string(&file).unwrap();
            let before = names.tests.len();
            names.tests.extend(test.captures_iter(&text).map(|found| found[1].to_owned()));
            if text.contains("fn $test(") {
                names.tests.extend(made.captures_iter(&text).map(|found| found[1].to_owned()));
            }
            // The tests of a file may stand in one beside it.
            if names.tests.len() > before || text.contains("mod tests;") {
                let inside = file.strip_prefix(folder).unwrap().with_extension("");
                names.modules.extend(inside.iter().map(|part| part.to_str().unwrap().to_owned()));
            }
        }
        names
    }
}

/// How many words of test names a page has from a heading on, and which of them no crate has.
fn names_of_tests(name: &str, heading: &str) -> (usize, Vec<String>) {
    let page = all().into_iter().find(|page| page.name == name).unwrap();
    let mut crates: HashMap<String, Names> = HashMap::new();
    let mut folder = String::new();
    let (mut looked, mut missing) = (0, Vec::new());
    let text = fs::read_to_string(root().join(name)).unwrap();
    let first = text.lines().position(|line| line == heading).unwrap();
    for (line, code) in page.code().into_iter().filter(|(line, _)| *line > first) {
        let Some((beginning, rest)) = code.split_once("::") else { continue };
        if beginning != "…" {
            folder = beginning.to_owned();
        }
        let path = root().join("crates").join(&folder);
        // Anything else with colons in it names no test.
        if !path.is_dir() {
            continue;
        }
        let names = crates.entry(folder.clone()).or_insert_with(|| Names::of(&path));
        let words: Vec<&str> = rest.split("::").collect();
        for (index, word) in words.iter().enumerate().filter(|(_, word)| !word.contains('…')) {
            let is_test = index + 1 == words.len() && names.tests.contains(*word);
            if !is_test && !names.modules.contains(*word) {
                missing.push(format!("{name}:{line}: crates/{folder} has no test '{word}'"));
            }
            looked += 1;
        }
    }
    (looked, missing)
}

#[test]
fn every_promise_names_a_test_that_is_there() {
    let (looked, missing) = names_of_tests("SPECIFICATION.md", "# What Windlass promises");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(looked > 500, "only {looked} were found");
}

#[test]
fn every_decision_has_a_number_a_file_and_a_test() {
    let (_, missing) = names_of_tests("docs/architecture.md", "## Decisions");
    assert!(missing.is_empty(), "{}", missing.join("\n"));

    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let decisions = text.split_once("## Decisions").unwrap().1;
    let number = Regex::new(r"(?m)^(\d+)\. \*\*").unwrap();
    let starts: Vec<_> = number.captures_iter(decisions).collect();
    assert!(starts.len() > 50, "only {} were found", starts.len());
    let file_and_test = Regex::new(r"(?m)^ +`[a-z-]+/src/[^`]+\.rs`, `[a-z-]+::[^`]+`$").unwrap();
    for (index, start) in starts.iter().enumerate() {
        assert_eq!(start[1], (index + 1).to_string(), "decisions are numbered one after the other");
        let from = start.get(0).unwrap().start();
        let to = starts.get(index + 1).map_or(decisions.len(), |next| next.get(0).unwrap().start());
        let found = file_and_test.find_iter(&decisions[from..to]).count();
        assert_eq!(found, 1, "decision {}: its last line is not `CRATE/src/FILE.rs`, `CRATE::TEST`", index + 1);
    }
}

#[test]
fn every_file_of_the_map_is_there() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let file = Regex::new(r"`([a-z-]+/(?:src|tests)/[^` ]+)`").unwrap();
    let named: BTreeSet<_> = file.captures_iter(&text).map(|found| found[1].to_owned()).collect();
    assert!(named.len() > 150, "only {} were found", named.len());
    let missing: Vec<_> = named.iter().filter(|path| !root().join("crates").join(path).exists()).collect();
    assert!(missing.is_empty(), "docs/architecture.md names {missing:?}");
}

/// A promise is kept today, or it is none.
#[test]
fn no_promise_waits_for_something_that_is_not_built() {
    let text = fs::read_to_string(root().join("SPECIFICATION.md")).unwrap();
    for (index, line) in text.lines().enumerate() {
        for words in ["comes with issue", "name its issue", "not built yet", "is planned for"] {
            assert!(!line.contains(words), "SPECIFICATION.md:{}: '{words}'", index + 1);
        }
    }
}
