//! The checks, one file per section of the contract's list of conformance checks.

mod concurrency;
mod disks;
mod envelope;
mod errors;
mod idempotency;
mod metadata;
mod networks;
mod robustness;
mod snapshots;
mod stemcells;
mod versions;
mod vms;

use windlass_contract::cpi::CpiError;

use crate::answer::Answer;
use crate::check::{Check, NotPassed, Verdict};
use crate::scene::Scene;
use crate::seen::Rule;

/// All checks, in the order in which they run, but for those that look back on the others, which come last.
pub fn all() -> impl Iterator<Item = Check> {
    [
        envelope::CHECKS,
        errors::CHECKS,
        versions::CHECKS,
        stemcells::CHECKS,
        vms::CHECKS,
        disks::CHECKS,
        snapshots::CHECKS,
        networks::CHECKS,
        metadata::CHECKS,
        idempotency::CHECKS,
        concurrency::CHECKS,
        robustness::CHECKS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// A cid that no cloud has.
fn unknown_cid() -> String {
    format!("no-such-thing-{}", uuid::Uuid::new_v4())
}

/// Whether every answer of the run kept a rule.
fn kept(scene: &Scene, rule: Rule) -> Verdict {
    let broken = scene.seen().broken(rule);
    let Some((what, _)) = broken.first() else { return Ok(()) };
    let count = broken.len();
    let what = if count == 1 { what.clone() } else { format!("{what} (the first of at least {count} calls)") };
    Err(NotPassed::Failed(what, broken.into_iter().take(2).map(|(_, answer)| answer).collect()))
}

/// An error that says which versions do not fit.
fn names_the_versions(answer: &Answer, error: &CpiError) -> Verdict {
    if error.message.to_lowercase().contains("version") || error.message.to_lowercase().contains("registry") {
        return Ok(());
    }
    Err(answer.fail(format!("the error does not say which versions do not fit: {}", error.message)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_conformance_check_of_the_contract_is_covered() {
        let covered: BTreeSet<u8> = all().flat_map(|check| check.covers.iter().copied()).collect();
        let missing: Vec<u8> = (1..=88).filter(|number| !covered.contains(number)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn ids_are_unique_and_have_a_section_and_every_check_says_why_it_matters() {
        let ids: BTreeSet<&str> = all().map(|check| check.id).collect();
        assert_eq!(ids.len(), all().count());
        for check in all() {
            let (section, name) = check.id.split_once('.').unwrap();
            let plain =
                |text: &str| text.chars().all(|letter| letter.is_ascii_lowercase() || "-0123456789".contains(letter));
            assert!(plain(section) && plain(name), "{}", check.id);
            assert!(check.why.len() > 20 && !check.why.ends_with('.') && !check.why.contains('\n'), "{}", check.id);
        }
    }
}
