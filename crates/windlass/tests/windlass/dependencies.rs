//! What we depend on against deny.toml: licences, sources, and crates that are there twice. `cargo deny` would say the same, but
//! building it takes longer than many tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use regex_lite::Regex;

use crate::docs::pages::root;

fn policy() -> String {
    fs::read_to_string(root().join("deny.toml")).unwrap()
}

/// Name, version and licence of every crate that is built for Linux, with all features.
fn built() -> BTreeMap<(String, String), String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--all-features",
            "--target",
            "x86_64-unknown-linux-gnu",
            "--locked",
            "--offline",
        ])
        .args(["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{l}|"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = Regex::new(r"(?m)^(\S+) v([^\s|]+)[^|]*\|([^|]*)\|").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    line.captures_iter(&text).map(|it| ((it[1].to_owned(), it[2].to_owned()), it[3].to_owned())).collect()
}

/// Whether an expression such as `MIT AND (Apache-2.0 OR ISC)` can be met with the allowed licences.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ");
    let mut alternatives = vec![true];
    let mut waiting = Vec::new();
    let words = expression.replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "_WITH_");
    for word in words.split_whitespace() {
        let met = match word {
            "AND" => continue,
            "OR" => {
                alternatives.push(true);
                continue;
            }
            "(" => {
                waiting.push(std::mem::replace(&mut alternatives, vec![true]));
                continue;
            }
            ")" => {
                let inside = alternatives.contains(&true);
                alternatives = waiting.pop().unwrap();
                inside
            }
            licence => allowed.contains(&licence.replace("_WITH_", " WITH ")),
        };
        *alternatives.last_mut().unwrap() &= met;
    }
    !expression.is_empty() && alternatives.contains(&true)
}

#[test]
fn every_licence_is_one_that_we_can_keep() {
    let policy = policy();
    let (_, after) = policy.split_once("\nallow = [").unwrap();
    let (list, _) = after.split_once("\n]").unwrap();
    let entry = Regex::new(r#"(?m)^    "([^"]+)","#).unwrap();
    let allowed: BTreeSet<String> = entry.captures_iter(list).map(|found| found[1].to_owned()).collect();
    assert!(is_met("0BSD OR (MIT AND ISC)", &allowed) && is_met("MIT/Unlicense", &allowed));
    assert!(!is_met("MIT AND GPL-3.0", &allowed) && !is_met("GPL-3.0", &allowed) && !is_met("", &allowed));

    let clarified = Regex::new(r#"crate = "([^"]+)"\nexpression = "([^"]+)""#).unwrap();
    let clarified: BTreeMap<String, String> =
        clarified.captures_iter(&policy).map(|found| (found[1].to_owned(), found[2].to_owned())).collect();
    let mut used = BTreeSet::new();
    for ((name, version), told) in built() {
        let licence = clarified.get(&name).unwrap_or(&told);
        assert!(is_met(licence, &allowed), "{name} {version} is under '{licence}', which deny.toml does not allow");
        used.extend(allowed.iter().filter(|it| licence.contains(it.as_str())).cloned());
    }
    assert_eq!(used, allowed, "deny.toml allows what nothing is under");
}

#[test]
fn a_crate_is_there_twice_only_with_a_reason() {
    let skip = Regex::new(r#"crate = "([^"@]+)@([^"]+)", reason = "[^"]+""#).unwrap();
    let excused: BTreeSet<(String, String)> =
        skip.captures_iter(&policy()).map(|found| (found[1].to_owned(), found[2].to_owned())).collect();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version) in built().into_keys() {
        versions.entry(name).or_default().insert(version);
    }
    assert!(versions.len() > 200, "only {} crates were found", versions.len());
    for (name, all) in &versions {
        let others: Vec<_> = all.iter().filter(|it| !excused.contains(&(name.clone(), (*it).clone()))).collect();
        assert!(others.len() == 1, "{name} is there as {all:?}: use one, or say in deny.toml why not");
    }
    for (name, version) in &excused {
        let is_needed = versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(version));
        assert!(is_needed, "deny.toml excuses {name} {version}, which is not there twice");
    }
}

/// What only directors and operators need: an agent is in every VM, and a CPI is started for every call.
const NOT_IN_VMS: [&str; 14] = [
    "object_store",
    "sqlx",
    "windlass-blobs",
    "windlass-database",
    "windlass-director",
    "windlass-download",
    "windlass-installation",
    "windlass-operations",
    "windlass-planning",
    "windlass-release",
    "windlass-release-author",
    "windlass-render",
    "windlass-stemcell",
    "windlass-variables",
];

/// They run in every VM and in every call, and need neither.
#[test]
fn agents_and_cpis_do_without_what_directors_and_operators_need() {
    for package in
        ["windlass-agent", "windlass-cpi", "windlass-cloud-local", "windlass-cloud-incus", "windlass-cloud-sim"]
    {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--locked", "--offline"]);
        let output = tree.current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let is_unwanted = |line: &str| NOT_IN_VMS.iter().any(|name| line.split(' ').next() == Some(name));
        let unwanted: Vec<&str> = text.lines().filter(|line| is_unwanted(line)).collect();
        assert!(unwanted.is_empty(), "{package} has {unwanted:?}");
    }
    // Panics name files of the sources, in programs without symbols, too.
    let is_linked = |program: &str, source: &str| {
        Command::new("grep").args(["--text", "--quiet", "--fixed-strings", source, program]).status().unwrap().success()
    };
    let (windlass, cpi) = (env!("CARGO_BIN_EXE_windlass"), env!("CARGO_BIN_EXE_windlass-cpi"));
    assert!(is_linked(windlass, "object_store-") && is_linked(cpi, "cloud-local/src"));
    assert!(!is_linked(cpi, "object_store-"), "windlass-cpi has a store in it");
}

#[test]
fn everything_comes_from_one_registry() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let sources: BTreeSet<&str> = lock.lines().filter_map(|line| line.strip_prefix("source = ")).collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(sources.iter().all(|source| source.starts_with("\"registry+")), "{sources:?}");
}

/// One test that hangs must not hold up all the others; only who asks for every point of every sweep has the time.
#[test]
fn a_test_that_hangs_fails_unless_every_point_is_asked_for() {
    let config = fs::read_to_string(root().join(".config/nextest.toml")).unwrap();
    let limit = Regex::new(r#"period = "(\d+)s", terminate-after = (\d+)"#).unwrap();
    let (usual, all) = config.split_once("[profile.all]").unwrap();
    let number = |found: &str| found.parse::<u64>().unwrap();
    let limits: Vec<u64> = limit.captures_iter(usual).map(|it| number(&it[1]) * number(&it[2])).collect();
    assert!(limits.len() == 1 && (300..=900).contains(&limits[0]), "{limits:?}");
    assert!(!all.contains("terminate-after"), "{all}");
    let script = fs::read_to_string(root().join("bin/test")).unwrap();
    assert!(script.contains("nextest run --profile \"$profile\"") && script.contains("profile=all"), "{script}");
}

/// With certain features of serde_json, which any crate may switch on for all, an object with one key becomes another document: a text of a
/// few letters more is a million values that nobody counted.
#[test]
fn an_object_of_json_is_an_object_whatever_its_keys_are() {
    for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let text = serde_json::json!({ key: "12" }).to_string();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[key], "12", "{text}");
    }
}
