//! Values that a deploy makes, and when it makes them again.

use super::*;

pub(super) fn made_at_deploy(scene: &Scene<'_>) {
    let variables = json!([
        {"name": "p", "type": "password"}, {"name": "r", "type": "rsa"}, {"name": "s", "type": "ssh"},
        {"name": "u", "type": "user", "options": {"username": "eve"}},
        {"name": "c", "type": "certificate", "options": {"is_ca": true, "common_name": "ca", "key_length": 2048}},
    ]);
    scene.deploy_manifest(&with_variables(scene, json!({"password": "((p))"}), variables));
    assert_eq!(scene.value("p").as_str().unwrap().len(), 20);
    assert!(scene.value("r")["private_key"].as_str().unwrap().starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    assert!(scene.value("s")["public_key"].as_str().unwrap().starts_with("ssh-rsa "));
    assert_eq!(scene.value("u")["username"], "eve");
    assert_eq!(scene.value("c")["ca"], scene.value("c")["certificate"]);
    let events = scene.client().get(&format!("/events?deployment={}&object_type=variable", scene.name));
    let events = events.as_array().unwrap();
    assert_eq!(events.len(), 5, "{events:?}");
    let (name, id) = (scene.absolute("p"), scene.versions("p")[0]["id"].clone());
    let of_p = events.iter().find(|event| event["object_name"] == name).unwrap();
    assert_eq!((&of_p["action"], &of_p["context"]), (&json!("create"), &json!({"name": name, "id": id})));
}

pub(super) fn ca() -> Value {
    json!({"name": "ca", "type": "certificate", "options": {"is_ca": true, "common_name": "ca", "key_length": 2048}})
}

pub(super) fn signed_by_its_ca(scene: &Scene<'_>) {
    let leaf = json!({"name": "leaf", "type": "certificate",
        "options": {"ca": "ca", "common_name": "((domain))", "alternative_names": ["127.0.0.1"], "key_length": 2048}});
    scene.put("domain", json!("example.com"));
    scene.deploy_manifest(&with_variables(scene, json!({"password": "((leaf.ca))"}), json!([ca(), leaf])));
    assert_eq!(scene.value("leaf")["ca"], scene.value("ca")["certificate"]);
    assert_eq!(scene.shown("web/0"), scene.value("ca")["certificate"].as_str().unwrap().trim());
}

pub(super) fn no_such_ca(scene: &Scene<'_>) {
    let leaf = json!({"name": "leaf", "type": "certificate", "options": {"ca": "snake", "common_name": "a"}});
    let said = scene.refused_manifest(&with_variables(scene, json!({"password": "((leaf.ca))"}), json!([leaf])));
    assert!(said.contains(&format!("the CA '{}' has no value", scene.absolute("snake"))), "{said}");
}

pub(super) fn password(length: usize) -> Value {
    json!({"name": "p", "type": "password", "options": {"length": length}})
}

pub(super) fn converged(scene: &Scene<'_>) {
    let features = json!({"features": {"converge_variables": true}});
    let manifest = |length| {
        let manifest = with_variables(scene, json!({"password": "((p))"}), json!([password(length)]));
        with(manifest, features.clone())
    };
    scene.deploy_manifest(&manifest(10));
    assert_eq!(scene.shown("web/0").len(), 10);
    scene.deploy_manifest(&manifest(10));
    assert_eq!(scene.versions("p").len(), 1);
    scene.deploy_manifest(&manifest(12));
    assert_eq!((scene.shown("web/0").len(), scene.versions("p").len()), (12, 2));
}

pub(super) fn not_made_twice(scene: &Scene<'_>) {
    scene.put("p", json!("marked-mine"));
    for length in [10, 12] {
        scene.deploy_manifest(&with_variables(scene, json!({"password": "((p))"}), json!([password(length)])));
        assert_eq!(scene.shown("web/0"), "marked-mine");
    }
    assert_eq!(scene.versions("p").len(), 1);
}

pub(super) fn update_mode(scene: &Scene<'_>) {
    let manifest = |length: usize| {
        let b = json!({"name": "b", "type": "password", "options": {"length": length}, "update_mode": "converge"});
        with_variables(scene, json!({"password": "((p))", "other": "((b))"}), json!([password(length), b]))
    };
    scene.deploy_manifest(&manifest(20));
    let before = (scene.value("p"), scene.value("b"));
    scene.deploy_manifest(&manifest(30));
    assert_eq!(scene.value("p"), before.0);
    assert_ne!(scene.value("b"), before.1);
}

pub(super) fn an_unknown_type(scene: &Scene<'_>) {
    let variables = json!([{"name": "x", "type": "meow-cat"}]);
    let said = scene.refused_manifest(&with_variables(scene, json!({}), variables));
    assert!(said.contains("'meow-cat' cannot be made"), "{said}");
}

pub(super) fn the_made_value_is_used(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_variables(scene, json!({"password": "((p))"}), json!([password(20)])));
    assert_eq!(scene.shown("web/0"), scene.value("p").as_str().unwrap());
}

pub(super) fn states_keep_values(scene: &Scene<'_>) {
    scene.deploy_manifest(&with_variables(scene, json!({"password": "((p))"}), json!([password(20)])));
    let before = scene.shown("web/0");
    for query in ["state=restart", "state=stopped", "state=started", "state=recreate"] {
        scene.changed("web", query);
        assert_eq!(scene.shown("web/0"), before, "{query}");
    }
    assert_eq!(scene.versions("p").len(), 1);
}

pub(super) fn an_addon(scene: &Scene<'_>) {
    let idle = json!({"name": "idle", "release": "kit"});
    let manifest = with(
        scene.manifest(json!([group("web", 1, json!([idle]))])),
        json!({"variables": [password(20)], "addons": [{"name": "a", "jobs": [show(json!({"password": "((p))"}))]}]}),
    );
    scene.deploy_manifest(&manifest);
    assert_eq!(scene.shown("web/0"), scene.value("p").as_str().unwrap());
}

pub(super) fn waits_for_stemcells(scene: &Scene<'_>) {
    let waits = with(password(20), json!({"update": {"strategy": "on-stemcell-change"}}));
    let manifest = with_variables(scene, json!({"password": "((p))"}), json!([waits]));
    scene.deploy_manifest(&manifest);
    let before = scene.shown("web/0");
    scene.put("p", json!("marked-newer"));
    scene.deploy_manifest(&manifest);
    assert_eq!(scene.shown("web/0"), before);
    let task = scene.try_deploy(&manifest, "?force_latest_variables=true");
    assert_eq!(task.state, "done", "{}", message(&task));
    assert_eq!(scene.shown("web/0"), "marked-newer");
}
