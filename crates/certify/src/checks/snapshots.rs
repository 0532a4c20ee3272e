//! Snapshots.

use serde_json::{Value, json};
use windlass_contract::cpi::ErrorType;

use super::unknown_cid;
use crate::check::Level::{Optional, Warning};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    check(
        "snapshots.create",
        &[53],
        Optional,
        "an empty snapshot cid is stored, and there is no snapshot when it is needed",
        create,
    ),
    check(
        "snapshots.metadata",
        &[54],
        Optional,
        "the director sends an index as a number, and tags of any kind",
        metadata,
    ),
    check("snapshots.distinct", &[53], Optional, "two snapshots with one cid are one snapshot", distinct),
    check(
        "snapshots.are-real",
        &[53],
        Optional,
        "a snapshot that was only said to be taken is found on the day it is needed",
        are_real,
    ),
    check(
        "snapshots.unknown-disk",
        &[53],
        Optional,
        "a snapshot of nothing that is said to have worked is a backup that does not exist",
        unknown_disk,
    ),
    check(
        "snapshots.after-disk",
        &[55],
        Optional,
        "the disk may be gone long before its snapshots are cleaned up",
        after_disk,
    ),
    check(
        "snapshots.delete-unknown",
        &[55],
        Warning,
        "the director tolerates no error when it deletes a snapshot that is gone",
        delete_unknown,
    ),
];

fn snapshot(scene: &Scene, disk: &str, metadata: Value) -> Result<String, NotPassed> {
    let answer = scene.answer("snapshot_disk", json!([disk, metadata]))?;
    if answer.valid()?.error.as_ref().is_some_and(|error| error.kind == ErrorType::NotSupported) {
        return Err(answer.fail("the director swallows NotImplemented here, but not NotSupported"));
    }
    answer.cid()
}

fn create(scene: &Scene) -> Verdict {
    let (disk, _) = scene.new_attached_disk(&scene.vm()?)?;
    snapshot(scene, &disk, director_metadata()).map(|_| ())
}

/// What directors tell of each disk.
pub(super) fn director_metadata() -> Value {
    json!({"deployment": "certify", "job": "web", "index": 0, "director_name": "certify", "director_uuid": "d-1",
        "agent_id": "a-1", "instance_id": "i-1"})
}

fn metadata(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    let mut tagged = director_metadata();
    tagged["owner"] = json!("größe");
    tagged["flag"] = json!(true);
    snapshot(scene, &disk, tagged)?;
    let answer = scene.answer("snapshot_disk", json!([disk, {}]))?;
    if answer.valid()?.error.is_some() {
        return Err(answer.warn("it takes no snapshot without metadata; directors always send some"));
    }
    answer.cid().map(|_| ())
}

fn distinct(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    let first = snapshot(scene, &disk, director_metadata())?;
    let second = snapshot(scene, &disk, director_metadata())?;
    if first == second { Err(NotPassed::failed(format!("two snapshots are both called '{first}'"))) } else { Ok(()) }
}

fn are_real(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    let answer = scene.answer("snapshot_disk", json!([disk, director_metadata()]))?;
    let snapshot = answer.cid()?;
    if !scene.list()?.contains(&snapshot) {
        return Err(answer.fail(format!("the cloud has nothing that is called '{snapshot}'")));
    }
    scene.must("delete_snapshot", json!([snapshot]))?;
    if scene.list()?.contains(&snapshot) {
        return Err(NotPassed::failed(format!("'{snapshot}' is still there after delete_snapshot")));
    }
    Ok(())
}

fn unknown_disk(scene: &Scene) -> Verdict {
    let answer = scene.answer("snapshot_disk", json!([unknown_cid(), director_metadata()]))?;
    answer.refusal("although there is no such disk")?;
    Ok(())
}

fn after_disk(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    let snapshot = snapshot(scene, &disk, director_metadata())?;
    let deleted = scene.answer("delete_disk", json!([disk]))?;
    if deleted.valid()?.error.is_some() {
        // Some clouds keep a disk as long as it has snapshots; then the other order must work.
        scene.must("delete_snapshot", json!([snapshot]))?;
        scene.must("delete_disk", json!([disk]))?;
        return Err(deleted.warn("a disk with snapshots cannot be deleted"));
    }
    scene.must("delete_snapshot", json!([snapshot]))?;
    Ok(())
}

fn delete_unknown(scene: &Scene) -> Verdict {
    scene.must("delete_snapshot", json!([unknown_cid()]))?;
    Ok(())
}
