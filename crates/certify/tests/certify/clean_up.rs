//! Whatever a run made is removed, also when it is stopped; what cannot be removed is named.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rig::Toy;
use windlass_certify::{Outcome, Progress, certify};

#[test]
fn a_run_that_is_stopped_in_the_middle_of_a_check_leaves_nothing() {
    let toy = Toy::new();
    let plan = toy.plan("slow-create", &["vms", "disks"]);
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|threads| {
        certify(&plan, &stop, |progress| {
            if matches!(progress, Progress::Begins { check, .. } if check.id == "vms.disk-survives") {
                threads.spawn(|| {
                    // While the check waits for its first VM.
                    std::thread::sleep(Duration::from_millis(100));
                    stop.store(true, Ordering::SeqCst);
                });
            }
        })
    });
    let report = report.unwrap();
    assert!(report.interrupted && !report.is_certified());
    assert!(report.rows.iter().all(|row| row.check.id != "disks.update-unknown"), "it went on to the end");
    assert!(report.rows.iter().any(|row| row.outcome == Outcome::Passed));
    assert_eq!(toy.left(), Vec::<String>::new());
    assert!(report.leftovers.is_empty(), "{:?}", report.leftovers);
}

#[test]
fn what_cannot_be_removed_is_named() {
    let toy = Toy::new();
    let report = toy.certify("keeps-vms", &["vms.v2-array"]);
    assert_eq!(report.rows[0].outcome, Outcome::Passed);
    let left = toy.left();
    assert_eq!((left.len(), report.leftovers.len()), (1, 1), "{left:?} {:?}", report.leftovers);
    let cid = left[0].rsplit('/').next().unwrap();
    assert_eq!(report.leftovers[0].what, format!("VM '{cid}'"));
    assert!(report.leftovers[0].why.contains("the VM does not go"), "{:?}", report.leftovers);
    assert!(report.to_table().contains(&format!("could not remove VM '{cid}'")));
}

#[test]
fn what_a_call_without_a_usable_answer_made_is_named() {
    let report = Toy::new().certify("empty-snapshot-cid", &["snapshots.create"]);
    assert!(report.leftovers.iter().any(|left| left.what.contains("snapshot_disk")), "{:?}", report.leftovers);
}

#[test]
fn what_a_deeply_nested_request_made_is_removed() {
    let toy = Toy::new();
    let report = toy.certify("reads-deep-requests", &["robustness.deep-and-huge"]);
    assert_eq!(report.rows[0].outcome, Outcome::Passed, "{}", report.rows[0].explanation());
    assert!(toy.left().is_empty() && report.leftovers.is_empty(), "{:?} {:?}", toy.left(), report.leftovers);
}

#[test]
fn secrets_do_not_reach_the_report() {
    let toy = Toy::new();
    let mut plan =
        toy.plan("secrets-in-errors", &["errors.no-secrets", "robustness.no-request", "vms.unknown-stemcell"]);
    plan.profile.context.insert("api_key".into(), "operators-own-credential".into());
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert!(report.rows.iter().any(|row| row.outcome == Outcome::Failed && !row.calls.is_empty()));
    for text in [report.to_table(), report.to_json().to_string(), report.to_junit()] {
        assert!(!text.contains("operators-own-credential"), "{text}");
        assert!(!text.contains("BEGIN\\ncanary"), "{text}");
    }
}
