//! Stemcells.

use serde_json::{Value, json};

use super::unknown_cid;
use super::versions::reported;
use crate::check::Level::{Optional, Required, Warning};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    check("stemcells.create", &[20], Required, "without a stemcell there are no VMs", create),
    check(
        "stemcells.v3-tags",
        &[21],
        Optional,
        "a director that agreed on version 3 sends tags with every stemcell",
        v3_tags,
    ),
    check(
        "stemcells.v3-without-tags",
        &[22],
        Optional,
        "the tags of version 3 may be empty, or not there at all",
        v3_without_tags,
    ),
    check(
        "stemcells.null-properties",
        &[23],
        Required,
        "a stemcell without cloud properties is sent with null; a crash gives the operator no reason",
        null_properties,
    ),
    check(
        "stemcells.missing-image",
        &[24],
        Required,
        "an upload that is said to have worked and did not breaks the next deployment",
        missing_image,
    ),
    check(
        "stemcells.missing-image-leaves-nothing",
        &[24],
        Optional,
        "what a failed upload left belongs to nobody and costs money",
        missing_image_leaves_nothing,
    ),
    check(
        "stemcells.delete-twice",
        &[25],
        Required,
        "the director knows no error for a stemcell that is gone; only success lets it clean up",
        delete_twice,
    ),
    check(
        "stemcells.delete-unknown",
        &[25],
        Warning,
        "the director knows no error for a stemcell that is gone; only success lets it clean up",
        delete_unknown,
    ),
    check(
        "stemcells.image-gone",
        &[26],
        Required,
        "the director removes the image right after the call; VMs are made from it for years",
        image_gone,
    ),
];

fn create(scene: &Scene) -> Verdict {
    scene.create_stemcell().map(|_| ())
}

fn with_tags(scene: &Scene, env: Option<Value>) -> Verdict {
    if reported(scene)? < 3 {
        return Err(NotPassed::NotSupported("the CPI reports a version below 3".into()));
    }
    let mut arguments = scene.stemcell_arguments();
    if let (Some(arguments), Some(env)) = (arguments.as_array_mut(), env) {
        arguments.push(env);
    }
    scene.call(&scene.ask("create_stemcell", arguments).version(3))?.cid()?;
    Ok(())
}

fn v3_tags(scene: &Scene) -> Verdict {
    with_tags(scene, Some(json!({"tags": {"a": "b"}})))
}

fn v3_without_tags(scene: &Scene) -> Verdict {
    with_tags(scene, Some(json!({"tags": {}})))?;
    with_tags(scene, None)
}

fn null_properties(scene: &Scene) -> Verdict {
    scene.answer("create_stemcell", json!([scene.image.path, null]))?.valid()?;
    Ok(())
}

/// A light stemcell names an image that the cloud has already.
fn must_have_an_image(scene: &Scene) -> Verdict {
    let is_light = std::fs::metadata(&scene.image.path).is_ok_and(|image| image.len() == 0);
    let why = "the stemcell is light: it has no image that could be missing";
    if is_light { Err(NotPassed::Warned(why.to_owned(), Vec::new())) } else { Ok(()) }
}

fn missing_image(scene: &Scene) -> Verdict {
    must_have_an_image(scene)?;
    let arguments = json!([format!("/no/such/{}", unknown_cid()), scene.image.cloud_properties]);
    scene.answer("create_stemcell", arguments)?.refusal("although there is no such image")?;
    Ok(())
}

fn missing_image_leaves_nothing(scene: &Scene) -> Verdict {
    must_have_an_image(scene)?;
    let before = scene.list()?;
    let arguments = json!([format!("/no/such/{}", unknown_cid()), scene.image.cloud_properties]);
    let answer = scene.answer("create_stemcell", arguments)?;
    let left: Vec<_> = scene.list()?.difference(&before).cloned().collect();
    if left.is_empty() { Ok(()) } else { Err(answer.fail(format!("the failed upload left {}", left.join(", ")))) }
}

fn delete_twice(scene: &Scene) -> Verdict {
    let stemcell = scene.create_stemcell()?;
    scene.must("delete_stemcell", json!([stemcell]))?;
    let second = scene.answer("delete_stemcell", json!([stemcell]))?;
    match &second.valid()?.error {
        None => Ok(()),
        Some(error) => Err(second.warn(format!("the second call was answered with {}", error.kind))),
    }
}

fn delete_unknown(scene: &Scene) -> Verdict {
    scene.must("delete_stemcell", json!([unknown_cid()])).map(|_| ())
}

fn image_gone(scene: &Scene) -> Verdict {
    let no_copy = |error: std::io::Error| NotPassed::not_observed(format!("the image could not be copied: {error}"));
    let folder = tempfile::tempdir().map_err(no_copy)?;
    let copy = folder.path().join("image");
    std::fs::copy(&scene.image.path, &copy).map_err(no_copy)?;
    let stemcell = scene.answer("create_stemcell", json!([copy, scene.image.cloud_properties]))?.cid()?;
    drop(folder);
    let mut arguments = scene.vm_arguments()?;
    arguments[1] = json!(stemcell);
    scene.must("create_vm", arguments)?;
    Ok(())
}
