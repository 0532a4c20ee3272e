//! Persistent disks.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_contract::cpi::ErrorType;

use super::{names_the_versions, unknown_cid};
use crate::answer::Answer;
use crate::check::Level::{Optional, Required, Warning};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::made::Kind;
use crate::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    check(
        "disks.create",
        &[41],
        Required,
        "data outlives VMs on disks; a disk that is not there is found too late",
        create,
    ),
    check(
        "disks.create-near-vm",
        &[41],
        Required,
        "the director names the VM that a disk is for; the disk must still not be attached",
        create_near_vm,
    ),
    check(
        "disks.wrong-sizes",
        &[42],
        Required,
        "a disk of a size that nobody asked for is found when it is full",
        wrong_sizes,
    ),
    check("disks.has-unknown", &[41], Optional, "the cloud check takes any answer but false for a disk", has_unknown),
    check(
        "disks.hint",
        &[43],
        Required,
        "without a registry the agent finds the disk by this hint alone; a number in it makes the agent panic",
        hint,
    ),
    check(
        "disks.visible-in-guest",
        &[43],
        Optional,
        "a hint that leads nowhere fails the deployment at the mount",
        |_| Err(NotPassed::not_observed("needs an agent that looks for the device in the VM")),
    ),
    check("disks.v1-attach", &[44], Required, "a caller of version 1 needs no hint, but a disk or a reason", v1_attach),
    check(
        "disks.distinct-hints",
        &[45],
        Required,
        "two disks with one hint are one disk to the agent, which then formats the wrong one",
        distinct_hints,
    ),
    check(
        "disks.attach-again",
        &[46],
        Warning,
        "create-env repeats attach_disk after an interruption and expects the same hint",
        attach_again,
    ),
    check(
        "disks.attached-elsewhere",
        &[47],
        Required,
        "a disk in two VMs at once is a destroyed file system",
        attached_elsewhere,
    ),
    check("disks.get-disks", &[48], Optional, "the director reads this list when it snapshots itself", get_disks),
    check("disks.move", &[49], Required, "a recreated VM gets the disk of its predecessor", move_to_another),
    check(
        "disks.delete-attached",
        &[50],
        Required,
        "a disk that is deleted while a VM uses it is lost data",
        delete_attached,
    ),
    check(
        "disks.attach-unknown-disk",
        &[43],
        Required,
        "a disk that is said to be attached and does not exist is found at the mount, with the old one detached",
        attach_unknown_disk,
    ),
    check(
        "disks.attach-unknown-vm",
        &[43],
        Required,
        "a disk that hangs on no VM is found at the mount",
        attach_unknown_vm,
    ),
    check("disks.resize", &[51], Optional, "growing a disk in place saves copying its data", resize),
    check(
        "disks.resize-is-real",
        &[51],
        Optional,
        "the director records the new size; a disk that did not grow fills up early",
        resize_is_real,
    ),
    check(
        "disks.resize-smaller",
        &[51],
        Optional,
        "shrinking destroys data; NotSupported lets the director copy instead",
        resize_smaller,
    ),
    check("disks.resize-equal", &[51], Optional, "a repeated resize has nothing to do", resize_equal),
    check(
        "disks.resize-unknown",
        &[51],
        Optional,
        "a resize of nothing that is said to have worked hides that the disk is lost",
        resize_unknown,
    ),
    check(
        "disks.update",
        &[52],
        Optional,
        "the director stores whatever cid this answers; an empty one loses the disk",
        update,
    ),
    check(
        "disks.update-unknown",
        &[52],
        Optional,
        "an update of nothing that is said to have worked hides that the disk is lost",
        update_unknown,
    ),
];

fn create(scene: &Scene) -> Verdict {
    let answer = scene.answer("create_disk", scene.disk_arguments())?;
    let disk = answer.cid()?;
    let there = scene.answer("has_disk", json!([disk]))?;
    match there.success_or(&[ErrorType::NotImplemented])? {
        Some(Value::Bool(false)) => Err(there.fail("has_disk does not know the disk that was just made")),
        Some(Value::Bool(true)) | None => Ok(()),
        Some(other) => Err(there.fail(format!("expected true or false, got {other}"))),
    }
}

fn create_near_vm(scene: &Scene) -> Verdict {
    let (vm, other) = (scene.vm()?, scene.new_vm()?);
    let mut arguments = scene.disk_arguments();
    arguments[2] = json!(vm);
    let disk = scene.answer("create_disk", arguments)?.cid()?;
    scene.must("attach_disk", json!([other, disk]))?;
    Ok(())
}

