//! What one call of a CPI breaks is told once, with that call, and the other checks go on.

use std::sync::atomic::AtomicBool;

use crate::rig::Toy;
use windlass_certify::{Outcome, Profile, certify};

#[test]
fn a_shared_vm_that_a_call_loses_is_replaced_and_the_call_is_named() {
    let toy = Toy::new();
    let report = toy.certify("detach-loses-vm", &["disks.hint", "disks.attach-again", "metadata.no-known-keys"]);
    let told: Vec<_> = report.rows.iter().map(|row| (row.check.id, row.outcome)).collect();
    let expected = [
        ("disks.hint", Outcome::Failed),
        ("disks.attach-again", Outcome::Failed),
        ("metadata.no-known-keys", Outcome::Passed),
    ];
    assert_eq!(told, expected, "{}", report.to_table());
    let [first, second, _] = &report.rows[..] else { panic!("{}", report.to_table()) };
    assert!(first.what.starts_with("detach_disk lost the VM 'vm-"), "{}", first.what);
    assert!(first.calls[0].request.contains("\"method\":\"detach_disk\""), "{:?}", first.calls);
    assert_eq!(second.same_as, Some("disks.hint"), "{}", second.what);
    assert!(report.leftovers.is_empty() && toy.left().is_empty(), "{:?} {:?}", report.leftovers, toy.left());
}

#[test]
fn one_cause_is_told_once_and_a_profile_is_suggested() {
    let toy = Toy::new();
    let mut plan = toy.plan("knows-one-network", &[]);
    let networks = "networks: {dynamic: {cloud_properties: {name: blue-network}}}";
    plan.profile.networks = Profile::from_yaml(networks).unwrap().networks;
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    let text = report.to_table();
    let cause = "cannot have the network 'blue-network'";
    assert!(!report.is_certified() && text.contains("--profile"), "{text}");
    // In its row, in its explanation, and in the answer that is shown there.
    assert_eq!(text.matches(cause).count(), 3, "{text}");
    assert!(text.contains("for the same reason as "), "{text}");
    assert!(text.len() < 40_000, "{} bytes: {text}", text.len());
    assert!(report.to_junit().matches(cause).count() <= 4, "{}", report.to_junit());
}

/// Every check has its row, and nothing is called for which no time is left.
#[test]
fn a_run_whose_time_is_over_tells_of_every_check_that_it_was_not_observed() {
    let toy = Toy::new();
    let mut plan = toy.plan("", &[]);
    plan.until = Some(std::time::Instant::now());
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert_eq!(report.rows.len(), windlass_certify::checks::all().count());
    assert_eq!((report.calls, report.interrupted, report.is_certified()), (0, false, false));
    let hint = report.rows.iter().find(|row| row.check.id == "disks.hint").unwrap();
    assert_eq!(hint.outcome, Outcome::NotObserved);
    assert!(hint.what.contains("--within"), "{}", hint.what);
}

/// After two calls that ran into the deadline, the others are not waited for as long.
#[test]
fn a_cpi_that_hangs_does_not_cost_its_deadline_in_every_check() {
    let toy = Toy::new();
    let mut plan =
        toy.plan("waits-for-a-line", &["envelope.any-folder", "envelope.command-line-context", "versions.info"]);
    plan.profile.deadline = 4;
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    let [first, second, third] = &report.rows[..] else { panic!("{}", report.to_table()) };
    for whole in [first, second] {
        assert_eq!(whole.what, "it did not answer within 4s and was killed");
    }
    assert!(third.what.starts_with("it did not answer within ") && !third.what.contains(" 4s "), "{}", third.what);
}
