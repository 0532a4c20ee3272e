//! No secret of a request is in what is logged, whatever the request.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_contract::cpi::methods::NAMES;
use windlass_contract::cpi::{Redactor, Request, redact};

/// Secrets are in capitals and digits with some letters that JSON escapes; nothing else in a request is. So each secret that is
/// in a text was shown by mistake.
fn secret() -> impl Strategy<Value = String> {
    let letters =
        prop_oneof![8 => "[A-Z0-9]", 1 => Just("\"".to_owned()), 1 => Just("\\".to_owned()), 1 => Just("Ä".to_owned())];
    (vec(letters, 0..24), "[A-Z]").prop_map(|(letters, last)| letters.concat() + &last)
}

fn hidden() -> impl Strategy<Value = Value> {
    let leaf = secret().prop_map(Value::from);
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a-z]{3}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

fn properties() -> impl Strategy<Value = Value> {
    btree_map("[a-z]{3,4}", hidden(), 0..4).prop_map(|map| json!(map))
}

/// A `create_vm` with secrets in all places that have one, and the same for other methods.
fn request() -> impl Strategy<Value = Request> {
    let networks = btree_map("[a-z]{3}", properties(), 0..3).prop_map(|networks| {
        let network = |(name, properties)| (name, json!({"type": "manual", "cloud_properties": properties}));
        json!(networks.into_iter().map(network).collect::<Object>())
    });
    let env = (properties(), properties()).prop_map(|(mut env, bosh)| {
        env["bosh"] = bosh;
        env["bosh"]["group"] = json!("shown");
        env
    });
    let context = properties();
    let call = prop_oneof![
        (properties(), networks, env).prop_map(|(properties, networks, env)| {
            ("create_vm".to_owned(), json!(["a-1", "sc-1", properties, networks, ["disk-1"], env]))
        }),
        properties().prop_map(|it| ("create_network".to_owned(), json!([{"type": "manual", "cloud_properties": it}]))),
        properties().prop_map(|it| ("create_disk".to_owned(), json!([1024, it, "vm-1"]))),
        properties().prop_map(|it| ("create_stemcell".to_owned(), json!(["/image", it, {}]))),
        properties().prop_map(|it| ("update_disk".to_owned(), json!(["disk-1", 1024, it]))),
        // An object where none belongs, in any method and in one that nobody knows.
        (proptest::sample::select(NAMES), properties())
            .prop_map(|(method, it)| (method.to_owned(), json!([1, 2, 3, 4, 5, 6, 7, it]))),
        hidden().prop_map(|it| ("unheard_of".to_owned(), json!(["shown", it]))),
    ];
    (call, context).prop_map(|((method, arguments), mut context)| {
        context["director_uuid"] = json!("d-1");
        serde_json::from_value(json!({"method": method, "arguments": arguments, "context": context})).unwrap()
    })
}

/// The secrets of a request: all of its strings that have a capital letter.
fn secrets_in(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains(|letter: char| letter.is_ascii_uppercase()) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| secrets_in(value, found)),
        Value::Object(entries) => entries.values().for_each(|value| secrets_in(value, found)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_secret_of_a_request_is_in_what_is_logged(request in request()) {
        let wire = serde_json::to_value(&request).unwrap();
        let mut secrets = Vec::new();
        secrets_in(&wire, &mut secrets);
        let redactor = Redactor::of(&request);
        let logged = redact(&request).to_string();
        prop_assert!(!logged.contains(|letter: char| letter.is_ascii_uppercase()), "{}", logged);
        // A CPI that repeats its request, as it is, indented, and inside of JSON.
        let indented = serde_json::to_string_pretty(&wire).unwrap();
        for echo in [wire.to_string(), indented, json!({"log": wire.to_string()}).to_string()] {
            let echoed = redactor.echo(&echo);
            prop_assert!(!echoed.contains(|letter: char| letter.is_ascii_uppercase()), "{} became {}", echo, echoed);
        }
        // A CPI that names one in its own way.
        for secret in secrets.iter().filter(|secret| secret.len() >= 6) {
            let said = redactor.echo(&format!("cannot use {secret} here"));
            prop_assert!(!said.contains(secret), "{}", said);
        }
    }
}
