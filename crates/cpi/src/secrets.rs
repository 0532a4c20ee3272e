//! Secrets stay out of whatever the SDK says: error messages, the last words of a panic, the log on stderr.
//!
//! [`request`] shows a request as the original director shows it in its logs, without the values of properties and
//! environments. [`Secrets`] are the values that must not appear in any text: credentials of the configuration and of
//! cpi-config properties, and everything in a VM's environment but its groups and tags.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_contract::cpi::methods::{CreateNetwork, CreateVm, NAMES};
use windlass_contract::cpi::{Method, Request};
use windlass_contract::secret::REDACTED;

use crate::config::Config;

/// What `env.bosh` may show.
const HARMLESS_IN_BOSH: [&str; 3] = ["group", "groups", "tags"];

/// Keys with one of these in their name hold credentials, with everything below them.
const CREDENTIALS: [&str; 8] =
    ["password", "passwd", "passphrase", "secret", "token", "credential", "access_key", "mbus"];

/// A shorter text would be found in too many innocent words.
const SHORTEST: usize = 4;

/// A line of a longer secret, such as a key in PEM, is one itself when it has this length.
const SHORTEST_LINE: usize = 16;

/// Texts that must not be shown.
#[derive(Default)]
pub(crate) struct Secrets {
    /// The longest first: one may hold another.
    texts: Vec<String>,
}

impl Secrets {
    /// Those of a request, and of the configuration that serves it.
    pub(crate) fn of(request: &Request, config: &Config) -> Self {
        let mut secrets = Self::default();
        secrets.gather(&Value::Object(request.context.properties.clone()), false);
        secrets.gather(&Value::Object(config.properties().clone()), false);
        for (index, argument) in request.arguments.iter().enumerate() {
            match (request.method.as_str(), index, argument) {
                // Networks are named by operators, and their addresses are what errors are about.
                (CreateVm::NAME, 3, Value::Object(networks)) => {
                    let properties = networks.values().filter_map(|network| network.get("cloud_properties"));
                    properties.for_each(|properties| secrets.gather(properties, false));
                }
                (CreateVm::NAME, 5, Value::Object(env)) => secrets.gather_env(env),
                _ => secrets.gather(argument, false),
            }
        }
        secrets.texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        secrets.texts.dedup();
        secrets
    }

    /// `text` without them.
    pub(crate) fn remove_from(&self, text: &str) -> String {
        self.texts.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret) { text.replace(secret, REDACTED) } else { text }
        })
    }

    fn gather_env(&mut self, env: &Object) {
        for (key, value) in env {
            match value {
                Value::Object(bosh) if key == "bosh" => {
                    for (_, value) in bosh.iter().filter(|(key, _)| !HARMLESS_IN_BOSH.contains(&key.as_str())) {
                        self.gather(value, true);
                    }
                }
                other => self.gather(other, true),
            }
        }
    }

    fn gather(&mut self, value: &Value, secret: bool) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    self.gather(value, secret || holds_credentials(key));
                }
            }
            Value::Array(elements) => elements.iter().for_each(|element| self.gather(element, secret)),
            Value::String(text) => self.gather_text(text, secret),
            Value::Number(number) if secret => self.add(&number.to_string(), SHORTEST),
            _ => {}
        }
    }

    fn gather_text(&mut self, text: &str, secret: bool) {
        if let Some(password) = password_in_url(text) {
            self.add(password, SHORTEST);
            self.add(&percent_decode_str(password).decode_utf8_lossy(), SHORTEST);
        }
        if secret {
            self.add(text, SHORTEST);
            for line in text.lines().map(str::trim).filter(|line| line.len() < text.len()) {
                self.add(line, SHORTEST_LINE);
            }
        }
    }

    fn add(&mut self, text: &str, shortest: usize) {
        if text.len() >= shortest {
            self.texts.push(text.to_owned());
        }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(REDACTED)
    }
}

fn holds_credentials(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    CREDENTIALS.iter().any(|word| key.contains(word)) || key.ends_with("key")
}

/// A document without the values of keys that hold credentials, and without passwords in URLs: to be shown to people.
pub fn without_credentials(mut document: Value) -> Value {
    hide(&mut document, false);
    document
}

