//! What of a request never reaches a log or a message.
//!
//! [`redact`] shows a request as a log may show it; [`Redactor`] removes the same values from free text. What is hidden
//! follows from what each method declares ([`Hides`]) and from keys that name a credential.
//!
//! How much is removed from a text depends on who wrote it:
//!
//! | text | written by | removed |
//! |---|---|---|
//! | [`Redactor::own_words`] | the CPI that serves the request | credentials: the VM's environment, values of keys that name one, passwords in URLs |
//! | [`Redactor::message`] | a CPI that may be anybody's, for people | also all properties of the CPI |
//! | [`Redactor::echo`] | the same, and it may repeat the request | also cloud properties |

use std::cmp::Reverse;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::encoded::without_encoded;
use super::{Hides, MethodName, Request};
use crate::Object;
use crate::secret::REDACTED;

/// What `env.bosh` may show.
const SHOWN_IN_BOSH: [&str; 3] = ["group", "groups", "tags"];

/// Keys with one of these in their name hold credentials, with everything below them.
const CREDENTIALS: [&str; 8] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "access_key", "mbus"];

/// Shorter values are words that also mean something else: removed everywhere, they would make a text unreadable. They are
/// removed where they stand as a JSON value.
const SHORTEST: usize = 6;

/// The same for values of keys that name a credential.
const SHORTEST_CREDENTIAL: usize = 4;

/// Whose text a value is removed from; each includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RemovedFrom {
    OwnWords,
    Messages,
    Echoes,
}

