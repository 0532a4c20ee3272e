//! What BOSH's own integration tests promise, redone here: each scenario names the file and the example of BOSH's that it stands for,
//! and the effect that it asserts. `docs/scenarios.md` lists them all; a test keeps it so.
//!
//! They run on the simulated cloud: real director, real agents, real scripts of jobs, and processes that only seem to run.
//! Scenarios of one file share a director; each has a deployment of its own.

mod addons;
mod ca_change;
mod cancelled;
mod compilation;
mod deploys;
mod dns;
mod drain;
mod errands;
mod links;
mod links_api;
mod links_between_deployments;
mod listed;
pub(crate) mod release;
mod releases;
mod scripts;
mod second_rendering;
mod stand;
mod states;
mod templates;
mod variables;

/// One of BOSH's examples, as it is here.
pub(crate) struct Scenario {
    /// BOSH's file below `spec/integration`.
    spec: &'static str,
    example: &'static str,
    effect: &'static str,
    /// None for one that is played together with the next.
    run: Option<fn(&stand::Scene<'_>)>,
}

/// Scenarios in short: `"file": "example" => "effect", function;`, without a function if the next one's plays both.
macro_rules! scenarios {
    ($($spec:literal: $example:literal => $effect:literal $(, $run:path)?;)*) => {
        pub(super) const SCENARIOS: &[super::Scenario] = &[
            $(super::Scenario { spec: $spec, example: $example, effect: $effect, run: super::playing!($($run)?) }),*
        ];
    };
}

macro_rules! playing {
    () => {
        None
    };
    ($run:path) => {
        Some($run)
    };
}
use {playing, scenarios};