fn hide(value: &mut Value, secret: bool) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                hide(value, secret || holds_credentials(key));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| hide(element, secret)),
        Value::Null => {}
        hidden if secret => *hidden = REDACTED.into(),
        Value::String(text) => {
            if let Some(password) = password_in_url(text) {
                *text = text.replace(password, REDACTED);
            }
        }
        Value::Bool(_) | Value::Number(_) => {}
    }
}

fn password_in_url(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (credentials, _) = authority.rsplit_once('@')?;
    Some(credentials.split_once(':')?.1)
}

/// A request as it may be logged.
pub(crate) fn request(request: &Request) -> Value {
    let context = &request.context;
    let mut shown = Object::new();
    shown.insert("director_uuid".into(), json!(context.director_uuid));
    shown.insert("request_id".into(), json!(context.request_id));
    shown.insert("vm".into(), json!({"stemcell": {"api_version": context.stemcell_version()}}));
    shown.extend(context.properties.keys().map(|key| (key.clone(), json!(REDACTED))));
    json!({
        "method": request.method, "arguments": arguments(&request.method, &request.arguments),
        "context": shown, "api_version": request.api_version,
    })
}

fn arguments(method: &str, arguments: &[Value]) -> Vec<Value> {
    let mut shown = arguments.to_vec();
    for (index, argument) in shown.iter_mut().enumerate() {
        match (method, index) {
            (CreateVm::NAME, 3) => {
                let networks = argument.as_object_mut().into_iter().flat_map(|networks| networks.values_mut());
                networks.filter_map(|network| network.get_mut("cloud_properties")).for_each(hide_values);
            }
            (CreateVm::NAME, 5) => hide_env(argument),
            (CreateNetwork::NAME, 0) => {
                argument.get_mut("cloud_properties").into_iter().for_each(hide_values);
            }
            // Cids, sizes and paths are shown, properties are not.
            _ if NAMES.contains(&method) => {
                if argument.is_object() {
                    hide_values(argument);
                }
            }
            _ => *argument = json!(REDACTED),
        }
    }
    shown
}

fn hide_env(env: &mut Value) {
    for (key, value) in env.as_object_mut().into_iter().flatten() {
        match value {
            Value::Object(bosh) if key == "bosh" => {
                let secret = bosh.iter_mut().filter(|(key, _)| !HARMLESS_IN_BOSH.contains(&key.as_str()));
                secret.for_each(|(_, value)| *value = json!(REDACTED));
            }
            other => *other = json!(REDACTED),
        }
    }
}

fn hide_values(value: &mut Value) {
    match value {
        Value::Object(object) => object.values_mut().for_each(|value| *value = json!(REDACTED)),
        other => *other = json!(REDACTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn no_text_shows_a_secret_of_the_request_or_the_configuration() {
        let config = br#"{"cloud":{"plugin":"x","properties":{"registry":{"endpoint":"http://a:p%40-ss@r","password":"registry-pass"}}}}"#;
        let secrets = Secrets::of(&create_vm(), &Config::from_json(config).unwrap());
        for secret in SECRET.iter().chain(&["registry-pass", "p%40-ss", "p@-ss"]) {
            let text =
                secrets.remove_from(&format!("cannot use '{secret}' at cloud.example with m1.small and 10.0.0.5"));
            assert_eq!(text, "cannot use '<redacted>' at cloud.example with m1.small and 10.0.0.5");
        }
        assert_eq!(format!("{secrets:?}"), REDACTED);
    }

    #[test]
    fn a_logged_request_shows_what_the_original_shows() {
        let shown = request(&create_vm());
        let text = shown.to_string();
        for secret in SECRET.iter().chain(&["m1.small", "s-1", "cloud.example"]) {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(shown["arguments"][0], "a-1");
        assert_eq!(shown["arguments"][3]["token-net"]["ip"], "10.0.0.5");
        assert_eq!(shown["arguments"][5]["bosh"]["group"], "d-g");
        let odd: Request = serde_json::from_value(json!({"method": "odd", "arguments": ["hunter2"]})).unwrap();
        assert_eq!(request(&odd)["arguments"], json!([REDACTED]));
    }
}
