//! Certification can fail: a CPI that passes everything is broken in one way at a time, and the check that is meant for
//! that way must notice. Without this a green certificate would mean nothing.

use std::sync::atomic::AtomicBool;

use crate::rig::Toy;
use windlass_certify::{Outcome, certify, checks};

#[test]
fn a_sound_cpi_passes_everything_and_nothing_remains() {
    let toy = Toy::new();
    let report = toy.certify("", &[]);
    assert_eq!(report.rows.len(), checks::all().count());
    // What nobody can see from outside is never green, and remembering requests is ours alone.
    let excused = ["vms.data-survives", "disks.visible-in-guest", "idempotency.replay"];
    for row in report.rows.iter().filter(|row| !excused.contains(&row.check.id)) {
        // A killed call of a CPI that forgets requests may leave its VM, and a loaded machine is slow.
        let may_warn = ["idempotency.kill-leaves-nothing", "concurrency.info-is-quick"].contains(&row.check.id);
        let fine = row.outcome == Outcome::Passed || may_warn && row.outcome == Outcome::Warned;
        assert!(fine, "{}", row.explanation());
    }
    assert!(report.is_certified(), "{}", report.to_table());
    for row in report.rows.iter().filter(|row| excused.contains(&row.check.id)) {
        assert!(matches!(row.outcome, Outcome::NotObserved | Outcome::NotSupported), "{}", row.line());
    }
    let orphans_of_kills = report.leftovers.iter().all(|left| left.what.contains("create_vm"));
    assert!(orphans_of_kills, "{:?}", report.leftovers);
    let left = toy.left();
    assert!(left.iter().all(|path| path.contains("/vms/")) && left.len() <= 6, "{left:?}");
}

