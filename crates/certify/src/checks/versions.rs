//! Versions: which side speaks what.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use windlass_contract::cpi::ErrorType;

use super::snapshots::director_metadata;
use super::{names_the_versions, unknown_cid};
use crate::answer::Answer;
use crate::ask::Ask;
use crate::check::Level::{Optional, Required};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::scene::{Scene, vm_cid};

pub(super) const CHECKS: &[Check] = &[
    check(
        "versions.info",
        &[63],
        Required,
        "callers ask info before nearly every call, in every version that it reports, and refuse a CPI below version 2",
        info,
    ),
    check(
        "versions.beyond",
        &[64],
        Required,
        "a newer director prefers a higher version and asks in the one that is reported; it must be spoken, too",
        beyond,
    ),
    check(
        "versions.matrix",
        &[65],
        Required,
        "old and new stemcells run side by side for years; the request's version alone decides the answer's shape",
        matrix,
    ),
    check(
        "versions.v1-request-v2-stemcell",
        &[66],
        Required,
        "a director that is pinned to version 1 reads no hints: its agents need the registry whatever their stemcell",
        v1_request,
    ),
    check(
        "versions.lower-advertised",
        &[67],
        Optional,
        "with the advertised version lowered an operator can hold back version 2 during an upgrade",
        lower_advertised,
    ),
    check(
        "versions.odd-values",
        &[68],
        Required,
        "a version in an odd form must get an answer; a crash leaves the task without a reason",
        odd_values,
    ),
    check(
        "versions.without-stemcell-version",
        &[69],
        Required,
        "the director leaves the stemcell's version out of most calls; they must behave as with it",
        without_stemcell_version,
    ),
];

fn info(scene: &Scene) -> Verdict {
    let asked = |version: Option<u64>| {
        let ask = scene.ask("info", json!([]));
        scene.call(&version.map_or(ask.clone().no_version(), |version| ask.version(version)))
    };
    let first = asked(None)?;
    let told = first.success()?;
    if told["api_version"].as_u64().is_none_or(|version| version < 2) {
        return Err(first.fail(format!("api_version must be an integer of at least 2, not {}", told["api_version"])));
    }
    let formats = told["stemcell_formats"].as_array();
    if !formats.is_some_and(|formats| formats.iter().all(Value::is_string)) {
        return Err(
            first.fail(format!("stemcell_formats must be an array of strings, not {}", told["stemcell_formats"]))
        );
    }
    for version in spoken(told["api_version"].as_u64().unwrap_or(2)) {
        let answer = asked(Some(version))?;
        if answer.success()? != told {
            return Err(NotPassed::Failed(
                format!("info differs when it is asked in version {version}"),
                vec![first, answer],
            ));
        }
    }
    Ok(())
}

/// Preferred by directors: old ones, today's, and whatever comes.
const PREFERRED: [u64; 4] = [1, 2, 3, 25];

/// The versions that directors ask in: the lower of what they prefer and what is reported.
fn spoken(reported: u64) -> BTreeSet<u64> {
    PREFERRED.iter().map(|preferred| *preferred.min(&reported)).collect()
}

/// The highest version that the CPI reports.
pub(super) fn reported(scene: &Scene) -> Result<u64, NotPassed> {
    let answer = scene.call(&scene.ask("info", json!([])).no_version())?;
    let told = answer.success().map_err(|error| error.while_preparing("info is needed and did not work"))?;
    told["api_version"].as_u64().ok_or_else(|| NotPassed::not_observed("info reports no version"))
}

fn beyond(scene: &Scene) -> Verdict {
    let highest = reported(scene)?;
    for version in spoken(highest) {
        scene.call(&scene.ask("info", json!([])).version(version))?.success()?;
        scene.call(&scene.ask("has_vm", json!([unknown_cid()])).version(version))?.valid()?;
    }
    Ok(())
}

