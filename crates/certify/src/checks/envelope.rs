//! The process and its envelope.

use std::time::Duration;

use serde_json::json;
use windlass_contract::cpi::ErrorType;

use super::{kept, unknown_cid};
use crate::caller::{Manner, UnreadableFolder};
use crate::check::Level::Required;
use crate::check::{Check, NotPassed, Verdict, afterwards, check};
use crate::scene::Scene;
use crate::seen::Rule;

pub(super) const CHECKS: &[Check] = &[
    check(
        "envelope.three-keys",
        &[1],
        Required,
        "the director refuses an answer without result, error and a log string, and leaks what the call made",
        three_keys,
    ),
    check(
        "envelope.no-newline",
        &[2],
        Required,
        "callers end a request by closing stdin; a CPI that waits for a line break hangs every task",
        no_newline,
    ),
    check("envelope.pretty-printed", &[3], Required, "a request is JSON however it is laid out", pretty_printed),
    check(
        "envelope.bare-environment",
        &[4],
        Required,
        "the director starts a CPI with little more than PATH in its environment",
        bare_environment,
    ),
    check(
        "envelope.any-folder",
        &[5],
        Required,
        "the working directory of a director's worker is arbitrary",
        any_folder,
    ),
    check(
        "envelope.command-line-context",
        &[6],
        Required,
        "create-env asks info in version 1 and without a request id, and takes the version from the answer",
        command_line_context,
    ),
    check(
        "envelope.unknown-keys",
        &[7],
        Required,
        "later directors send keys that today's CPI does not know",
        unknown_keys,
    ),
    check(
        "envelope.empty-stemcell",
        &[8],
        Required,
        "delete-env with an old state file sends a stemcell without a version",
        empty_stemcell,
    ),
    check(
        "envelope.large-env",
        &[9],
        Required,
        "the director writes the whole request before it reads anything; a CPI that talks first blocks both for ever",
        large_env,
    ),
    check(
        "envelope.stderr-unread",
        &[10],
        Required,
        "callers may read stderr late; the answer must come all the same",
        stderr_unread,
    ),
    check(
        "envelope.utf8",
        &[11],
        Required,
        "names and tags are in any language; broken text ends in the director's database",
        utf8,
    ),
    afterwards(
        "envelope.every-answer",
        &[1],
        Required,
        "an answer that the director cannot read fails the task and leaks what the call made",
        |scene| kept(scene, Rule::Envelope),
    ),
    afterwards(
        "envelope.exit-zero",
        &[1],
        Required,
        "create-env does not even read the answer of a CPI that ends with another exit status",
        |scene| kept(scene, Rule::ExitZero),
    ),
    afterwards(
        "envelope.every-answer-utf8",
        &[11],
        Required,
        "text that is no UTF-8 gets through the director and into its database",
        |scene| kept(scene, Rule::Utf8),
    ),
    afterwards(
        "envelope.streams-end",
        &[12],
        Required,
        "callers wait until stdout and stderr are closed; a helper that inherited them blocks the task until it ends",
        |scene| kept(scene, Rule::StreamsEnd),
    ),
    afterwards(
        "envelope.reads-everything",
        &[9],
        Required,
        "the director fails with a broken pipe when a CPI ends before it read a large request",
        |scene| kept(scene, Rule::ReadsAll),
    ),
];

fn three_keys(scene: &Scene) -> Verdict {
    for answer in [
        scene.call(&scene.ask("info", json!([])).no_version())?,
        scene.answer("has_vm", json!([unknown_cid()]))?,
        scene.answer("no_such_method", json!([]))?,
    ] {
        answer.valid()?;
    }
    Ok(())
}

fn no_newline(scene: &Scene) -> Verdict {
    let manner =
        Manner { deadline: Some(scene.profile.call_deadline().min(Duration::from_secs(20))), ..Manner::default() };
    scene.send(&scene.ask("info", json!([])).to_bytes(), &manner)?.success()?;
    Ok(())
}

fn pretty_printed(scene: &Scene) -> Verdict {
    let request = format!("\n  {:#}\n\n", scene.ask("info", json!([])).to_json());
    scene.send(request.as_bytes(), &Manner::default())?.success()?;
    Ok(())
}

fn bare_environment(scene: &Scene) -> Verdict {
    let manner = Manner { bare_environment: true, ..Manner::default() };
    scene.send(&scene.ask("info", json!([])).no_version().to_bytes(), &manner)?.success()?;
    Ok(())
}

fn any_folder(scene: &Scene) -> Verdict {
    let no_folder = |error: std::io::Error| NotPassed::not_observed(format!("no temporary directory: {error}"));
    let folder = tempfile::tempdir().map_err(no_folder)?;
    let unreadable = UnreadableFolder::new().map_err(no_folder)?;
    for path in [folder.path(), unreadable.path()] {
        let manner = Manner { folder: Some(path.to_owned()), ..Manner::default() };
        scene.send(&scene.ask("info", json!([])).to_bytes(), &manner)?.success()?;
    }
    Ok(())
}

fn command_line_context(scene: &Scene) -> Verdict {
    let director = scene.call(&scene.ask("info", json!([])).no_version())?.success()?;
    let asked = scene.ask("info", json!([])).version(1).without_context("request_id");
    let answer = scene.call(&asked)?;
    let told = answer.success()?;
    if told["api_version"] != director["api_version"] {
        let (director, told) = (&director["api_version"], &told["api_version"]);
        return Err(answer.fail(format!("it tells the director {director}, and the command line {told}")));
    }
    Ok(())
}

fn unknown_keys(scene: &Scene) -> Verdict {
    for (method, arguments) in [("info", json!([])), ("has_vm", json!([unknown_cid()]))] {
        let asked = scene.ask(method, arguments).key("certify_key", json!({"a": [1]}));
        scene.call(&asked.context("certify_property", json!("x")))?.success()?;
    }
    Ok(())
}

fn empty_stemcell(scene: &Scene) -> Verdict {
    let asked = scene.ask("delete_vm", json!([unknown_cid()])).context("vm", json!({"stemcell": {}}));
    scene.call(&asked)?.success_or(&[ErrorType::VmNotFound])?;
    Ok(())
}

fn large_env(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    arguments[5]["certify"] = json!("x".repeat(1024 * 1024));
    let deadline = Some(scene.profile.call_deadline());
    let manner = Manner { write_first: true, deadline, ..Manner::default() };
    let answer = scene.send(&scene.ask("create_vm", arguments).to_bytes(), &manner)?;
    if answer.exchange.request_unread {
        return Err(answer.fail("it ended without reading the whole request"));
    }
    // A cloud may have no room for it, but must say so.
    answer.valid()?;
    Ok(())
}

fn stderr_unread(scene: &Scene) -> Verdict {
    let mut arguments = scene.vm_arguments()?;
    arguments[1] = json!(unknown_cid());
    let manner = Manner { stderr_late: true, write_first: true, ..Manner::default() };
    scene.send(&scene.ask("create_vm", arguments).to_bytes(), &manner)?.valid()?;
    Ok(())
}

fn utf8(scene: &Scene) -> Verdict {
    let vm = scene.vm()?;
    let metadata = json!({"name": "größe/日本語 \u{1f600}", "deployment": "шоп"});
    let answer = scene.answer("set_vm_metadata", json!([vm, metadata]))?;
    answer.valid()?;
    match std::str::from_utf8(&answer.exchange.stdout) {
        Ok(text) if !text.starts_with('\u{feff}') => answer.success_or(&[ErrorType::NotImplemented]).map(|_| ()),
        _ => Err(answer.fail("stdout is not plain UTF-8")),
    }
}