fn wrong_sizes(scene: &Scene) -> Verdict {
    for size in [json!("1024"), json!(1024.5), json!(0), json!(-1024), json!(null)] {
        let mut arguments = scene.disk_arguments();
        arguments[0] = size.clone();
        scene.answer("create_disk", arguments)?.refusal(&format!("although the size was {size}"))?;
    }
    Ok(())
}

fn has_unknown(scene: &Scene) -> Verdict {
    let answer = scene.answer("has_disk", json!([unknown_cid()]))?;
    if answer.boolean()? { Err(answer.fail("it knows a disk that never was")) } else { Ok(()) }
}

/// A non-empty string, or an object of strings.
fn is_hint(value: &Value) -> bool {
    let nested = |value: &Value| value.as_object().is_some_and(|object| object.values().all(Value::is_string));
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Object(object) => {
            !object.is_empty()
                && object.iter().all(|(key, value)| value.is_string() || key == "iscsi_settings" && nested(value))
        }
        _ => false,
    }
}

fn hint(scene: &Scene) -> Verdict {
    let (vm, disk) = (scene.vm()?, scene.new_disk()?);
    let answer = scene.answer("attach_disk", json!([vm, disk]))?;
    let hint = answer.success()?;
    if is_hint(&hint) {
        return Ok(());
    }
    Err(answer.fail(format!("a hint is a non-empty string or an object of strings, not {hint}")))
}

/// On a VM of version 1, as such a caller has it: others have no record in a registry.
fn v1_attach(scene: &Scene) -> Verdict {
    let created = scene.call(&scene.ask("create_vm", scene.vm_arguments()?).version(1))?;
    let vm = match &created.valid()?.error {
        None => created.cid()?,
        Some(error) => {
            names_the_versions(&created, error)?;
            scene.vm()?
        }
    };
    let disk = scene.new_disk_near(&vm)?;
    let answer = scene.call(&scene.ask("attach_disk", json!([vm, disk])).version(1))?;
    match &answer.valid()?.error {
        Some(error) => names_the_versions(&answer, error),
        None => Ok(()),
    }
}

fn distinct_hints(scene: &Scene) -> Verdict {
    let vm = scene.vm()?;
    let (one, first) = scene.new_attached_disk(&vm)?;
    let (two, second) = scene.new_attached_disk(&vm)?;
    if first == second {
        return Err(NotPassed::failed(format!("the disks '{one}' and '{two}' of one VM have the same hint {first}")));
    }
    scene.must("detach_disk", json!([vm, one]))?;
    let again = scene.answer("attach_disk", json!([vm, two]))?;
    match again.valid()?.error {
        None if again.success()? != second => Err(again.fail("detaching one disk changed the hint of the other")),
        _ => Ok(()),
    }
}

fn attach_again(scene: &Scene) -> Verdict {
    let vm = scene.vm()?;
    let (disk, hint) = scene.new_attached_disk(&vm)?;
    let again = scene.answer("attach_disk", json!([vm, disk]))?;
    if again.success()? == hint { Ok(()) } else { Err(again.fail(format!("the first hint was {hint}"))) }
}

fn attached_elsewhere(scene: &Scene) -> Verdict {
    let (vm, other) = (scene.vm()?, scene.new_vm()?);
    let (disk, _) = scene.new_attached_disk(&vm)?;
    let second = scene.answer("attach_disk", json!([other, disk]))?;
    second.refusal("although the disk is attached to another VM")?;
    let disks = scene.answer("get_disks", json!([vm]))?;
    match disks.success_or(&[ErrorType::NotImplemented])? {
        Some(disks) if !disks.as_array().is_some_and(|disks| disks.contains(&json!(disk))) => {
            Err(second.fail("the refused call broke the first attachment"))
        }
        _ => Ok(()),
    }
}

fn get_disks(scene: &Scene) -> Verdict {
    let vm = scene.new_vm()?;
    let listed = || -> Result<(Answer, BTreeSet<String>), NotPassed> {
        let answer = scene.answer("get_disks", json!([vm]))?;
        let list = serde_json::from_value(answer.success()?);
        let list = list.map_err(|error| answer.fail(format!("expected a list of cids: {error}")))?;
        Ok((answer, list))
    };
    // Some list the disks that are the VM's own as well.
    let (_, own) = listed()?;
    let (disk, _) = scene.new_attached_disk(&vm)?;
    let (answer, mut with) = listed()?;
    if !with.remove(&disk) || with != own {
        return Err(answer.fail(format!("expected \"{disk}\" and what was there before")));
    }
    scene.must("detach_disk", json!([vm, disk]))?;
    let (answer, without) = listed()?;
    if without == own { Ok(()) } else { Err(answer.fail("expected what was there before the disk was attached")) }
}

