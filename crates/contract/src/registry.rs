//! What crosses the wire between a registry, the CPIs that write to it and the agents that read from it.

use serde::{Deserialize, Serialize};

use crate::null::{self, or_default};
use crate::settings::AgentSettings;
use crate::{Networks, Object, Secret};

/// What a registry answers to `GET /instances/<id>/settings`: settings that are JSON inside a JSON string.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryEnvelope {
    /// `ok`, `not_found`, …
    #[serde(default)]
    pub status: String,
    /// Encoded twice.
    #[serde(default)]
    pub settings: Secret,
}

impl RegistryEnvelope {
    pub fn wrap(settings: &AgentSettings) -> Result<Self, serde_json::Error> {
        Ok(Self { status: "ok".into(), settings: Secret::new(serde_json::to_string(settings)?) })
    }

    /// The settings inside.
    pub fn decode(&self) -> Result<AgentSettings, serde_json::Error> {
        serde_json::from_str(self.settings.reveal())
    }
}

/// What a VM is given when the rest of its settings is in a registry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RegistryUserData {
    pub registry: RegistryLocation,
    /// The name under which its settings are there, where the agent does not find that out itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerName>,
    /// Name servers for finding the registry.
    #[serde(default, deserialize_with = "or_default")]
    pub dns: Object,
    /// The VM's networks.
    #[serde(default, deserialize_with = "null::or_absent")]
    pub networks: Networks,
}

/// Where a registry is. Most agents use the endpoint alone, so credentials are inside of it, and beside it as documented.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryLocation {
    /// `http://user:password@host:port`.
    pub endpoint: Secret,
    /// The same user as in the endpoint. Our agent takes it where the endpoint has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The same password as in the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// The name of a VM in a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerName {
    /// The key.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_in_a_registry_are_encoded_twice() {
        let settings: AgentSettings = serde_json::from_value(json!({"agent_id": "a1"})).unwrap();
        let envelope = RegistryEnvelope::wrap(&settings).unwrap();
        let wire = serde_json::to_value(&envelope).unwrap();
        assert!(wire["settings"].as_str().unwrap().contains("\"agent_id\":\"a1\""));
        let read: RegistryEnvelope = serde_json::from_value(wire).unwrap();
        assert_eq!(read.decode().unwrap(), settings);
    }

    #[test]
    fn the_seeds_user_data_names_the_registry_and_is_not_taken_for_full_settings() {
        let document =
            json!({"dns": {}, "networks": {}, "registry": {"endpoint": "http://r", "user": "u", "password": "p"}});
        let user_data: RegistryUserData = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(user_data.registry.endpoint.reveal(), "http://r");
        assert!(serde_json::from_value::<AgentSettings>(document).is_err(), "it has no agent id");
    }
}
