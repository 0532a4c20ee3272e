//! `cpi.json` in the form that the ecosystem uses:
//! `{"cloud":{"plugin":"local","properties":{"local":{…},"agent":{…},"debug":{"cpi":{"api_version":1}}}}}`.
//!
//! The properties of a cpi-config entry arrive in the context of each call and are laid over `properties.<plugin>`; its
//! keys `agent`, `debug` and `registry` over the sections of those names.
//!
//! Of `properties.<plugin>`, the SDK itself reads `deadline` and `calls_per_second`; see [`Limits`].

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_contract::cpi::CpiError;
use windlass_contract::{ApiVersion, Object, Secret};
use windlass_registry::Client;

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
    #[serde(default)]
    pub ntp: Option<Vec<String>>,
    #[serde(default)]
    pub blobstore: Option<Value>,
}

/// `properties.registry`: for VMs of stemcells, and for callers, older than version 2.
#[derive(Debug, Clone, Default, Deserialize)]
struct RegistryProperties {
    /// `http://host:port`; empty means that there is none.
    #[serde(default)]
    endpoint: Option<Secret>,
    /// For writing; those inside the endpoint count, too.
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    password: Option<Secret>,
    /// PEM, for a registry whose certificate the system does not trust.
    #[serde(default)]
    ca_cert: Option<String>,
}

/// What the SDK takes care of for every cloud.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// A method that takes longer is answered with an error; `properties.<plugin>.deadline` in seconds, 0 for none.
    pub deadline: Option<Duration>,
    /// How many calls per second all processes together make; `properties.<plugin>.calls_per_second`, unlimited if absent.
    pub calls_per_second: Option<f64>,
}

/// Longer than any cloud takes for anything, images included.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

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

    /// The registry of `properties.registry`, if one is configured.
    pub fn registry(&self) -> Result<Option<Client>, CpiError> {
        let registry: RegistryProperties = self.section("registry")?;
        let Some(endpoint) = registry.endpoint.filter(|endpoint| !endpoint.reveal().is_empty()) else {
            return Ok(None);
        };
        let mut client = Client::new(&endpoint)
            .map_err(|error| CpiError::cpi(format!("'cloud.properties.registry' cannot be used: {error}")))?;
        if let Some(user) = registry.user {
            client = client.with_credentials(user, registry.password.unwrap_or_default());
        }
        if let Some(ca) = registry.ca_cert {
            client = client.with_ca(ca);
        }
        Ok(Some(client))
    }

    /// What the SDK takes care of.
    pub fn limits(&self) -> Result<Limits, CpiError> {
        let seconds = self.number("deadline")?;
        let deadline = match seconds {
            None => Some(DEADLINE),
            Some(0.0) => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
        };
        Ok(Limits { deadline, calls_per_second: self.number("calls_per_second")?.filter(|rate| *rate > 0.0) })
    }

    /// A number in `properties.<plugin>` that is not negative.
    fn number(&self, key: &str) -> Result<Option<f64>, CpiError> {
        match self.properties.get(&self.plugin).and_then(|plugin| plugin.get(key)) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().filter(|number| *number >= 0.0).map(Some).ok_or_else(|| {
                CpiError::cpi(format!("'cloud.properties.{}.{key}' must be a number that is not negative", self.plugin))
            }),
        }
    }

    pub(crate) fn properties(&self) -> &Object {
        &self.properties
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
    fn limits_have_defaults_and_can_be_lifted() {
        let limits = |properties: Value| config().overlaid(&object(properties)).limits();
        assert_eq!(limits(json!({})).unwrap(), Limits { deadline: Some(DEADLINE), calls_per_second: None });
        let both = limits(json!({"deadline": 1.5, "calls_per_second": 10})).unwrap();
        assert_eq!(both, Limits { deadline: Some(Duration::from_millis(1500)), calls_per_second: Some(10.0) });
        assert_eq!(limits(json!({"deadline": 0})).unwrap().deadline, None);
        assert!(limits(json!({"deadline": "soon"})).unwrap_err().message.contains("sky.deadline"));
    }

    #[test]
    fn a_registry_is_configured_by_its_endpoint_which_a_cpi_config_entry_overlays() {
        assert!(config().registry().unwrap().is_none());
        assert!(config().overlaid(&object(json!({"registry": {"endpoint": ""}}))).registry().unwrap().is_none());
        let configured = config().overlaid(&object(json!({"registry": {"endpoint": "http://u:p@10.0.0.6:25777"}})));
        assert!(configured.registry().unwrap().is_some());
        let wrong = json!({"registry": {"endpoint": "ftp://u:hunter2@x"}});
        let error = config().overlaid(&object(wrong)).registry().unwrap_err();
        assert!(error.message.contains("cloud.properties.registry") && !error.message.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_wrong_configuration_names_the_section_but_not_the_value() {
        let config = config().overlaid(&object(json!({"agent": {"ntp": "hunter2"}})));
        let error = config.agent().unwrap_err();
        assert!(error.message.contains("cloud.properties.agent") && !error.message.contains("hunter2"), "{error}");
        assert!(Config::from_json(b"{}").unwrap_err().message.contains("cloud"));
    }
}