/// What the walk over a request finds.
enum Found<'a> {
    /// One value that is hidden, and whether its key names a credential.
    Hidden(RemovedFrom, bool, &'a mut Value),
    /// A document that is shown, but for credentials in it.
    Shown(&'a mut Value),
}

/// The request as a log may show it: with all keys, and without the values that are hidden.
pub fn redact(request: &Request) -> Value {
    let mut request = request.clone();
    walk(&mut request, &mut |found| match found {
        Found::Hidden(.., value) => *value = REDACTED.into(),
        Found::Shown(document) => hide_credentials(document, false),
    });
    // A request consists of JSON values and strings, which always serialise.
    serde_json::to_value(&request).unwrap_or_default()
}

/// A document without the values of keys that name a credential, and without passwords in URLs: to be shown to people.
pub fn without_credentials(mut document: Value) -> Value {
    hide_credentials(&mut document, false);
    document
}

fn walk(request: &mut Request, visit: &mut impl FnMut(Found<'_>)) {
    each_in(request.context.properties.iter_mut(), RemovedFrom::Messages, visit);
    let method = MethodName::named(&request.method);
    for (position, argument) in request.arguments.iter_mut().enumerate() {
        let Some(method) = method else {
            visit(Found::Hidden(RemovedFrom::Echoes, false, argument));
            continue;
        };
        let declared = method.declaration().hides.iter().find(|(declared, _)| *declared == position);
        match declared.map(|(_, hides)| hides) {
            // Cids, sizes and paths are what logs are about. An object of which nothing is known may hold anything.
            None if argument.is_object() => each_value(argument, visit),
            None => {}
            Some(Hides::Nothing) => visit(Found::Shown(argument)),
            Some(Hides::Values) => each_value(argument, visit),
            Some(Hides::ValuesOfCloudProperties) => each_cloud_property(argument, visit),
            Some(Hides::ValuesOfNetworks) => {
                let networks = argument.as_object_mut().into_iter().flat_map(|networks| networks.values_mut());
                networks.for_each(|network| each_network_property(network, visit));
            }
            Some(Hides::Environment) => each_in_environment(argument, visit),
        }
    }
}

fn each_in<'a>(
    entries: impl Iterator<Item = (&'a String, &'a mut Value)>,
    from: RemovedFrom,
    visit: &mut impl FnMut(Found<'_>),
) {
    entries.for_each(|(key, value)| visit(Found::Hidden(from, names_a_credential(key), value)));
}

/// Keeps the keys of an object, so that a log shows what was given; anything else is one value.
fn each_value(value: &mut Value, visit: &mut impl FnMut(Found<'_>)) {
    match value {
        Value::Object(entries) => each_in(entries.iter_mut(), RemovedFrom::Echoes, visit),
        Value::Null => {}
        other => visit(Found::Hidden(RemovedFrom::Echoes, false, other)),
    }
}

fn each_cloud_property(document: &mut Value, visit: &mut impl FnMut(Found<'_>)) {
    if let Some(properties) = document.get_mut("cloud_properties") {
        each_value(properties, visit);
    }
}

/// A network that is not there is what messages of clouds are about most often, so its name is shown.
fn each_network_property(network: &mut Value, visit: &mut impl FnMut(Found<'_>)) {
    let is_name = |key: &str| key == "name" || key.ends_with("_name");
    match network.get_mut("cloud_properties") {
        Some(Value::Object(properties)) => {
            let hidden = properties.iter_mut().filter(|(key, value)| !(is_name(key) && value.is_string()));
            each_in(hidden, RemovedFrom::Echoes, visit);
        }
        _ => each_cloud_property(network, visit),
    }
}

fn each_in_environment(env: &mut Value, visit: &mut impl FnMut(Found<'_>)) {
    let from = RemovedFrom::OwnWords;
    match env {
        Value::Object(env) => {
            let (bosh, others): (Vec<_>, Vec<_>) =
                env.iter_mut().partition(|(key, value)| *key == "bosh" && value.is_object());
            each_in(others.into_iter(), from, visit);
            for entries in bosh.into_iter().filter_map(|(_, bosh)| bosh.as_object_mut()) {
                let secret = entries.iter_mut().filter(|(key, _)| !SHOWN_IN_BOSH.contains(&key.as_str()));
                each_in(secret, from, visit);
            }
        }
        Value::Null => {}
        other => visit(Found::Hidden(from, false, other)),
    }
}

fn hide_credentials(value: &mut Value, named: bool) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                hide_credentials(value, named || names_a_credential(key));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| hide_credentials(element, named)),
        Value::Null => {}
        hidden if named => *hidden = REDACTED.into(),
        Value::String(text) => {
            if let Some(password) = password_in_url(text) {
                *text = text.replace(password, REDACTED);
            }
        }
        Value::Bool(_) | Value::Number(_) => {}
    }
}

fn names_a_credential(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    CREDENTIALS.iter().any(|word| key.contains(word)) || key.ends_with("key")
}

fn password_in_url(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (credentials, _) = authority.rsplit_once('@')?;
    credentials.split_once(':').map(|(_, password)| password).filter(|password| !password.is_empty())
}

/// Removes what a request hides from free text.
#[derive(Clone, Default)]
pub struct Redactor {
    /// The longest first: one may hold another.
    removed: Vec<Removed>,
}

/// One text that is removed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Removed {
    length: Reverse<usize>,
    text: String,
    from: RemovedFrom,
    /// Only where it stands as a whole between quotes, which are part of the text.
    is_json_value: bool,
}

impl Redactor {
    /// For text that is written while `request` is served.
    pub fn of(request: &Request) -> Self {
        let mut redactor = Self::default();
        walk(&mut request.clone(), &mut |found| match found {
            Found::Hidden(from, named, value) => redactor.gather(value, Some(from), named),
            Found::Shown(document) => redactor.gather(document, None, false),
        });
        redactor.sorted()
    }

    /// Also removes the credentials of a configuration.
    pub fn and_configuration(mut self, properties: &Object) -> Self {
        for (key, value) in properties {
            self.gather(value, None, names_a_credential(key));
        }
        self.sorted()
    }

    /// What the CPI that serves the request says itself: without credentials.
    pub fn own_words(&self, text: &str) -> String {
        self.remove(text, RemovedFrom::OwnWords)
    }

    /// What a CPI says to people: without its properties, but with the names and sizes that explain the text.
    pub fn message(&self, text: &str) -> String {
        self.remove(text, RemovedFrom::Messages)
    }

    /// What may repeat the whole request.
    pub fn echo(&self, text: &str) -> String {
        self.remove(text, RemovedFrom::Echoes)
    }

    fn remove(&self, text: &str, from: RemovedFrom) -> String {
        let removed = || self.removed.iter().filter(move |removed| removed.from <= from);
        let is_secret = |said: &str| removed().any(|removed| !removed.is_json_value && said.contains(&removed.text));
        let mut text = without_encoded(text, is_secret).unwrap_or_else(|| text.to_owned());
        for removed in removed() {
            if !text.contains(&removed.text) {
                continue;
            }
            text = match removed.is_json_value {
                true => without_json_value(&text, &removed.text),
                false => text.replace(&removed.text, REDACTED),
            };
        }
        text
    }

    fn sorted(mut self) -> Self {
        self.removed.sort();
        // The first of the same text is the one that is removed from most.
        self.removed.dedup_by(|one, other| (&one.text, one.is_json_value) == (&other.text, other.is_json_value));
        self
    }

    /// `named`: a key above the value names a credential, so it is removed from everything.
    fn gather(&mut self, value: &Value, from: Option<RemovedFrom>, named: bool) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    self.gather(value, from, named || names_a_credential(key));
                }
            }
            Value::Array(elements) => elements.iter().for_each(|element| self.gather(element, from, named)),
            Value::String(text) => self.gather_text(text, from, named),
            Value::Number(number) if named && number.to_string().len() >= SHORTEST_CREDENTIAL => {
                self.add(number.to_string(), RemovedFrom::OwnWords, false);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn gather_text(&mut self, text: &str, from: Option<RemovedFrom>, named: bool) {
        // A URL may be printed without its password, or the password without its URL.
        if let Some(password) = password_in_url(text) {
            self.gather_value(password, RemovedFrom::OwnWords, SHORTEST_CREDENTIAL);
            self.gather_value(
                &percent_decode_str(password).decode_utf8_lossy(),
                RemovedFrom::OwnWords,
                SHORTEST_CREDENTIAL,
            );
        }
        let (from, shortest) = match (named, from) {
            (true, _) => (RemovedFrom::OwnWords, SHORTEST_CREDENTIAL),
            (false, Some(from)) => (from, SHORTEST),
            (false, None) => return,
        };
        self.gather_value(text, from, shortest);
        // stderr comes line by line, and so would a key.
        for line in text.lines().map(str::trim).filter(|line| (SHORTEST..text.len()).contains(&line.len())) {
            self.add(line.to_owned(), from, false);
        }
    }

    fn gather_value(&mut self, text: &str, from: RemovedFrom, shortest: usize) {
        let quoted = Value::from(text).to_string();
        let quoted_twice = Value::from(quoted.as_str()).to_string();
        let quoted_twice = between_quotes(&quoted_twice);
        if text.len() >= shortest {
            // Echoed as JSON, a key's line breaks are written as `\n`, and in JSON inside of JSON as `\\n`.
            let (escaped, escaped_twice) = (between_quotes(&quoted), between_escaped_quotes(quoted_twice));
            for escaped in [escaped, escaped_twice].into_iter().filter(|escaped| *escaped != text) {
                self.add(escaped.to_owned(), from, false);
            }
            self.add(text.to_owned(), from, false);
        } else if !text.is_empty() {
            self.add(quoted_twice.to_owned(), from, true);
            self.add(quoted, from, true);
        }
    }

    fn add(&mut self, text: String, from: RemovedFrom, is_json_value: bool) {
        self.removed.push(Removed { length: Reverse(text.len()), text, from, is_json_value });
    }
}

fn between_quotes(quoted: &str) -> &str {
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted)
}

