//! Errors: their types decide what callers do.

use serde_json::json;
use windlass_contract::cpi::ErrorType;

use super::{kept, unknown_cid};
use crate::check::Level::{Optional, Required, Warning};
use crate::check::{Check, NotPassed, Verdict, afterwards, check};
use crate::scene::Scene;
use crate::seen::{CANARY, Rule};

pub(super) const CHECKS: &[Check] = &[
    check(
        "errors.unknown-method",
        &[13],
        Required,
        "callers carry on without a method only when the CPI says NotImplemented",
        unknown_method,
    ),
    check(
        "errors.missing-argument",
        &[15],
        Required,
        "a call with too few arguments must not do half of what it says",
        missing_argument,
    ),
    check(
        "errors.missing-argument-leaves-nothing",
        &[15],
        Optional,
        "what a refused call made belongs to nobody and costs money",
        missing_argument_leaves_nothing,
    ),
    check(
        "errors.surplus-argument",
        &[16],
        Warning,
        "later contracts append arguments, as version 3 did; a CPI that refuses them must be upgraded first",
        surplus_argument,
    ),
    check(
        "errors.wrong-credentials",
        &[17],
        Optional,
        "wrong credentials that look like NotImplemented are swallowed, and the operator never learns of them",
        wrong_credentials,
    ),
    check(
        "errors.no-secrets",
        &[18],
        Required,
        "answers and stderr are logged as they are; a password in them is in every log",
        no_secrets,
    ),
    afterwards(
        "errors.known-types",
        &[14],
        Required,
        "callers react to ten error types; any other is an unknown error that nothing handles",
        known_types,
    ),
    afterwards("errors.one-line", &[14], Warning, "callers put the message into a line of their own", |scene| {
        kept(scene, Rule::OneLine)
    }),
    afterwards(
        "errors.no-compat-prefix",
        &[19],
        Required,
        "a message that begins so is read as NotImplemented, and a real failure may be swallowed",
        |scene| kept(scene, Rule::NoCompatPrefix),
    ),
];

fn unknown_method(scene: &Scene) -> Verdict {
    for method in ["no_such_method", "has_vm?"] {
        let answer = scene.answer(method, json!([]))?;
        let error = answer.error("although there is no such method")?;
        if error.kind != ErrorType::NotImplemented {
            return Err(answer.fail(format!("expected NotImplemented, got {}", error.kind)));
        }
        if error.ok_to_retry {
            return Err(answer.fail("it says that trying again may help"));
        }
        if answer.exchange.exit.and_then(|exit| exit.code()) != Some(0) {
            return Err(answer.fail("it did not end with exit status 0"));
        }
    }
    Ok(())
}

const TOO_FEW: [(&str, usize); 16] = [
    ("create_stemcell", 0),
    ("delete_stemcell", 0),
    ("create_vm", 1),
    ("create_vm", 3),
    ("delete_vm", 0),
    ("has_vm", 0),
    ("reboot_vm", 0),
    ("set_vm_metadata", 1),
    ("create_disk", 0),
    ("delete_disk", 0),
    ("has_disk", 0),
    ("attach_disk", 1),
    ("detach_disk", 1),
    ("resize_disk", 1),
    ("snapshot_disk", 0),
    ("delete_snapshot", 0),
];

fn missing_argument(scene: &Scene) -> Verdict {
    for (method, count) in TOO_FEW {
        let arguments: Vec<String> = (0..count).map(|_| unknown_cid()).collect();
        let answer = scene.answer(method, json!(arguments))?;
        answer.error(&format!("although '{method}' had only {count} arguments"))?;
    }
    Ok(())
}

fn missing_argument_leaves_nothing(scene: &Scene) -> Verdict {
    let before = scene.list()?;
    let arguments = scene.vm_arguments()?;
    for count in 0..4 {
        let few: Vec<_> = arguments.as_array().into_iter().flatten().take(count).collect();
        scene.answer("create_vm", json!(few))?;
    }
    let answer = scene.answer("create_disk", json!([]))?;
    let after: Vec<_> = scene.list()?.difference(&before).cloned().collect();
    if after.iter().any(|cid| Some(cid) != arguments[1].as_str().map(str::to_owned).as_ref()) {
        return Err(answer.fail(format!("refused calls left {}", after.join(", "))));
    }
    Ok(())
}

fn surplus_argument(scene: &Scene) -> Verdict {
    scene.must("has_vm", json!([unknown_cid(), "later"]))?;
    let mut arguments = scene.stemcell_arguments();
    if let Some(arguments) = arguments.as_array_mut() {
        arguments.push(json!({"tags": {}}));
    }
    scene.must("create_stemcell", arguments)?;
    Ok(())
}

fn wrong_credentials(scene: &Scene) -> Verdict {
    let wrong = scene.profile.wrong_credentials.as_ref();
    let wrong = wrong.ok_or_else(|| NotPassed::not_observed("the profile has no wrong_credentials"))?;
    let asked = scene.ask("set_vm_metadata", json!([scene.vm()?, {"name": "certify"}]));
    let answer = scene.call(&asked.overlaid(wrong))?;
    let error = answer.error("although the credentials are wrong")?;
    if error.kind == ErrorType::NotImplemented {
        return Err(answer.fail("callers swallow NotImplemented, so nobody hears of the wrong credentials"));
    }
    Ok(())
}

fn no_secrets(scene: &Scene) -> Verdict {
    let secret_env = json!({"bosh": {
        "password": CANARY, "mbus": {"urls": [format!("https://mbus:{CANARY}@0.0.0.0:6868")],
        "cert": {"private_key": format!("-----BEGIN\n{CANARY}\n-----END")}},
        "blobstores": [{"provider": "dav", "options": {"password": CANARY}}],
    }, "token": CANARY});
    let mut unknown_stemcell = scene.vm_arguments()?;
    unknown_stemcell[1] = json!(unknown_cid());
    unknown_stemcell[5] = secret_env.clone();
    let mut wrong_networks = unknown_stemcell.clone();
    wrong_networks[3] = json!(CANARY);
    let mut wrong_type = unknown_stemcell.clone();
    wrong_type[2] = json!([CANARY]);
    let mut wrong_env = unknown_stemcell.clone();
    wrong_env[5]["bosh"] = json!([secret_env]);
    for arguments in [unknown_stemcell, wrong_networks, wrong_type, wrong_env] {
        let asked = scene.ask("create_vm", arguments).context("certify_password", json!(CANARY));
        scene.call(&asked)?.valid()?;
    }
    let asked = scene.ask("attach_disk", json!([unknown_cid(), unknown_cid()]));
    scene.call(&asked.context("certify_password", json!(CANARY)))?;
    kept(scene, Rule::NoSecrets)
}

fn known_types(scene: &Scene) -> Verdict {
    if scene.seen().errors == 0 {
        return Err(NotPassed::not_observed("no call was answered with an error"));
    }
    kept(scene, Rule::ErrorShape)
}
