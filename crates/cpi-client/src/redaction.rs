//! What never reaches a log.
//!
//! One walk over a request finds its secret places; [`redact`] replaces them for logs, and [`Scrubber`] removes the same
//! values from free text that a CPI wrote.

use serde_json::{Map, Value};
use windlass_contract::cpi::Request;
use windlass_contract::secret::REDACTED;

/// What a secret place may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    /// Properties of the CPI and the VM's environment: passwords, keys, certificates.
    Credentials,
    /// Cloud properties: mostly sizes and names, sometimes more.
    CloudProperties,
}

/// The request as a log may show it.
pub fn redact(request: &Request) -> Value {
    let mut request = as_json(request);
    each_secret(&mut request, &mut |_, value| *value = Value::String(REDACTED.into()));
    request
}

fn as_json(request: &Request) -> Value {
    // A request consists of JSON values and strings, which always serialise.
    serde_json::to_value(request).unwrap_or_default()
}

fn each_secret(request: &mut Value, visit: &mut impl FnMut(Holds, &mut Value)) {
    if let Some(context) = request.get_mut("context").and_then(Value::as_object_mut) {
        each_except(context, &["director_uuid", "request_id", "vm"], &mut |value| visit(Holds::Credentials, value));
    }
    let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(arguments) = request.get_mut("arguments").and_then(Value::as_array_mut) else { return };
    let properties = match method.as_str() {
        "create_vm" | "update_disk" => Some(2),
        "create_disk" | "create_stemcell" => Some(1),
        _ => None,
    };
    let mut cloud_properties = |value: &mut Value| each_value(value, &mut |value| visit(Holds::CloudProperties, value));
    if let Some(value) = properties.and_then(|position| arguments.get_mut(position)) {
        cloud_properties(value);
    }
    if method == "create_network" {
        arguments.first_mut().and_then(|network| network.get_mut("cloud_properties")).map(&mut cloud_properties);
    }
    if method == "create_vm" {
        for network in arguments.get_mut(3).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            network.get_mut("cloud_properties").map(&mut cloud_properties);
        }
        if let Some(env) = arguments.get_mut(5).and_then(Value::as_object_mut) {
            each_except(env, &["bosh"], &mut |value| visit(Holds::Credentials, value));
            if let Some(bosh) = env.get_mut("bosh").and_then(Value::as_object_mut) {
                each_except(bosh, &["group", "groups", "tags"], &mut |value| visit(Holds::Credentials, value));
            }
        }
    }
}

/// Keeps the keys of an object, so that a log shows what was given; anything else is one secret.
fn each_value(value: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(entries) => entries.values_mut().for_each(visit),
        Value::Null => {}
        other => visit(other),
    }
}

fn each_except(entries: &mut Map<String, Value>, shown: &[&str], visit: &mut impl FnMut(&mut Value)) {
    entries.iter_mut().filter(|(key, _)| !shown.contains(&key.as_str())).for_each(|(_, value)| visit(value));
}

/// Shorter values are words that also mean something else: removing them would make a log unreadable.
const SHORTEST_SECRET: usize = 6;

/// Removes the secret values of one request from free text.
#[derive(Debug)]
pub struct Scrubber {
    credentials: Vec<String>,
    cloud_properties: Vec<String>,
}

impl Scrubber {
    /// For the text that a CPI writes while it serves `request`.
    pub fn of(request: &Request) -> Self {
        let mut scrubber = Self { credentials: Vec::new(), cloud_properties: Vec::new() };
        each_secret(&mut as_json(request), &mut |holds, value| {
            let list = match holds {
                Holds::Credentials => &mut scrubber.credentials,
                Holds::CloudProperties => &mut scrubber.cloud_properties,
            };
            collect(value, list);
        });
        for list in [&mut scrubber.credentials, &mut scrubber.cloud_properties] {
            // Longest first, so that a secret that contains another is removed as a whole.
            list.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
            list.dedup();
        }
        scrubber
    }

    /// Text for a person: without credentials, but with the names and sizes that explain it.
    pub fn message(&self, text: &str) -> String {
        remove(text, &self.credentials)
    }

    /// Text that may echo the whole request.
    pub fn echo(&self, text: &str) -> String {
        remove(&remove(text, &self.credentials), &self.cloud_properties)
    }
}

fn collect(value: &Value, secrets: &mut Vec<String>) {
    match value {
        Value::String(text) if text.len() >= SHORTEST_SECRET => {
            // Echoed as JSON, a key's line breaks are written as `\n`.
            let escaped = value.to_string();
            let escaped = escaped.trim_matches('"');
            if escaped != text {
                secrets.push(escaped.to_owned());
            }
            // stderr comes line by line, and so would a key.
            secrets.extend(text.lines().filter(|line| line.len() >= SHORTEST_SECRET).map(str::to_owned));
            // A URL may be printed without its password, or the password without its URL.
            let user_info = text.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
            let password = user_info.and_then(|(user_info, _)| user_info.split_once(':'));
            secrets.extend(password.map(|(_, password)| password.to_owned()).filter(|it| it.len() >= SHORTEST_SECRET));
            secrets.push(text.clone());
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, secrets)),
        Value::Object(entries) => entries.values().for_each(|value| collect(value, secrets)),
        _ => {}
    }
}

fn remove(text: &str, secrets: &[String]) -> String {
    secrets.iter().fold(
        text.to_owned(),
        |text, secret| {
            if text.contains(secret) { text.replace(secret, REDACTED) } else { text }
        },
    )
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
    fn cloud_properties_of_disks_stemcells_and_networks_are_redacted() {
        for (method, arguments, expected) in [
            ("create_disk", json!([1024, {"type": "ssd"}, null]), json!([1024, {"type": "<redacted>"}, null])),
            ("update_disk", json!(["d", 1, {"type": "ssd"}]), json!(["d", 1, {"type": "<redacted>"}])),
            ("create_stemcell", json!(["/image", {"ami": "x"}]), json!(["/image", {"ami": "<redacted>"}])),
            ("create_stemcell", json!(["/image", null]), json!(["/image", null])),
            (
                "create_network",
                json!([{"type": "manual", "cloud_properties": {"t": 1}}]),
                json!([{"type": "manual", "cloud_properties": {"t": "<redacted>"}}]),
            ),
            ("has_vm", json!(["vm-1"]), json!(["vm-1"])),
            ("create_vm", json!(["too", "few"]), json!(["too", "few"])),
        ] {
            assert_eq!(redact(&request(method, arguments))["arguments"], expected, "{method}");
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
        let scrubber = Scrubber::of(&request);
        assert_eq!(scrubber.message("login hunter2 refused for m1.small"), "login <redacted> refused for m1.small");
        assert_eq!(scrubber.echo("hunter2 m1.small"), "<redacted> <redacted>");
        assert_eq!(scrubber.message("abcdefgh pass-word"), "<redacted> <redacted>");
        let echoed = scrubber.echo(&serde_json::to_string(&request).unwrap());
        assert!(!echoed.contains("abcdefgh") && !echoed.contains("hunter2"), "{echoed}");
    }
}