fn between_escaped_quotes(quoted: &str) -> &str {
    quoted.strip_prefix(r#"\""#).and_then(|rest| rest.strip_suffix(r#"\""#)).unwrap_or(quoted)
}

/// `text` without the values that are `quoted`; keys of that name stay.
fn without_json_value(text: &str, quoted: &str) -> String {
    let quote = &quoted[..=quoted.find('"').unwrap_or(0)];
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(quoted) {
        kept.push_str(before);
        if after.trim_start().starts_with([':', '=']) {
            kept.push_str(quoted);
        } else {
            kept.extend([quote, REDACTED, quote]);
        }
        rest = after;
    }
    kept + rest
}

/// It holds what it hides.
impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(method: &str, arguments: Value) -> Request {
        serde_json::from_value(json!({"method": method, "arguments": arguments, "api_version": 2, "context": {
            "director_uuid": "d-1", "request_id": "r-1", "vm": {"stemcell": {"api_version": 3}}, "secret_key": "hunter2"
        }}))
        .unwrap()
    }

    #[test]
    fn a_logged_create_vm_shows_names_but_no_values() {
        let request = request(
            "create_vm",
            json!(["agent-1", "stemcell-1", {"instance_type": "m1"},
                {"default": {"type": "manual", "ip": "10.0.0.5", "cloud_properties": {"subnet": "s-1"}}},
                ["disk-1"],
                {"bosh": {"group": "g", "groups": ["g"], "tags": {"a": "b"}, "password": "hunter2", "mbus": {}}, "x": 1}]),
        );
        assert_eq!(
            redact(&request),
            json!({"method": "create_vm", "api_version": 2,
                "arguments": ["agent-1", "stemcell-1", {"instance_type": "<redacted>"},
                    {"default": {"type": "manual", "ip": "10.0.0.5", "cloud_properties": {"subnet": "<redacted>"}}},
                    ["disk-1"],
                    {"bosh": {"group": "g", "groups": ["g"], "tags": {"a": "b"}, "password": "<redacted>",
                        "mbus": "<redacted>"}, "x": "<redacted>"}],
                "context": {"director_uuid": "d-1", "request_id": "r-1", "vm": {"stemcell": {"api_version": 3}},
                    "secret_key": "<redacted>"}})
        );
    }

    #[test]
    fn a_log_shows_cids_sizes_and_metadata_but_no_properties() {
        for (method, arguments, expected) in [
            ("create_disk", json!([1024, {"type": "ssd"}, null]), json!([1024, {"type": "<redacted>"}, null])),
            ("update_disk", json!(["d", 1, {"type": "ssd"}]), json!(["d", 1, {"type": "<redacted>"}])),
            ("create_stemcell", json!(["/image", {"ami": "x"}]), json!(["/image", {"ami": "<redacted>"}])),
            ("create_stemcell", json!(["/image", null]), json!(["/image", null])),
            ("create_stemcell", json!(["/image", "odd"]), json!(["/image", "<redacted>"])),
            (
                "create_network",
                json!([{"type": "manual", "cloud_properties": {"t": 1}}]),
                json!([{"type": "manual", "cloud_properties": {"t": "<redacted>"}}]),
            ),
            ("has_vm", json!(["vm-1"]), json!(["vm-1"])),
            (
                "set_vm_metadata",
                json!(["vm-1", {"name": "n", "a_token": "t"}]),
                json!(["vm-1", {"name": "n", "a_token": "<redacted>"}]),
            ),
            ("create_vm", json!(["too", "few"]), json!(["too", "few"])),
            // The order of the first draft, and its third argument of `attach_disk`.
            (
                "create_vm",
                json!(["sc", {"type": "m1"}, {"mbus": "x"}]),
                json!(["sc", {"type": "<redacted>"}, {"mbus": "<redacted>"}]),
            ),
            (
                "attach_disk",
                json!(["vm", "disk", {"system": "/dev/sda"}]),
                json!(["vm", "disk", {"system": "<redacted>"}]),
            ),
            ("unheard_of", json!(["hunter2"]), json!(["<redacted>"])),
        ] {
            assert_eq!(redact(&request(method, arguments))["arguments"], expected, "{method}");
        }
    }

    /// As a Ruby program shows the client of a registry that it has in hand.
    #[test]
    fn a_password_in_a_header_is_removed_although_it_is_encoded() {
        let registry = json!({"registry": {"user": "writer", "password": "s3cret-of-registry"}});
        let redactor = Redactor::default().and_configuration(&serde_json::from_value(registry).unwrap());
        let said = r#"@user="writer", @headers={"Authorization"=>"Basic d3JpdGVyOnMzY3JldC1vZi1yZWdpc3RyeQ=="}"#;
        let expected = r#"@user="writer", @headers={"Authorization"=>"Basic <redacted>"}"#;
        for told in [redactor.own_words(said), redactor.message(said), redactor.echo(said)] {
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn secrets_are_removed_from_what_a_cpi_prints() {
        let key = "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----\n";
        let request = request(
            "create_vm",
            json!(["a", "s", {"instance_type": "m1.small"}, {}, [],
                {"bosh": {"mbus": {"key": key, "urls": ["https://u:pass-word@0.0.0.0:6868"]}}}]),
        );
        let redactor = Redactor::of(&request);
        assert_eq!(redactor.message("login hunter2 refused for m1.small"), "login <redacted> refused for m1.small");
        assert_eq!(redactor.echo("hunter2 m1.small"), "<redacted> <redacted>");
        assert_eq!(redactor.message("abcdefgh pass-word"), "<redacted> <redacted>");
        let echoed = redactor.echo(&serde_json::to_string(&request).unwrap());
        assert!(!echoed.contains("abcdefgh") && !echoed.contains("hunter2"), "{echoed}");
        assert_eq!(format!("{redactor:?}"), REDACTED);
    }

    #[test]
    fn a_short_secret_is_removed_where_it_is_a_json_value_and_nowhere_else() {
        let mut request = request("has_vm", json!(["vm-1"]));
        request.context.properties = json!({"short": "abc12", "a": "b", "token": "t0k3"}).as_object().unwrap().clone();
        let redactor = Redactor::of(&request);
        let echoed = redactor.message(&serde_json::to_string(&request).unwrap());
        assert!(!echoed.contains("abc12") && echoed.contains(r#""short":"<redacted>","a":"<redacted>""#), "{echoed}");
        let in_json = redactor.message(&json!({"log": json!({"short": "abc12"}).to_string()}).to_string());
        assert_eq!(in_json, r#"{"log":"{\"short\":\"<redacted>\"}"}"#);
        assert_eq!(redactor.message(r#"{"abc12": "x"} abc12x, "b""#), r#"{"abc12": "x"} abc12x, "<redacted>""#);
        assert_eq!(redactor.own_words("b abc12 t0k3"), "b abc12 <redacted>", "what a key names is a secret everywhere");
    }

    #[test]
    fn a_document_is_shown_without_credentials() {
        let document = json!({"vm": {"name": "vm-1"}, "blobstore": {"options": {"password": "hunter2", "port": 25250}},
            "env": {"bosh": {"mbus": {"cert": {"private_key": "hunter3"}}}}, "urls": ["https://a:hunter4@b:6868/x"]});
        let shown = without_credentials(document).to_string();
        assert!(!shown.contains("hunter") && shown.contains("vm-1") && shown.contains("25250"), "{shown}");
        assert!(shown.contains("https://a:<redacted>@b:6868/x"), "{shown}");
    }

    fn create_vm() -> Request {
        let env = json!({"bosh": {"group": "d-g", "password": "env-password", "mbus": {"urls": ["https://u:url-pass@0.0.0.0"],
            "cert": {"private_key": "-----BEGIN-----\nabcdefghijklmnopqrst\n-----END-----"}},
            "blobstores": [{"options": {"user": "blob-user"}}]}, "mine": "env-value"});
        let arguments = json!(["a-1", "sc-1", {"type": "m1.small", "api_key": "vm-key"},
            {"token-net": {"ip": "10.0.0.5", "cloud_properties": {"subnet": "s-1", "token": "net-token"}}}, [], env]);
        serde_json::from_value(json!({"method": "create_vm", "arguments": arguments, "api_version": 2,
            "context": {"director_uuid": "d-1", "secret_access_key": "context-key", "host": "cloud.example"}}))
        .unwrap()
    }

    #[test]
    fn names_of_networks_are_no_secrets() {
        let networks = json!({"default": {"type": "manual",
            "cloud_properties": {"name": "blue-network", "network_name": "shop", "subnet": "s-12345"}}});
        let request = request("create_vm", json!(["a", "s", {}, networks, [], {}]));
        let shown = redact(&request)["arguments"][3]["default"]["cloud_properties"].clone();
        assert_eq!(shown, json!({"name": "blue-network", "network_name": "shop", "subnet": "<redacted>"}));
        let said = Redactor::of(&request).echo("no network 'blue-network' in s-12345");
        assert_eq!(said, "no network 'blue-network' in <redacted>");
    }

    const SECRET: [&str; 8] = [
        "env-password",
        "url-pass",
        "abcdefghijklmnopqrst",
        "blob-user",
        "env-value",
        "vm-key",
        "net-token",
        "context-key",
    ];

    #[test]
    fn a_cpis_own_words_show_no_secret_of_the_request_or_the_configuration_but_what_they_are_about() {
        let config = json!({"registry": {"endpoint": "http://a:p%40-ss@r", "password": "registry-pass"}});
        let redactor = Redactor::of(&create_vm()).and_configuration(config.as_object().unwrap());
        for secret in SECRET.iter().chain(&["registry-pass", "p%40-ss", "p@-ss"]) {
            let text =
                redactor.own_words(&format!("cannot use '{secret}' at cloud.example with m1.small and 10.0.0.5"));
            assert_eq!(text, "cannot use '<redacted>' at cloud.example with m1.small and 10.0.0.5");
        }
        assert_eq!(redactor.message("cloud.example m1.small"), "<redacted> m1.small");
    }

    #[test]
    fn a_logged_request_shows_what_bosh_shows() {
        let shown = redact(&create_vm());
        let text = shown.to_string();
        for secret in SECRET.iter().chain(&["m1.small", "s-1", "cloud.example"]) {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(shown["arguments"][0], "a-1");
        assert_eq!(shown["arguments"][3]["token-net"]["ip"], "10.0.0.5");
        assert_eq!(shown["arguments"][5]["bosh"]["group"], "d-g");
    }
}
