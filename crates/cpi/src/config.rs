//! `cpi.json` in the form that the ecosystem uses:
//! `{"cloud":{"plugin":"local","properties":{"local":{…},"agent":{…},"debug":{"cpi":{"api_version":1}}}}}`.
//!
//! The properties of a cpi-config entry arrive in the context of each call and are laid over `properties.<plugin>`; its
//! keys `agent`, `debug` and `registry` over the sections of those names.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_contract::cpi::CpiError;
use windlass_contract::{ApiVersion, Object, Secret};

use crate::decode;

/// A CPI's configuration.
#[derive(Clone, PartialEq)]
pub struct Config {
    plugin: String,
    properties: Object,
}

/// Sections that have a name of their own beside the plugin's.
const SECTIONS: [&str; 3] = ["agent", "debug", "registry"];

/// `properties.agent`: what agents are told when `env.bosh` does not say it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct AgentProperties {
    /// Where the agent listens.
    #[serde(default)]
    pub mbus: Option<Secret>,
    /// Time servers.
    #[serde(default)]
    pub ntp: Option<Vec<String>>,
    /// Blob store.
    #[serde(default)]
    pub blobstore: Option<Value>,
}

impl Config {
    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<Self, CpiError> {
        let bytes = std::fs::read(path).map_err(|error| {
            CpiError::cpi(format!("cannot read the CPI's configuration {}: {error}", path.display()))
        })?;
        Self::from_json(&bytes).map_err(|error| {
            CpiError::cpi(format!("the CPI's configuration {} cannot be used: {}", path.display(), error.message))
        })
    }

    /// Reads a configuration from JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Self, CpiError> {
        #[derive(Deserialize)]
        struct File {
            cloud: Cloud,
        }
        #[derive(Deserialize)]
        struct Cloud {
            plugin: String,
            #[serde(default)]
            properties: Object,
        }
        let file: File = serde_json::from_slice(bytes).map_err(|error| CpiError::cpi(decode::reason(&error)))?;
        if file.cloud.plugin.is_empty() || SECTIONS.contains(&file.cloud.plugin.as_str()) {
            return Err(CpiError::cpi(format!("'cloud.plugin' cannot be '{}'", file.cloud.plugin)));
        }
        Ok(Self { plugin: file.cloud.plugin, properties: file.cloud.properties })
    }

    /// The configuration for one call: `context` holds the properties of a cpi-config entry.
    pub fn overlaid(&self, context: &Object) -> Self {
        let mut properties = self.properties.clone();
        for (key, value) in context {
            if SECTIONS.contains(&key.as_str()) {
                if let Value::Object(overlay) = value {
                    section(&mut properties, key).extend(overlay.clone());
                }
            } else {
                section(&mut properties, &self.plugin).insert(key.clone(), value.clone());
            }
        }
        Self { plugin: self.plugin.clone(), properties }
    }

    /// `properties.<plugin>` as what the cloud needs.
    pub fn plugin<T: DeserializeOwned>(&self) -> Result<T, CpiError> {
        self.section(&self.plugin)
    }

    /// `properties.agent`.
    pub fn agent(&self) -> Result<AgentProperties, CpiError> {
        self.section("agent")
    }

    /// The version that `info` tells: our highest, unless `properties.debug.cpi.api_version` is lower.
    pub fn advertised_version(&self) -> Result<ApiVersion, CpiError> {
        let told = self.properties.get("debug").and_then(|debug| debug.get("cpi")?.get("api_version"));
        let told = decode::version("cloud.properties.debug.cpi.api_version", told)?;
        Ok(told.unwrap_or(ApiVersion::HIGHEST).min(ApiVersion::HIGHEST))
    }

    fn section<T: DeserializeOwned>(&self, name: &str) -> Result<T, CpiError> {
        let section = self.properties.get(name).cloned().unwrap_or_else(|| Value::Object(Object::new()));
        serde_json::from_value(section).map_err(|error| {
            CpiError::cpi(format!("'cloud.properties.{name}' cannot be used: {}", decode::reason(&error)))
        })
    }
}

fn section<'a>(properties: &'a mut Object, name: &str) -> &'a mut Object {
    let section = properties.entry(name).or_insert(Value::Null);
    if !section.is_object() {
        *section = Value::Object(Object::new());
    }
    match section {
        Value::Object(object) => object,
        _ => unreachable!("it was made an object above"),
    }
}

/// Properties hold credentials.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config() -> Config {
        Config::from_json(
            br#"{"cloud":{"plugin":"sky","properties":{"sky":{"host":"a","user":"u"},"agent":{"ntp":["t"]}}}}"#,
        )
        .unwrap()
    }

    fn object(value: Value) -> Object {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_cpi_config_entry_overlays_only_what_it_names() {
        let config = config().overlaid(&object(json!({"host": "b", "agent": {"mbus": "https://m"}, "later": 1})));
        let sky: Object = config.plugin().unwrap();
        assert_eq!(Value::Object(sky), json!({"host": "b", "user": "u", "later": 1}));
        let agent = config.agent().unwrap();
        assert_eq!((agent.mbus.unwrap().reveal(), agent.ntp.unwrap()), ("https://m", vec!["t".to_owned()]));
    }

    #[test]
    fn the_advertised_version_can_be_lowered_but_not_raised() {
        assert_eq!(config().advertised_version().unwrap(), ApiVersion::V2);
        for (told, expected) in [(1, ApiVersion::V1), (2, ApiVersion::V2), (9, ApiVersion::HIGHEST)] {
            let config = config().overlaid(&object(json!({"debug": {"cpi": {"api_version": told}}})));
            assert_eq!(config.advertised_version().unwrap(), expected);
        }
    }

    #[test]
    fn a_wrong_configuration_names_the_section_but_not_the_value() {
        let config = config().overlaid(&object(json!({"agent": {"ntp": "hunter2"}})));
        let error = config.agent().unwrap_err();
        assert!(error.message.contains("cloud.properties.agent") && !error.message.contains("hunter2"), "{error}");
        assert!(Config::from_json(b"{}").unwrap_err().message.contains("cloud"));
    }
}
