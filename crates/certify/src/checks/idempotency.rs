//! What happens when a call is repeated, or comes too late.

use serde_json::{Value, json};
use uuid::Uuid;
use windlass_contract::cpi::ErrorType;

use super::unknown_cid;
use crate::caller::Manner;
use crate::check::Level::{Optional, Required};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::made::Kind;
use crate::scene::{Scene, vm_cid};

pub(super) const CHECKS: &[Check] = &[
    check(
        "idempotency.delete-vm",
        &[70],
        Required,
        "a VM that is gone is what the caller wants; any other error stops it",
        delete_vm,
    ),
    check(
        "idempotency.delete-disk",
        &[71],
        Required,
        "a disk that is gone is what the caller wants; any other error stops it",
        delete_disk,
    ),
    check(
        "idempotency.detach-disk",
        &[72],
        Required,
        "a disk that hangs on nothing is what the caller wants; any other error stops it",
        detach_disk,
    ),
    check(
        "idempotency.detach-deleted-disk",
        &[73],
        Required,
        "the cloud check repairs a VM whose disk is lost by detaching it",
        detach_deleted_disk,
    ),
    check(
        "idempotency.create-after-failure",
        &[74],
        Required,
        "the director repeats a failed create_vm with the same agent id",
        create_after_failure,
    ),
    check(
        "idempotency.create-after-kill",
        &[75],
        Required,
        "machines go away in the middle of a call; the next attempt must work",
        create_after_kill,
    ),
    check(
        "idempotency.kill-leaves-nothing",
        &[75],
        Optional,
        "what a killed call left must be taken over by the next one, or it is leaked",
        kill_leaves_nothing,
    ),
    check(
        "idempotency.six-digit-ids",
        &[],
        Required,
        "the director's request ids are six random digits that repeat; two calls with one id are still two calls",
        six_digit_ids,
    ),
    check(
        "idempotency.replay",
        &[],
        Optional,
        "a CPI that remembers requests lets a director that was killed ask again instead of leaking",
        replay,
    ),
];

fn delete_vm(scene: &Scene) -> Verdict {
    let gone = [ErrorType::VmNotFound];
    let vm = scene.new_vm()?;
    scene.must("delete_vm", json!([vm]))?;
    scene.answer("delete_vm", json!([vm]))?.success_or(&gone)?;
    scene.answer("delete_vm", json!([unknown_cid()]))?.success_or(&gone)?;
    Ok(())
}

fn delete_disk(scene: &Scene) -> Verdict {
    let gone = [ErrorType::DiskNotFound];
    let disk = scene.new_disk()?;
    scene.must("delete_disk", json!([disk]))?;
    let there = scene.answer("has_disk", json!([disk]))?;
    if there.success_or(&[ErrorType::NotImplemented])? == Some(json!(true)) {
        return Err(there.fail("the disk is still there after delete_disk"));
    }
    scene.answer("delete_disk", json!([disk]))?.success_or(&gone)?;
    scene.answer("delete_disk", json!([unknown_cid()]))?.success_or(&gone)?;
    Ok(())
}

fn detach_disk(scene: &Scene) -> Verdict {
    let (vm, disk) = (scene.vm()?, scene.new_disk()?);
    scene.answer("detach_disk", json!([vm, disk]))?.success_or(&[ErrorType::DiskNotAttached])?;
    Ok(())
}

fn detach_deleted_disk(scene: &Scene) -> Verdict {
    let (vm, disk) = (scene.vm()?, scene.new_disk()?);
    scene.must("delete_disk", json!([disk]))?;
    let gone = [ErrorType::DiskNotFound, ErrorType::DiskNotAttached];
    scene.answer("detach_disk", json!([vm, disk]))?.success_or(&gone)?;
    Ok(())
}

fn create_after_failure(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    let stemcell = std::mem::replace(&mut arguments[1], json!(unknown_cid()));
    scene.answer("create_vm", arguments.clone())?.error("although there is no such stemcell")?;
    arguments[1] = stemcell;
    vm_cid(&scene.answer("create_vm", arguments)?)?;
    Ok(())
}

/// Kills create_vm at several moments, and gives the VM that each repetition made.
fn kill_and_repeat(scene: &Scene) -> Result<Vec<String>, NotPassed> {
    let whole = scene.answer("create_vm", scene.vm_arguments()?)?;
    let mut vms = vec![vm_cid(&whole)?];
    for tenths in [2, 5, 8] {
        let arguments = scene.vm_arguments()?;
        let manner = Manner { kill_after: Some(whole.exchange.took * tenths / 10), ..Manner::default() };
        let ask = scene.ask("create_vm", arguments.clone());
        scene.send(&ask.to_bytes(), &manner)?;
        vms.push(vm_cid(&scene.answer("create_vm", arguments.clone())?)?);
        if announces_replay(scene)? {
            // The repetition took over what the killed call left.
            scene.made().settle(arguments[0].as_str().unwrap_or_default());
        }
    }
    Ok(vms)
}

fn create_after_kill(scene: &Scene) -> Verdict {
    for vm in kill_and_repeat(scene)? {
        scene.must("delete_vm", json!([vm]))?;
    }
    Ok(())
}

fn kill_leaves_nothing(scene: &Scene) -> Verdict {
    scene.stemcell()?;
    let before = scene.list()?;
    for vm in kill_and_repeat(scene)? {
        scene.must("delete_vm", json!([vm]))?;
    }
    // A killed call may have answered all the same.
    let others = scene.made().of(Kind::Vm, false);
    for thing in others {
        scene.must("delete_vm", json!([thing.cid]))?;
    }
    let left: Vec<_> = scene.list()?.difference(&before).cloned().collect();
    if left.is_empty() {
        return Ok(());
    }
    Err(NotPassed::Warned(format!("killed calls left {}", left.join(", ")), Vec::new()))
}

fn six_digit_ids(scene: &Scene) -> Verdict {
    let ask = scene.ask("create_disk", scene.disk_arguments());
    let first = scene.call(&ask)?;
    let second = scene.call(&ask)?;
    if first.cid()? == second.cid()? {
        return Err(NotPassed::Failed("two calls gave one disk".into(), vec![first, second]));
    }
    Ok(())
}

fn announces_replay(scene: &Scene) -> Result<bool, NotPassed> {
    let info = scene.call(&scene.ask("info", json!([])))?.success()?;
    Ok(info.pointer("/windlass/replay") == Some(&Value::Bool(true)))
}

fn replay(scene: &Scene) -> Verdict {
    if !announces_replay(scene)? {
        return Err(NotPassed::NotSupported("info does not announce that requests are remembered".into()));
    }
    let ask = scene.ask("create_disk", scene.disk_arguments()).context("request_id", json!(Uuid::new_v4()));
    let first = scene.call(&ask)?;
    let second = scene.call(&ask)?;
    if first.cid()? != second.cid()? {
        return Err(NotPassed::Failed("a repeated request made a second disk".into(), vec![first, second]));
    }
    Ok(())
}
