//! Names and tags.

use serde_json::{Map, Value, json};

use super::unknown_cid;
use crate::check::Level::Optional;
use crate::check::{Check, NotPassed, Verdict, check};
use crate::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    check(
        "metadata.no-known-keys",
        &[59],
        Optional,
        "no key is guaranteed; a CPI that needs one fails every deployment that lacks it",
        no_known_keys,
    ),
    check(
        "metadata.odd-values",
        &[60],
        Optional,
        "tags are set after the VM is made; a tag that the cloud does not take must not cost the VM",
        odd_values,
    ),
    check("metadata.fewer-keys", &[61], Optional, "metadata is set again and again, with other keys", fewer_keys),
    check(
        "metadata.while-booting",
        &[62],
        Optional,
        "the director sets metadata right after create_vm and deletes the VM when that fails",
        while_booting,
    ),
    check(
        "metadata.unknown-vm",
        &[59],
        Optional,
        "metadata on nothing that is said to be set hides that the VM is lost",
        unknown_vm,
    ),
    check(
        "metadata.unknown-disk",
        &[59],
        Optional,
        "metadata on nothing that is said to be set hides that the disk is lost",
        unknown_disk,
    ),
];

/// Sets metadata on a VM and on a disk. One of both may be missing, not both.
fn on_both(scene: &Scene, metadata: &[Value]) -> Verdict {
    let (vm, disk) = (scene.vm()?, scene.new_disk()?);
    let set = |method: &str, cid: &str| {
        metadata.iter().try_for_each(|metadata| scene.must(method, json!([cid, metadata])).map(|_| ()))
    };
    match (set("set_vm_metadata", &vm), set("set_disk_metadata", &disk)) {
        (Err(NotPassed::NotSupported(_)), other) | (other, Err(NotPassed::NotSupported(_))) => other,
        (first, second) => first.and(second),
    }
}

fn no_known_keys(scene: &Scene) -> Verdict {
    on_both(scene, &[json!({}), json!({"certify": "x"})])
}

fn odd_values(scene: &Scene) -> Verdict {
    let many: Map<String, Value> = (0..60).map(|number| (format!("tag-{number}"), json!("x"))).collect();
    let overlong = json!({"k".repeat(300): "v".repeat(2000), "name": "n".repeat(1000)});
    on_both(
        scene,
        &[overlong, Value::Object(many), json!({"nested": {"a": [1]}, "null": null, "number": 1, "flag": true})],
    )
}

fn fewer_keys(scene: &Scene) -> Verdict {
    on_both(scene, &[json!({"a": "1", "b": "2", "deployment": "certify"}), json!({"a": "3"})])
}

fn while_booting(scene: &Scene) -> Verdict {
    let vm = scene.new_vm()?;
    let metadata = json!({"director": "certify", "deployment": "shop", "id": "i-1", "job": "web",
        "instance_group": "web", "index": "0", "name": "web/i-1", "created_at": "2026-01-01T00:00:00Z"});
    scene.must("set_vm_metadata", json!([vm, metadata]))?;
    Ok(())
}

fn unknown_vm(scene: &Scene) -> Verdict {
    let answer = scene.answer("set_vm_metadata", json!([unknown_cid(), {"name": "x"}]))?;
    answer.refusal("although there is no such VM")?;
    Ok(())
}

fn unknown_disk(scene: &Scene) -> Verdict {
    let answer = scene.answer("set_disk_metadata", json!([unknown_cid(), {"name": "x"}]))?;
    answer.refusal("although there is no such disk")?;
    Ok(())
}
