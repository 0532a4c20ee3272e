//! Bad input. None of it comes from a director in order; all of it comes sooner or later.

use serde_json::{Value, json};

use super::unknown_cid;
use crate::answer::Answer;
use crate::caller::Manner;
use crate::check::Level::{Optional, Required, Warning};
use crate::check::{Check, NotPassed, Verdict, check};
use crate::scene::Scene;

pub(super) const CHECKS: &[Check] = &[
    check(
        "robustness.no-request",
        &[81],
        // BOSH's library for Ruby ends without a word, and no director asks nothing.
        Warning,
        "a request that was cut short must be answered with a reason, not with a crash",
        no_request,
    ),
    check(
        "robustness.bad-method",
        &[82],
        Required,
        "a request without a method must be answered with a reason",
        bad_method,
    ),
    check(
        "robustness.bad-arguments",
        &[83],
        Required,
        "a request without arguments must be answered with a reason",
        bad_arguments,
    ),
    check(
        "robustness.hostile-cids",
        &[84],
        Required,
        "a cid is used in paths and commands; one that is made up must not reach other files or a shell",
        hostile_cids,
    ),
    check(
        "robustness.wrong-types",
        &[84],
        Required,
        "an argument of a wrong type must be refused before anything is done",
        wrong_types,
    ),
    check(
        "robustness.odd-networks",
        &[85],
        Required,
        "networks come from people; an odd one must be taken or refused, and leave nothing behind",
        odd_networks,
    ),
    check(
        "robustness.odd-networks-leave-nothing",
        &[85],
        Optional,
        "what a refused call left belongs to nobody and costs money",
        odd_networks_leave_nothing,
    ),
    check("robustness.no-director", &[86], Required, "not every caller is a director with an id", no_director),
    check(
        "robustness.deep-and-huge",
        &[87],
        Required,
        "a huge or deeply nested request must not take the machine's memory or the process's stack",
        deep_and_huge,
    ),
    check(
        "robustness.duplicate-keys",
        &[88],
        Required,
        "a key that is there twice must not give two behaviours",
        duplicate_keys,
    ),
];

/// A valid error of a known type, with exit status 0.
fn refused(scene: &Scene, request: &[u8], what: &str) -> Verdict {
    let answer = scene.send(request, &Manner::default())?;
    let error = answer.error(&format!("although {what}"))?;
    if !error.kind.is_usual() {
        return Err(answer.fail(format!("no caller knows the error type '{}' ({what})", error.kind)));
    }
    if !answer.exchange.exit.is_some_and(|exit| exit.success()) {
        return Err(answer.fail(format!("it ended with {} ({what})", answer.exchange.ending())));
    }
    Ok(())
}

fn no_request(scene: &Scene) -> Verdict {
    let invalid =
        br#"{"method":"info","arguments":["#.iter().chain(b"\xff\xfe").chain(br#""]}"#).copied().collect::<Vec<u8>>();
    let whole = scene.ask("info", json!([])).to_bytes();
    for (request, what) in [
        (b"".as_slice(), "there was no request"),
        (b"null", "the request was null"),
        (b"[]", "the request was an array"),
        (b"3", "the request was a number"),
        (b"\"info\"", "the request was a string"),
        (&whole[..whole.len() / 2], "the request was cut short"),
        (&invalid, "the request was no UTF-8"),
    ] {
        refused(scene, request, what)?;
    }
    Ok(())
}

fn bad_method(scene: &Scene) -> Verdict {
    let context = scene.ask("info", json!([])).to_json()["context"].clone();
    for method in [None, Some(json!(null)), Some(json!(3)), Some(json!(["info"])), Some(json!("INFO")), Some(json!(""))]
    {
        let mut request = json!({"arguments": [], "context": context, "api_version": 2});
        if let Some(method) = &method {
            request["method"] = method.clone();
        }
        refused(scene, request.to_string().as_bytes(), &format!("the method was {}", json!(method)))?;
    }
    Ok(())
}

fn bad_arguments(scene: &Scene) -> Verdict {
    let context = scene.ask("info", json!([])).to_json()["context"].clone();
    for arguments in [None, Some(json!(null)), Some(json!({"vm_cid": "x"})), Some(json!("x"))] {
        let mut request = json!({"method": "has_vm", "context": context, "api_version": 2});
        if let Some(arguments) = &arguments {
            request["arguments"] = arguments.clone();
        }
        refused(scene, request.to_string().as_bytes(), &format!("the arguments were {}", json!(arguments)))?;
    }
    Ok(())
}

/// `false`, success or an error; anything else is not an answer to this.
fn harmless(answer: &Answer) -> Verdict {
    let response = answer.valid()?;
    if response.error.is_none() && response.result == json!(true) {
        return Err(answer.fail("it knows something by a cid that never was"));
    }
    Ok(())
}