fn matrix(scene: &Scene) -> Verdict {
    for stemcell in [json!(null), json!(1), json!(2), json!(3), json!(25)] {
        let as_asked = |ask: Ask| ask.version(2).stemcell(stemcell.clone());
        let created = scene.call(&as_asked(scene.ask("create_vm", scene.vm_arguments()?)))?;
        if stemcell.as_u64().unwrap_or(1) < 2
            && let Some(error) = &created.valid()?.error
        {
            names_the_versions(&created, error)?;
            continue;
        }
        let vm = vm_cid(&created)?;
        let disk = scene.new_disk()?;
        let attached = scene.call(&as_asked(scene.ask("attach_disk", json!([vm, disk]))))?;
        if attached.success()?.is_null() {
            return Err(attached.fail("version 2 answers attach_disk with a hint"));
        }
        scene.call(&as_asked(scene.ask("detach_disk", json!([vm, disk]))))?.success()?;
        scene.call(&as_asked(scene.ask("delete_vm", json!([vm]))))?.success()?;
    }
    Ok(())
}

/// Version 1's answer, or an error that says why there is none.
pub(super) fn v1_create(scene: &Scene, asked: impl Fn(Ask) -> Ask) -> Verdict {
    let answer = scene.call(&asked(scene.ask("create_vm", scene.vm_arguments()?)))?;
    let response = answer.valid()?;
    match (&response.error, &response.result) {
        (Some(error), _) if error.kind == ErrorType::NotImplemented => {
            Err(answer.fail("a CPI without version 1 says so with CloudError; NotImplemented hides the reason"))
        }
        (Some(error), _) => names_the_versions(&answer, error),
        (None, Value::String(cid)) if !cid.is_empty() => Ok(()),
        (None, other) => Err(answer.fail(format!("version 1 answers create_vm with a plain string, not {other}"))),
    }
}

fn v1_request(scene: &Scene) -> Verdict {
    v1_create(scene, |ask| ask.version(1).stemcell(2))?;
    v1_create(scene, |ask| ask.no_version().stemcell(2))
}

fn lower_advertised(scene: &Scene) -> Verdict {
    let highest = reported(scene)?;
    let lower = &scene.profile.lower_version;
    let told = scene.call(&scene.ask("info", json!([])).no_version().overlaid(lower))?.success()?;
    if told["api_version"].as_u64().is_none_or(|version| version >= highest) {
        return Err(NotPassed::NotSupported("the profile's lower_version does not change what info reports".into()));
    }
    let created = scene.call(&scene.ask("create_vm", scene.vm_arguments()?).overlaid(lower))?;
    vm_cid(&created)?;
    Ok(())
}

fn odd_values(scene: &Scene) -> Verdict {
    for version in [json!(null), json!("2"), json!(2.0), json!(0), json!(-1), json!([2])] {
        scene.call(&scene.ask("info", json!([])).version(version.clone()))?.valid()?;
        scene.call(&scene.ask("has_vm", json!([unknown_cid()])).version(version))?.valid()?;
    }
    for stemcell in [json!("2"), json!(2.0), json!(-1), json!({})] {
        scene.call(&scene.ask("has_vm", json!([unknown_cid()])).stemcell(stemcell))?.valid()?;
    }
    Ok(())
}

fn without_stemcell_version(scene: &Scene) -> Verdict {
    let vm = scene.vm()?;
    let disk = scene.new_disk()?;
    let both = |method: &str, arguments: Value| -> Result<(Answer, Answer), NotPassed> {
        let ask = scene.ask(method, arguments);
        Ok((scene.call(&ask)?, scene.call(&ask.without_context("vm"))?))
    };
    for (method, arguments) in [
        ("attach_disk", json!([vm, disk])),
        ("set_vm_metadata", json!([vm, {"name": "certify"}])),
        ("snapshot_disk", json!([disk, director_metadata()])),
        ("detach_disk", json!([vm, disk])),
    ] {
        let (with, without) = both(method, arguments)?;
        let kind =
            |answer: &Answer| answer.valid().map(|response| response.error.as_ref().map(|error| error.kind.clone()));
        let second_detach = method == "detach_disk" && kind(&without)? == Some(ErrorType::DiskNotAttached);
        // Attached already: some clouds refuse what they have just done. Others check that.
        let second_attach = method == "attach_disk" && kind(&with)?.is_none() && kind(&without)?.is_some();
        if kind(&with)? != kind(&without)? && !second_detach && !second_attach {
            let what = format!("'{method}' behaves differently without the stemcell's version");
            return Err(NotPassed::Failed(what, vec![with, without]));
        }
    }
    Ok(())
}
