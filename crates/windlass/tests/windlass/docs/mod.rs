//! What the pages say is so: their commands work as written, their links lead somewhere, the command lines that they mention are
//! understood, and the reference of the configuration is complete.
//!
//! A fenced block of `sh` is run, those of a page one after the other; a block of `yaml` or `json` whose fence names a file is
//! that file. What cannot be run stands in [`script::NOT_RUN`], with the reason.

mod crate_table;
pub(crate) mod pages;
mod promises;
mod reference;
mod script;
mod symptoms;

use std::process::Command;

use windlass_rigs::own_machine::is_own_machine;

use pages::{Page, all, root};

const LANGUAGES: [&str; 5] = ["sh", "text", "yaml", "json", "rust"];

/// Runs one page as root on a machine of its own, and as an ordinary user with an empty home there.
fn works(test: &str, page: &str, users: &[script::User]) {
    if is_own_machine(test) {
        let page = all().into_iter().find(|found| found.name == page).unwrap();
        for user in users {
            script::run(&page, *user);
        }
    }
}

#[test]
fn the_readme_works_for_everybody() {
    works("docs::the_readme_works_for_everybody", "README.md", &[script::User::Root, script::User::Nobody]);
}

#[test]
fn the_operators_guide_works() {
    works("docs::the_operators_guide_works", "docs/operating.md", &[script::User::Root]);
}

#[test]
fn the_guide_for_authors_of_cpis_works() {
    works("docs::the_guide_for_authors_of_cpis_works", "docs/writing-a-cpi.md", &[script::User::Nobody]);
}

#[test]
fn the_guide_to_create_env_works() {
    works("docs::the_guide_to_create_env_works", "docs/create-env.md", &[script::User::Nobody]);
}

#[test]
fn the_guide_to_the_registry_works() {
    works("docs::the_guide_to_the_registry_works", "docs/registry.md", &[script::User::Root]);
}

#[test]
fn the_guide_to_certification_works() {
    works("docs::the_guide_to_certification_works", "crates/certify/README.md", &[script::User::Nobody]);
}

#[test]
fn the_guide_to_the_simulated_cloud_works() {
    works("docs::the_guide_to_the_simulated_cloud_works", "crates/cloud-sim/README.md", &[script::User::Nobody]);
}

#[test]
fn the_tutorial_works_for_everybody() {
    works("docs::the_tutorial_works_for_everybody", "docs/tutorial.md", &[script::User::Root, script::User::Nobody]);
}

/// The pages above, and those whose commands all stand in `NOT_RUN`.
const RUN: [&str; 10] = [
    "CONTRIBUTING.md",
    "README.md",
    "docs/operating.md",
    "docs/writing-a-cpi.md",
    "docs/create-env.md",
    "docs/registry.md",
    "docs/tutorial.md",
    "docs/version-table.md",
    "crates/certify/README.md",
    "crates/cloud-sim/README.md",
];

/// Somebody would run what they do not trust in a container, and it would become root of the machine.
#[test]
fn who_chooses_an_isolation_reads_what_it_does_not_protect_from() {
    for page in ["README.md", "docs/configuration.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        for words in ["a hostile root in", "director's user"] {
            assert!(text.contains(words), "{page} does not say '{words}'");
        }
    }
}

/// A command that nobody runs is one that stops working unnoticed.
#[test]
fn every_block_is_run_or_says_what_it_is() {
    for page in all() {
        for block in &page.blocks {
            let known = LANGUAGES.contains(&block.language.as_str());
            assert!(known, "{}:{}: say after the fence what this is: {LANGUAGES:?}", page.name, block.line);
        }
        let has_commands = page.blocks_in("sh").next().is_some();
        assert_eq!(has_commands, RUN.contains(&page.name.as_str()), "{}: which test runs its commands?", page.name);
    }
    script::every_exception_is_needed();
}

#[test]
fn every_link_leads_somewhere() {
    let pages = all();
    for page in &pages {
        for link in page.links() {
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = page.path.parent().unwrap().join(file);
            assert!(file.is_empty() || target.exists(), "{}: {link} leads nowhere", page.name);
            let target = if file.is_empty() { page.path.clone() } else { target.canonicalize().unwrap() };
            let Some(other) = pages.iter().find(|other| other.path == target).filter(|_| !anchor.is_empty()) else {
                continue;
            };
            assert!(other.anchors().iter().any(|it| it == anchor), "{}: {link} names no heading", page.name);
        }
    }
}

/// A flag that was renamed lives on in pages, and sends people astray.
#[test]
fn every_command_line_that_is_mentioned_is_understood() {
    let mut looked = 0;
    for page in all() {
        let in_blocks = page.blocks_in("sh").flat_map(|block| {
            script::lines(&block.text).into_iter().map(|(line, text)| (block.line + line, text)).collect::<Vec<_>>()
        });
        for (line, code) in page.code().into_iter().chain(in_blocks) {
            for words in windlass_commands(&code) {
                looked += 1;
                understood(&page, line, &words);
            }
        }
    }
    assert!(looked > 100, "only {looked} were found");
}

/// The words after each `windlass` in a line of a shell, up to what ends the command.
fn windlass_commands(code: &str) -> Vec<Vec<String>> {
    if code.contains('…') {
        return Vec::new();
    }
    let mut commands = Vec::new();
    let mut current: Option<Vec<String>> = None;
    let mut begins = true;
    for word in words(&code.replace("$(", "; ").replace(')', " ;")) {
        match word.as_str() {
            "windlass" if begins => current = Some(Vec::new()),
            "|" | "&&" | "&" | ">" | ";" => commands.extend(current.take()),
            _ => {
                // Some flags take a command.
                if word.starts_with("windlass ") {
                    commands.extend(windlass_commands(&word));
                }
                current.iter_mut().for_each(|command| command.push(word.clone()));
            }
        }
        begins = matches!(word.as_str(), "|" | "&&" | "&" | ";");
    }
    commands.extend(current);
    commands
}

/// Words as a shell tells them apart; a comment ends them.
fn words(code: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in code.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            ('#', None) if words.last().is_some_and(String::is_empty) => break,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn understood(page: &Page, line: usize, words: &[String]) {
    // What follows is another program's.
    let own = words.split(|word| word == "--").next().unwrap_or_default();
    // Names for numbers, which the parser wants to see.
    let numbered = own.iter().map(|word| if matches!(word.as_str(), "ID" | "N") { "1" } else { word.as_str() });
    let output = Command::new(env!("CARGO_BIN_EXE_windlass")).args(numbered).arg("--help").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:{line}: 'windlass {}' is not understood:\n{said}", page.name, words.join(" "));
}

#[test]
fn the_reference_of_the_configuration_is_complete_and_true() {
    reference::every_key_of_the_code_is_in_the_reference();
    reference::every_variable_of_the_code_is_in_the_reference();
    reference::every_key_of_the_reference_is_in_the_code();
    reference::the_examples_are_taken();
}

#[test]
fn the_service_starts_the_program_that_is_installed() {
    let unit = std::fs::read_to_string(root().join("packaging/windlass-director.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<String> = start.split(' ').skip(1).map(str::to_owned).collect();
    assert!(start.starts_with("/usr/local/bin/windlass "), "the guide installs it there: {start}");
    let help = Command::new(env!("CARGO_BIN_EXE_windlass")).args(&words).arg("--help").output().unwrap();
    assert!(help.status.success(), "{}", String::from_utf8_lossy(&help.stderr));
    assert!(unit.contains("KillMode=process"), "stopping the director must not stop its VMs");
}