/// Cids that a careless CPI takes for a path or a command. A CPI that falls for one of them does what it says, with its
/// own privileges: so the only paths that are ever named to a method that removes things lead to a folder made for this.
fn hostile_cids(scene: &Scene) -> Verdict {
    let no_folder = |error: std::io::Error| NotPassed::not_observed(format!("no temporary directory: {error}"));
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let victims = [folder.path().join("file"), folder.path().join("folder/file")];
    std::fs::create_dir(folder.path().join("folder")).map_err(no_folder)?;
    for victim in &victims {
        std::fs::write(victim, "x").map_err(no_folder)?;
    }
    let touched = folder.path().join("touched");
    let shell = format!("x; touch {0}; $(touch {0}) `touch {0}`", touched.display());
    let mut cids = vec![
        json!(""),
        json!("'\"$x"),
        json!("line\nbreak"),
        json!("nul\u{0}byte"),
        json!(shell),
        json!("x".repeat(4096)),
        json!(format!("no-such-folder-{}/x", uuid::Uuid::new_v4())),
    ];
    for name in ["file", "folder"] {
        let path = folder.path().join(name).display().to_string();
        cids.push(json!(format!("../../../../../../../../../../..{path}")));
        cids.push(json!(path));
    }
    for cid in [json!("."), json!(".."), json!("/")] {
        harmless(&scene.answer("has_vm", json!([cid]))?)?;
        harmless(&scene.answer("has_disk", json!([cid]))?)?;
    }
    let vm = scene.vm()?;
    for cid in &cids {
        for method in ["has_vm", "has_disk", "delete_vm", "delete_disk"] {
            harmless(&scene.answer(method, json!([cid]))?)?;
        }
        let attached = scene.answer("attach_disk", json!([vm, cid]))?;
        attached.error("although there is no such disk")?;
    }
    if let Some(victim) = victims.iter().find(|victim| !victim.exists()) {
        return Err(NotPassed::failed(format!("a cid that names the path {} removed it", victim.display())));
    }
    if touched.exists() {
        return Err(NotPassed::failed("a cid was run as a shell command"));
    }
    Ok(())
}

fn wrong_types(scene: &Scene) -> Verdict {
    for cid in [json!(null), json!(3), json!(true), json!(["x"]), json!({"cid": "x"})] {
        for method in ["has_vm", "has_disk", "delete_vm", "delete_disk", "delete_stemcell"] {
            harmless(&scene.answer(method, json!([cid]))?)?;
        }
        scene.answer("attach_disk", json!([cid, unknown_cid()]))?.error("although the VM's cid is no string")?;
    }
    let mut arguments = scene.vm_arguments()?;
    for (position, wrong) in [(0, json!(3)), (1, json!(["x"])), (3, json!("x")), (3, json!(["x"]))] {
        let right = std::mem::replace(&mut arguments[position], wrong);
        let answer = scene.answer("create_vm", arguments.clone())?;
        answer.error(&format!("although argument {} has a wrong type", position + 1))?;
        arguments[position] = right;
    }
    Ok(())
}

fn odd_network_requests(scene: &Scene) -> Result<Vec<Value>, NotPassed> {
    let mut requests = Vec::new();
    for (key, value) in [
        ("dns", json!(null)),
        ("cloud_properties", json!(null)),
        ("type", json!("no-such-type")),
        ("ip", json!("not an address")),
        ("default", json!(null)),
    ] {
        let mut arguments = scene.vm_arguments()?;
        arguments[3]["default"][key] = value;
        requests.push(arguments);
    }
    let mut arguments = scene.vm_arguments()?;
    arguments[3]["default"] = json!(null);
    requests.push(arguments);
    Ok(requests)
}

fn odd_networks(scene: &Scene) -> Verdict {
    for arguments in odd_network_requests(scene)? {
        scene.answer("create_vm", arguments)?.valid()?;
    }
    Ok(())
}

fn odd_networks_leave_nothing(scene: &Scene) -> Verdict {
    for arguments in odd_network_requests(scene)? {
        let before = scene.list()?;
        let answer = scene.answer("create_vm", arguments)?;
        let left: Vec<_> = scene.list()?.difference(&before).cloned().collect();
        if answer.valid()?.error.is_some() && !left.is_empty() {
            return Err(answer.fail(format!("the refused call left {}", left.join(", "))));
        }
    }
    Ok(())
}

fn no_director(scene: &Scene) -> Verdict {
    scene.call(&scene.ask("info", json!([])).without_context("director_uuid"))?.valid()?;
    scene.send(br#"{"method":"info","arguments":[]}"#, &Manner::default())?.valid()?;
    Ok(())
}

fn deep_and_huge(scene: &Scene) -> Verdict {
    for depth in [100, 200, 100_000] {
        let nested = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let request = scene.ask("create_disk", json!([scene.profile.disk.size, "NESTED", null])).to_json().to_string();
        let request = request.replace("\"NESTED\"", &nested);
        scene.send(request.as_bytes(), &Manner::default())?.valid()?;
    }
    let manner = Manner { write_first: true, ..Manner::default() };
    let huge = json!(["x".repeat(10 * 1024 * 1024)]);
    let answer = scene.send(&scene.ask("has_vm", huge).to_bytes(), &manner)?;
    if answer.exchange.request_unread {
        return Err(answer.fail("it ended without reading the whole request"));
    }
    harmless(&answer)
}

fn duplicate_keys(scene: &Scene) -> Verdict {
    let request = br#"{"method":"has_vm","method":"info","arguments":["x"],"arguments":[],"context":{"director_uuid":"a","director_uuid":"b"},"api_version":2,"api_version":2}"#;
    let first = scene.send(request, &Manner::default())?;
    let second = scene.send(request, &Manner::default())?;
    let same = {
        let (first, second) = (first.valid()?, second.valid()?);
        first.result == second.result && first.error == second.error
    };
    if same { Ok(()) } else { Err(NotPassed::Failed("the same request had two answers".into(), vec![first, second])) }
}