/// A way to break the CPI, and the check that is meant for it.
const DEFECTS: &[(&str, &str)] = &[
    ("no-log", "envelope.three-keys"),
    ("null-log", "envelope.three-keys"),
    ("no-ok-to-retry", "envelope.three-keys"),
    ("byte-order-mark", "envelope.three-keys"),
    ("two-documents", "envelope.three-keys"),
    ("dies-without-answer", "envelope.three-keys"),
    ("waits-for-a-line", "envelope.no-newline"),
    ("needs-home", "envelope.bare-environment"),
    ("needs-folder", "envelope.any-folder"),
    ("info-needs-version-2", "envelope.command-line-context"),
    ("refuses-unknown-keys", "envelope.unknown-keys"),
    ("needs-stemcell-version", "envelope.empty-stemcell"),
    ("talks-before-it-reads", "envelope.large-env"),
    ("no-utf8", "envelope.utf8"),
    ("reads-a-part", "robustness.deep-and-huge"),
    ("unknown-method-is-cloud-error", "errors.unknown-method"),
    ("defaults-for-arguments", "errors.missing-argument"),
    ("wrong-credentials-not-implemented", "errors.wrong-credentials"),
    ("any-credentials", "errors.wrong-credentials"),
    ("secrets-in-errors", "errors.no-secrets"),
    ("secrets-on-stderr", "errors.no-secrets"),
    ("info-version-is-text", "versions.info"),
    ("info-without-version", "versions.info"),
    ("info-without-formats", "versions.info"),
    ("info-differs", "versions.info"),
    ("v1-answers-arrays", "versions.v1-request-v2-stemcell"),
    ("v1-without-reason", "versions.matrix"),
    ("needs-stemcell-version", "versions.without-stemcell-version"),
    ("refuses-tags", "stemcells.v3-tags"),
    ("refuses-tags", "stemcells.v3-without-tags"),
    ("null-properties-crash", "stemcells.null-properties"),
    ("uploads-nothing", "stemcells.missing-image"),
    ("leaks-stemcell", "stemcells.missing-image-leaves-nothing"),
    ("needs-the-image", "stemcells.image-gone"),
    ("bare-string", "vms.v2-array"),
    ("cid-only", "vms.v2-array"),
    ("empty-vm-cid", "vms.v2-array"),
    ("v1-answers-arrays", "vms.v1-string"),
    ("other-address", "vms.manual-network"),
    ("netmask-of-the-prefix", "vms.manual-network-inside"),
    ("prefix-is-a-number", "vms.prefix-and-nic-group"),
    ("gateway-everywhere", "vms.one-default-gateway"),
    ("any-stemcell", "vms.unknown-stemcell"),
    ("leaks-vm", "vms.failed-create-leaves-nothing"),
    ("leaks-vm", "vms.failed-create-frees-address"),
    ("attaches-announced-disks", "vms.disk-cids"),
    ("needs-env", "vms.env"),
    ("settings-without-env", "vms.env-verbatim"),
    ("system-disk-is-an-object", "vms.settings"),
    ("settings-without-agent-id", "vms.settings"),
    ("dns-is-a-string", "vms.settings"),
    ("number-in-ephemeral-hint", "vms.settings"),
    ("has-vm-is-text", "vms.has-vm"),
    ("has-vm-unknown-is-error", "vms.has-vm"),
    ("deletes-no-vm", "vms.has-vm"),
    ("reboots-nothing", "vms.reboot-unknown"),
    ("deletes-disks-with-vm", "vms.disk-survives"),
    ("any-size-of-vm", "vms.calculate-absurd"),
    ("disk-cid-is-a-number", "disks.create"),
    ("attaches-new-disks", "disks.create-near-vm"),
    ("any-size-of-disk", "disks.wrong-sizes"),
    ("has-every-disk", "disks.has-unknown"),
    ("number-in-hint", "disks.hint"),
    ("no-hint", "disks.hint"),
    ("empty-hint", "disks.hint"),
    ("one-hint-for-all", "disks.distinct-hints"),
    ("attaches-twice", "disks.attached-elsewhere"),
    ("null-for-no-disks", "disks.get-disks"),
    ("detaches-nothing", "disks.move"),
    ("deletes-attached-disks", "disks.delete-attached"),
    ("attaches-unknown-disks", "disks.attach-unknown-disk"),
    ("attaches-to-no-vm", "disks.attach-unknown-vm"),
    ("resizes-in-words", "disks.resize-is-real"),
    ("remembers-a-size-only", "disks.resize-is-real"),
    ("resizes-in-words", "disks.resize-unknown"),
    ("shrinks", "disks.resize-smaller"),
    ("resize-equal-is-an-error", "disks.resize-equal"),
    ("update-answers-empty-cid", "disks.update"),
    ("update-answers-true", "disks.update"),
    ("update-answers-unknown-cid", "disks.update"),
    ("updates-nothing", "disks.update-unknown"),
    ("empty-snapshot-cid", "snapshots.create"),
    ("snapshots-not-supported", "snapshots.create"),
    ("snapshots-in-words", "snapshots.are-real"),
    ("snapshots-in-words", "snapshots.unknown-disk"),
    ("one-snapshot-cid", "snapshots.distinct"),
    ("network-is-a-pair", "networks.create"),
    ("network-without-range", "networks.by-size"),
    ("metadata-needs-name", "metadata.no-known-keys"),
    ("refuses-long-tags", "metadata.odd-values"),
    ("metadata-once", "metadata.fewer-keys"),
    ("metadata-on-nothing", "metadata.unknown-vm"),
    ("metadata-on-nothing", "metadata.unknown-disk"),
    ("delete-vm-not-found-is-cloud-error", "idempotency.delete-vm"),
    ("delete-disk-not-found-is-cloud-error", "idempotency.delete-disk"),
    ("detach-twice-is-cloud-error", "idempotency.detach-disk"),
    ("reserves-agents", "idempotency.create-after-failure"),
    ("reserves-agents", "idempotency.create-after-kill"),
    ("remembers-six-digits", "idempotency.six-digit-ids"),
    ("cids-of-the-second", "concurrency.create-vms"),
    ("cids-of-the-second", "concurrency.disks-come-and-go"),
    ("one-line-only", "envelope.pretty-printed"),
    ("prints-on-stdout", "stemcells.create"),
    ("announces-replay", "idempotency.replay"),
    ("impatient-with-stderr", "envelope.stderr-unread"),
    ("defaults-for-arguments", "errors.missing-argument-leaves-nothing"),
    ("reports-more-than-it-speaks", "versions.beyond"),
    ("crashes-on-odd-version", "versions.odd-values"),
    ("lower-version-changes-shapes", "versions.lower-advertised"),
    ("no-dynamic-networks", "vms.dynamic-network"),
    ("reboot-loses-vm", "vms.reboot"),
    ("calculates-a-list", "vms.calculate"),
    ("v1-attach-without-reason", "disks.v1-attach"),
    ("resize-loses-disk", "disks.resize"),
    ("snapshot-index-is-text", "snapshots.metadata"),
    ("snapshots-need-their-disk", "snapshots.after-disk"),
    ("refuses-its-own-networks", "networks.usable"),
    ("delete-network-not-found-is-cloud-error", "networks.delete-twice"),
    ("delete-network-not-found-is-cloud-error", "networks.delete-unknown"),
    ("metadata-needs-a-booted-vm", "metadata.while-booting"),
    ("detach-twice-is-cloud-error", "idempotency.detach-deleted-disk"),
    ("one-list-for-all", "concurrency.attach-disks"),
    ("busy-info", "concurrency.info"),
    ("one-upload-at-a-time", "concurrency.create-stemcells"),
    ("uploads-twice", "concurrency.no-lost-stemcells"),
    ("any-method", "robustness.bad-method"),
    ("any-arguments", "robustness.bad-arguments"),
    ("any-agent", "robustness.wrong-types"),
    ("crashes-on-null-dns", "robustness.odd-networks"),
    ("leaks-on-odd-networks", "robustness.odd-networks-leave-nothing"),
    ("needs-director", "robustness.no-director"),
    ("answers-at-random", "robustness.duplicate-keys"),
    ("follows-paths", "robustness.hostile-cids"),
    ("asks-a-shell", "robustness.hostile-cids"),
];

