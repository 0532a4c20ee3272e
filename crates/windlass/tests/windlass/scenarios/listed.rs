//! `docs/scenarios.md` lists what is played.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{
    Scenario, addons, compilation, deploys, dns, drain, errands, links, links_api, links_between_deployments, releases,
    scripts, states, templates, variables,
};

/// The test that plays them, and they.
const ALL: [(&str, &[Scenario]); 14] = [
    ("links::what_links_promise", links::SCENARIOS),
    ("links_between_deployments::what_links_between_deployments_promise", links_between_deployments::SCENARIOS),
    ("links_api::what_the_api_of_links_promises", links_api::SCENARIOS),
    ("drain::what_draining_promises", drain::SCENARIOS),
    ("scripts::what_scripts_of_jobs_promise", scripts::SCENARIOS),
    ("errands::what_errands_promise", errands::SCENARIOS),
    ("addons::what_addons_promise", addons::SCENARIOS),
    ("compilation::what_compilation_promises", compilation::SCENARIOS),
    ("releases::what_releases_promise", releases::SCENARIOS),
    ("templates::what_templates_promise", templates::SCENARIOS),
    ("deploys::what_deploys_promise", deploys::SCENARIOS),
    ("states::what_changes_of_states_promise", states::SCENARIOS),
    ("variables::what_variables_promise", variables::SCENARIOS),
    ("dns::what_names_promise", dns::SCENARIOS),
];

#[test]
fn the_page_lists_every_scenario_that_is_played_and_no_other() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let page = fs::read_to_string(path).unwrap();
    let mut expected = String::new();
    let mut known = BTreeSet::new();
    for (test, scenarios) in ALL {
        expected.push_str(&format!(
            "\n## `windlass::scenarios::{test}`\n\n| BOSH's file | its example | what is asserted |\n|---|---|---|\n"
        ));
        for Scenario { spec, example, effect, .. } in scenarios {
            assert!(known.insert((spec, example, effect)), "{spec} '{example}' is listed twice");
            expected.push_str(&format!("| `{spec}` | {example} | {effect} |\n"));
        }
    }
    println!("{} scenarios", known.len());
    assert!(known.len() >= 60, "{}", known.len());
    let listed = page.find("\n## `windlass::").map_or("", |at| &page[at..]);
    assert!(listed == expected, "docs/scenarios.md should end with:\n{expected}");
}
