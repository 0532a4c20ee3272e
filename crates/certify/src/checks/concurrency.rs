//! Many calls at once: each is a process of its own, and a director starts dozens.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use windlass_contract::cpi::ErrorType;

use crate::answer::Answer;
use crate::check::Level::{Optional, Required, Warning};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::made::Kind;
use crate::scene::{Scene, vm_cid};

pub(super) const CHECKS: &[Check] = &[
    check(
        "concurrency.create-vms",
        &[76],
        Required,
        "a deployment makes its VMs at the same time from one stemcell",
        create_vms,
    ),
    check(
        "concurrency.attach-disks",
        &[77],
        Required,
        "a disk that lands on another VM's list is mounted there, and its data with it",
        attach_disks,
    ),
    check(
        "concurrency.disks-come-and-go",
        &[78],
        Required,
        "a shared state file that two calls write at once loses disks",
        disks_come_and_go,
    ),
    check(
        "concurrency.info",
        &[79],
        Required,
        "every second process that a director starts is an info; it must not wait for anything",
        info,
    ),
    check(
        "concurrency.info-is-quick",
        &[79],
        Warning,
        "an info that takes long makes every task take long",
        info_is_quick,
    ),
    check(
        "concurrency.create-stemcells",
        &[80],
        Required,
        "two uploads of one stemcell must both end with one that can be used",
        create_stemcells,
    ),
    check(
        "concurrency.no-lost-stemcells",
        &[80],
        Optional,
        "an upload that another one overwrites leaves an image that nobody can delete",
        no_lost_stemcells,
    ),
];

/// `make` for each number, all at the same time.
fn at_once<T: Send>(count: usize, make: impl Fn(usize) -> Result<T, NotPassed> + Sync) -> Result<Vec<T>, NotPassed> {
    std::thread::scope(|threads| {
        let make = &make;
        let running: Vec<_> = (0..count).map(|number| threads.spawn(move || make(number))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(NotPassed::failed("a call of the check broke"))))
            // All are waited for before the first failure counts.
            .collect::<Vec<_>>()
            .into_iter()
            .collect()
    })
}

fn distinct(cids: &[String]) -> Verdict {
    let unique: BTreeSet<&String> = cids.iter().collect();
    if unique.len() == cids.len() {
        return Ok(());
    }
    Err(NotPassed::failed(format!("{} calls gave only {} cids", cids.len(), unique.len())))
}

fn create_vms(scene: &Scene) -> Verdict {
    scene.stemcell()?;
    let make = |_| vm_cid(&scene.answer("create_vm", scene.vm_arguments()?)?);
    let vms = at_once(scene.profile.parallel, make)?;
    distinct(&vms)?;
    at_once(vms.len(), |number| scene.must("delete_vm", json!([vms[number]])))?;
    for vm in &vms {
        if scene.exists(Kind::Vm, vm)? {
            return Err(NotPassed::failed(format!("'{vm}' is still there after delete_vm")));
        }
    }
    Ok(())
}

fn attach_disks(scene: &Scene) -> Verdict {
    scene.stemcell()?;
    let pairs = at_once(scene.profile.parallel, |_| Ok((scene.new_vm()?, scene.new_disk()?)))?;
    // Some list the disks that are the VM's own as well.
    let own = at_once(pairs.len(), |number| listed_disks(scene, &pairs[number].0))?;
    at_once(pairs.len(), |number| {
        let (vm, disk) = &pairs[number];
        scene.must("attach_disk", json!([vm, disk]))
    })?;
    for ((vm, disk), (_, own)) in pairs.iter().zip(own) {
        let (answer, with) = listed_disks(scene, vm)?;
        if let (Some(mut with), Some(own)) = (with, own)
            && (!with.remove(disk) || with != own)
        {
            return Err(answer.fail(format!("expected '{disk}' and what was there before: {own:?}")));
        }
    }
    at_once(pairs.len(), |number| {
        let (vm, disk) = &pairs[number];
        scene.must("detach_disk", json!([vm, disk]))
    })?;
    Ok(())
}

/// The disks that a CPI lists for a VM, if it can.
fn listed_disks(scene: &Scene, vm: &str) -> Result<(Answer, Option<BTreeSet<String>>), NotPassed> {
    let answer = scene.answer("get_disks", json!([vm]))?;
    let Some(list) = answer.success_or(&[ErrorType::NotImplemented])? else { return Ok((answer, None)) };
    let list =
        serde_json::from_value(list).map_err(|error| answer.fail(format!("expected a list of cids: {error}")))?;
    Ok((answer, Some(list)))
}

fn disks_come_and_go(scene: &Scene) -> Verdict {
    let count = scene.profile.parallel;
    let old = at_once(count, |_| scene.answer("create_disk", scene.disk_arguments())?.cid())?;
    distinct(&old)?;
    let new = at_once(count * 2, |number| {
        if number % 2 == 0 {
            scene.answer("create_disk", scene.disk_arguments())?.cid().map(Some)
        } else {
            scene.must("delete_disk", json!([old[number / 2]])).map(|_| None)
        }
    })?;
    let new: Vec<String> = new.into_iter().flatten().collect();
    distinct(&new)?;
    for (disks, expected) in [(&old, false), (&new, true)] {
        for disk in disks {
            let answer = scene.answer("has_disk", json!([disk]))?;
            match answer.success_or(&[ErrorType::NotImplemented])? {
                Some(Value::Bool(there)) if there != expected => {
                    return Err(answer.fail(format!("expected {expected} after calls that ran at the same time")));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

const INFOS: usize = 50;

/// Fifty `info` beside a `create_vm`.
fn infos(scene: &Scene) -> Result<Vec<Answer>, NotPassed> {
    scene.stemcell()?;
    let answers = at_once(INFOS + 1, |number| {
        if number == 0 {
            return scene.answer("create_vm", scene.vm_arguments()?);
        }
        scene.call(&scene.ask("info", json!([])).no_version())
    })?;
    Ok(answers.into_iter().skip(1).collect())
}

fn info(scene: &Scene) -> Verdict {
    infos(scene)?.iter().try_for_each(|answer| answer.success().map(|_| ()))
}

fn info_is_quick(scene: &Scene) -> Verdict {
    let answers = infos(scene)?;
    match answers.iter().max_by_key(|answer| answer.exchange.took) {
        Some(slowest) if slowest.exchange.took > Duration::from_secs(1) => {
            Err(slowest.fail(format!("the slowest of {INFOS} took {:.1?}", slowest.exchange.took)))
        }
        _ => Ok(()),
    }
}

fn create_stemcells(scene: &Scene) -> Verdict {
    let stemcells = at_once(2, |_| scene.create_stemcell())?;
    for stemcell in &stemcells {
        let mut arguments = scene.vm_arguments()?;
        arguments[1] = json!(stemcell);
        let vm = vm_cid(&scene.answer("create_vm", arguments)?)?;
        scene.must("delete_vm", json!([vm]))?;
    }
    Ok(())
}

fn no_lost_stemcells(scene: &Scene) -> Verdict {
    let before = scene.list()?;
    let stemcells: BTreeSet<String> = at_once(2, |_| scene.create_stemcell())?.into_iter().collect();
    for stemcell in &stemcells {
        scene.must("delete_stemcell", json!([stemcell]))?;
    }
    let left: Vec<_> = scene.list()?.difference(&before).cloned().collect();
    if left.is_empty() { Ok(()) } else { Err(NotPassed::failed(format!("the uploads left {}", left.join(", ")))) }
}