#[test]
fn every_defect_is_caught_by_the_check_that_is_meant_for_it() {
    let mut missed = Vec::new();
    for (defect, id) in DEFECTS {
        let report = Toy::new().certify(defect, &[id]);
        let row = report.rows.iter().find(|row| row.check.id == *id).unwrap();
        if row.outcome != Outcome::Failed || report.is_certified() {
            missed.push(format!("{defect}: {}", row.line()));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// Seen in the answers to whatever other checks asked.
const SEEN_THROUGHOUT: &[(&str, &str, &str)] = &[
    ("prints-on-stdout", "stemcells.create", "envelope.every-answer"),
    ("exits-with-1", "errors.missing-argument", "envelope.exit-zero"),
    ("no-utf8", "envelope.utf8", "envelope.every-answer-utf8"),
    ("helper-keeps-streams", "disks.create", "envelope.streams-end"),
    ("reads-a-part", "robustness.deep-and-huge", "envelope.reads-everything"),
    ("unknown-error-type", "errors.missing-argument", "errors.known-types"),
    ("result-beside-error", "errors.missing-argument", "errors.known-types"),
    ("empty-message", "errors.missing-argument", "errors.known-types"),
    ("compat-prefix", "vms.unknown-stemcell", "errors.no-compat-prefix"),
];

#[test]
fn rules_for_all_answers_are_seen_in_the_answers_to_other_checks() {
    for (defect, asking, id) in SEEN_THROUGHOUT {
        let report = Toy::new().certify(defect, &[asking, id]);
        let row = report.rows.iter().find(|row| row.check.id == *id).unwrap();
        assert_eq!(row.outcome, Outcome::Failed, "{defect}: {}", row.line());
        assert!(!row.calls.is_empty(), "{defect}: no call shows it");
        assert!(!report.is_certified());
    }
}

/// What warns, and the check that says so.
const WARNINGS: &[(&str, &str)] = &[
    ("refuses-surplus-arguments", "errors.surplus-argument"),
    ("crashes-without-request", "robustness.no-request"),
    ("stemcell-not-found", "stemcells.delete-twice"),
    ("stemcell-not-found", "stemcells.delete-unknown"),
    ("attach-again-is-an-error", "disks.attach-again"),
    ("networks-not-answered", "vms.answers-networks"),
    ("slow-info", "concurrency.info-is-quick"),
    ("no-network-is-fine", "vms.no-networks"),
    ("snapshot-needs-index", "snapshots.metadata"),
    ("delete-snapshot-not-found-is-cloud-error", "snapshots.delete-unknown"),
];

#[test]
fn what_is_only_worth_knowing_warns_and_does_not_stand_in_the_way() {
    for (defect, id) in WARNINGS {
        let report = Toy::new().certify(defect, &[id]);
        assert_eq!(report.rows[0].outcome, Outcome::Warned, "{defect}: {}", report.rows[0].line());
        assert!(report.is_certified(), "{defect}");
    }
    let report = Toy::new().certify("several-lines", &["errors.missing-argument", "errors.one-line"]);
    assert_eq!(report.rows[1].outcome, Outcome::Warned);
}

#[test]
fn what_no_director_asks_and_what_agents_take_is_no_defect() {
    for (way, id) in [
        ("speaks-only-what-it-reports", "versions.info"),
        ("speaks-only-what-it-reports", "versions.beyond"),
        ("nulls-for-nothing", "vms.settings"),
        // As BOSH's library for Ruby does it, and so every CPI that is made with it.
        ("refuses-as-ruby", "robustness.bad-arguments"),
        ("refuses-as-ruby", "errors.missing-argument"),
        // As the CPI for AWS does.
        ("lists-root-disks", "vms.disk-cids"),
        ("lists-root-disks", "disks.get-disks"),
        ("lists-root-disks", "concurrency.attach-disks"),
        ("needs-a-zone", "vms.calculate"),
        ("snapshot-needs-index", "snapshots.create"),
        ("snapshot-needs-index", "snapshots.distinct"),
        ("records-vms-of-version-1", "disks.v1-attach"),
    ] {
        let toy = Toy::new();
        let mut plan = toy.plan(way, &[id, "errors.known-types", "envelope.every-answer"]);
        plan.profile.vm.cloud_properties.insert("zone".into(), "z1".into());
        let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
        assert_eq!(report.rows[0].outcome, Outcome::Passed, "{way}: {}", report.rows[0].explanation());
        // Not every check sees an error.
        for row in &report.rows {
            assert!(row.outcome != Outcome::Failed, "{way}: {}", row.explanation());
        }
    }
    let report = Toy::new().certify("crashes-without-request", &["robustness.no-request", "envelope.every-answer"]);
    assert!(report.is_certified(), "no director sends nothing: {}", report.to_table());
}

#[test]
fn a_light_stemcell_has_no_image_that_could_be_missing() {
    let (toy, folder) = (Toy::new(), tempfile::tempdir().unwrap());
    let tarball = folder.path().join("light.tgz");
    let manifest = "name: light\nversion: '1'\noperating_system: debian\nsha1: da39a3ee5e6b4b0d3255bfef95601890afd80709\n\
                    cloud_properties: {ami: {here: ami-1}}\n";
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (name, content) in [("stemcell.MF", manifest), ("image", "")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    std::fs::write(&tarball, archive.into_inner().unwrap().finish().unwrap()).unwrap();
    let mut plan = toy.plan("uploads-nothing", &["stemcells.missing-image"]);
    plan.stemcell = Some(tarball);
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert_eq!(report.rows[0].outcome, Outcome::Warned, "{}", report.rows[0].explanation());
    assert!(report.is_certified(), "{}", report.to_table());
}

#[test]
fn no_report_shows_credentials_that_the_cpi_is_configured_with() {
    let toy = Toy::new();
    let mut plan = toy.plan("prints-its-configuration", &["vms.unknown-stemcell", "errors.one-line"]);
    let secret = serde_json::json!({"aws": {"secret_access_key": "word-of-the-sky"}});
    plan.profile.configuration = secret.as_object().unwrap().clone().into_iter().collect();
    plan.profile.context.insert("certify_shown".into(), "word-of-the-sky".into());
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    let shown = format!("{}{}{}", report.to_table(), report.to_json(), report.to_junit());
    assert!(shown.contains("I am configured with <redacted>"), "{shown}");
    assert!(!shown.contains("word-of-the-sky"), "{shown}");
}

#[test]
fn a_resize_in_words_is_noticed_even_without_a_look_at_the_disk() {
    let toy = Toy::new();
    let mut plan = toy.plan("resizes-in-words", &["disks.resize-is-real"]);
    plan.observers.disk_size = None;
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert_eq!(report.rows[0].outcome, Outcome::Failed, "{}", report.rows[0].line());
    let mut plan = toy.plan("", &["disks.resize-is-real"]);
    plan.observers.disk_size = None;
    let report = certify(&plan, &AtomicBool::new(false), |_| {}).unwrap();
    assert_eq!(report.rows[0].outcome, Outcome::NotObserved, "never green without having seen it");
}

#[test]
fn no_check_is_without_a_defect_that_it_catches() {
    let proven: Vec<&str> = DEFECTS
        .iter()
        .chain(WARNINGS)
        .map(|(_, id)| *id)
        .chain(SEEN_THROUGHOUT.iter().map(|(.., id)| *id))
        // Caught above, in a run of two checks; what kills leave only warns, and not each time.
        .chain(["errors.one-line", "idempotency.kill-leaves-nothing"])
        // Never observed, so never green.
        .chain(["vms.data-survives", "disks.visible-in-guest"])
        .collect();
    let unproven: Vec<&str> = checks::all().map(|check| check.id).filter(|id| !proven.contains(id)).collect();
    assert!(unproven.is_empty(), "{unproven:?}");
}
