//! Removes what a run made, and says what it could not remove.

use serde_json::json;
use windlass_contract::cpi::Redactor;

use crate::check::NotPassed;
use crate::made::{Kind, Thing};
use crate::report::one_line;
use crate::scene::Scene;

/// Something that the run may have left in the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// What it is, with its cid where one is known.
    pub what: String,
    /// Why it is still there.
    pub why: String,
}

/// Removes what the last check made.
pub(crate) fn after_check(scene: &Scene) {
    sweep(scene, false);
}

/// Removes everything, and gives what stays.
pub(crate) fn at_the_end(scene: &Scene, secrets: &Redactor) -> Vec<Leftover> {
    scene.begin_cleaning();
    let mut left = sweep(scene, true);
    for leftover in &mut left {
        leftover.what = one_line(&leftover.what);
        leftover.why = one_line(&secrets.message(&leftover.why));
    }
    let unknown = scene.made();
    left.extend(unknown.unknown().map(|call| Leftover {
        what: format!("whatever {call} made"),
        why: "the CPI gave no cid to remove it by; look for it in the cloud".into(),
    }));
    left
}

fn sweep(scene: &Scene, everything: bool) -> Vec<Leftover> {
    let mut left = Vec::new();
    let attachments = scene.made().attachments();
    for kind in Kind::ALL {
        let things = scene.made().of(kind, everything);
        if kind == Kind::Snapshot {
            // The VMs of this check are gone; what is attached to others must be detached before it can be deleted.
            let held = |vm: &str| scene.made().of(Kind::Vm, true).iter().any(|thing| thing.cid == vm);
            for (vm, disk) in attachments.iter().filter(|(vm, _)| held(vm)) {
                let _ = scene.answer("detach_disk", json!([vm, disk]));
            }
        }
        for batch in things.chunks(scene.profile.parallel.max(1)) {
            std::thread::scope(|threads| {
                let removals: Vec<_> = batch.iter().map(|thing| threads.spawn(move || remove(scene, thing))).collect();
                let results = removals.into_iter().map(|removal| removal.join().unwrap_or(None));
                left.extend(results.flatten());
            });
        }
    }
    left
}

fn remove(scene: &Scene, thing: &Thing) -> Option<Leftover> {
    let method = thing.kind.delete_method();
    let why = match scene.answer(method, json!([thing.cid])).and_then(|answer| answer.success()) {
        Ok(_) => return None,
        Err(NotPassed::Failed(why, _) | NotPassed::NotSupported(why)) => why,
        Err(_) => "the run was interrupted".into(),
    };
    // An answer such as VMNotFound says that it is gone, too.
    let there = scene.made().of(thing.kind, true).contains(thing);
    there
        .then(|| Leftover { what: format!("{} '{}'", thing.kind.as_str(), thing.cid), why: format!("{method}: {why}") })
}