fn move_to_another(scene: &Scene) -> Verdict {
    let (vm, other) = (scene.vm()?, scene.new_vm()?);
    let (disk, _) = scene.new_attached_disk(&vm)?;
    scene.must("detach_disk", json!([vm, disk]))?;
    scene.must("attach_disk", json!([other, disk]))?;
    Ok(())
}

fn delete_attached(scene: &Scene) -> Verdict {
    let vm = scene.vm()?;
    let (disk, _) = scene.new_attached_disk(&vm)?;
    let answer = scene.answer("delete_disk", json!([disk]))?;
    answer.refusal("although the disk is attached")?;
    let there = scene.answer("has_disk", json!([disk]))?;
    match there.success_or(&[ErrorType::NotImplemented])? {
        Some(Value::Bool(false)) => Err(answer.fail("the refused call deleted the disk")),
        _ => Ok(()),
    }
}

fn attach_unknown_disk(scene: &Scene) -> Verdict {
    let answer = scene.answer("attach_disk", json!([scene.vm()?, unknown_cid()]))?;
    answer.refusal("although there is no such disk")?;
    Ok(())
}

fn attach_unknown_vm(scene: &Scene) -> Verdict {
    let answer = scene.answer("attach_disk", json!([unknown_cid(), scene.new_disk()?]))?;
    answer.refusal("although there is no such VM")?;
    Ok(())
}

fn resize(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    scene.must("resize_disk", json!([disk, scene.profile.disk.larger]))?;
    if scene.exists(Kind::Disk, &disk)? { Ok(()) } else { Err(NotPassed::failed("the disk is gone after its resize")) }
}

fn resize_is_real(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    let before = scene.disk_size(&disk);
    let grown = scene.answer("resize_disk", json!([disk, scene.profile.disk.larger]))?;
    grown.success()?;
    match (before, scene.disk_size(&disk)) {
        (Ok(before), Ok(after)) if after <= before || after < scene.profile.disk.larger => {
            Err(grown.fail(format!("it answered success, and the disk had {before} MiB and has {after} MiB")))
        }
        (Ok(_), Ok(_)) => Ok(()),
        (Err(why), _) | (_, Err(why)) => {
            // A CPI that did nothing takes the old size for what the disk has.
            let back = scene.answer("resize_disk", json!([disk, scene.profile.disk.size]))?;
            match &back.valid()?.error {
                None => {
                    let what = "it grew the disk and then took the old size, too: it did one of both only in words";
                    Err(NotPassed::Failed(what.into(), vec![grown, back]))
                }
                Some(_) => Err(why),
            }
        }
    }
}

fn resize_smaller(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    scene.must("resize_disk", json!([disk, scene.profile.disk.larger]))?;
    let answer = scene.answer("resize_disk", json!([disk, scene.profile.disk.size]))?;
    let error = answer.error("although that would destroy data")?;
    if error.kind == ErrorType::NotSupported {
        return Ok(());
    }
    Err(answer.warn(format!("{} aborts the deployment; NotSupported lets the director copy the data", error.kind)))
}

fn resize_equal(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    scene.must("resize_disk", json!([disk, scene.profile.disk.size]))?;
    Ok(())
}

fn resize_unknown(scene: &Scene) -> Verdict {
    let answer = scene.answer("resize_disk", json!([unknown_cid(), scene.profile.disk.larger]))?;
    answer.refusal("although there is no such disk")?;
    Ok(())
}

fn update(scene: &Scene) -> Verdict {
    let disk = scene.new_disk()?;
    let arguments = json!([disk, scene.profile.disk.larger, scene.profile.disk.cloud_properties]);
    let answer = scene.answer("update_disk", arguments)?;
    let updated = match answer.success()? {
        Value::Null | Value::Bool(false) => disk,
        Value::String(cid) if !cid.is_empty() => cid,
        other => return Err(answer.fail(format!("the director would store {other} as the disk's cid"))),
    };
    if scene.exists(Kind::Disk, &updated)? {
        return Ok(());
    }
    Err(answer.fail(format!("has_disk does not know '{updated}', which the director would store")))
}

fn update_unknown(scene: &Scene) -> Verdict {
    let answer = scene.answer("update_disk", json!([unknown_cid(), scene.profile.disk.larger, {}]))?;
    answer.refusal("although there is no such disk")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_strings_or_objects_of_strings() {
        for hint in [json!("/dev/sdb"), json!({"path": "/dev/sdb"}), json!({"lun": "0", "host_device_id": "x"})] {
            assert!(is_hint(&hint), "{hint}");
        }
        assert!(is_hint(&json!({"iscsi_settings": {"target": "t"}, "id": "x"})));
        for none in [json!(null), json!(""), json!({}), json!([]), json!(1), json!({"lun": 0}), json!(true)] {
            assert!(!is_hint(&none), "{none}");
        }
    }
}
