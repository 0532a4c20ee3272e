//! What a new VM is given to boot with.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use windlass_contract::Object;
use windlass_contract::registry::{RegistryLocation, RegistryUserData, ServerName};
use windlass_contract::settings::AgentSettings;
use windlass_contract::version::SettingsFrom;
use windlass_registry::Client;
use windlass_registry::credentials::Credentials;

/// The document for a new VM. It serialises to what the VM must be given: its agent's settings in full, or, when request or
/// stemcell are older than version 2, where the registry is that the SDK will put them into. A cloud treats both alike.
///
/// Put what only the cloud knows into [`UserData::settings`], and say the VM's name with [`UserData::set_vm_name`]; do so,
/// too, when the call finds the VM that an interrupted one made. What is put in after the document was delivered still
/// reaches a registry.
#[derive(Clone)]
pub struct UserData {
    /// The agent's settings in full.
    pub settings: AgentSettings,
    registry: Option<Client>,
}

impl UserData {
    /// With a registry, the VM fetches its settings there.
    pub(crate) fn new(settings: AgentSettings, registry: Option<Client>) -> Self {
        Self { settings, registry }
    }

    /// Names the VM, by convention by its cid. The name must not change once the document is delivered: it is also the key
    /// of the VM's settings in a registry, and its credentials there are made from it.
    pub fn set_vm_name(&mut self, name: impl Into<String>) {
        self.settings.vm.name = name.into();
    }

    /// Where the VM gets its settings from.
    pub fn settings_from(&self) -> SettingsFrom {
        if self.registry.is_some() { SettingsFrom::Registry } else { SettingsFrom::UserData }
    }

    /// With name servers also at the top, where the contract's document shows them.
    fn in_full(&self) -> AgentSettings {
        let mut settings = self.settings.clone();
        settings.other.entry("dns").or_insert_with(|| Value::Object(self.name_servers()));
        settings
    }

    fn for_registry(&self, registry: &Client) -> RegistryUserData {
        let name = &self.settings.vm.name;
        let Credentials { user, password } = registry.credentials_for(name);
        RegistryUserData {
            registry: RegistryLocation {
                endpoint: registry.endpoint_for(name),
                user: Some(user),
                password: Some(password),
            },
            server: Some(ServerName { name: name.clone() }),
            dns: self.name_servers(),
            networks: self.settings.networks.clone(),
        }
    }

    /// Those of the network that is meant for it, for agents that look up the registry before they set up networks.
    fn name_servers(&self) -> Object {
        let networks = self.settings.networks.values();
        let chosen = networks.clone().find(|network| network.is_default_for("dns")).into_iter().chain(networks);
        let servers = chosen.filter_map(|network| network.dns.as_ref()).find(|servers| !servers.is_empty());
        servers.map(|servers| Object::from_iter([("nameserver".to_owned(), json!(servers))])).unwrap_or_default()
    }
}

/// Settings hold secrets.
impl std::fmt::Debug for UserData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserData").field("settings_from", &self.settings_from()).finish_non_exhaustive()
    }
}

impl Serialize for UserData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.registry {
            None => self.in_full().serialize(serializer),
            Some(registry) => self.for_registry(registry).serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_contract::Secret;

    use super::*;

    #[test]
    fn full_settings_have_name_servers_at_the_top_as_documented_and_what_the_caller_gave_wins() {
        let document = |settings: Value| {
            let user_data = UserData::new(serde_json::from_value(settings).unwrap(), None);
            serde_json::to_value(&user_data).unwrap()["dns"].clone()
        };
        assert_eq!(document(json!({"agent_id": "a-1"})), json!({}));
        let networks = json!({"b": {"ip": "10.0.1.5", "dns": ["10.0.1.1"]}});
        assert_eq!(document(json!({"agent_id": "a-1", "networks": networks})), json!({"nameserver": ["10.0.1.1"]}));
        assert_eq!(document(json!({"agent_id": "a-1", "networks": networks, "dns": {"mine": 1}})), json!({"mine": 1}));
    }

    #[test]
    fn a_vm_of_a_registry_is_told_where_it_is_and_nothing_secret_of_others() {
        let settings = json!({"agent_id": "a-1", "env": {"bosh": {"password": "hunter2"}},
            "networks": {"a": {"ip": "10.0.0.5"}, "b": {"ip": "10.0.1.5", "dns": ["10.0.1.1"]}}});
        let registry = Client::new(&Secret::new("http://10.0.0.6:25777")).unwrap();
        let registry = registry.with_credentials("admin", Secret::new("writes"));
        let mut user_data = UserData::new(serde_json::from_value(settings).unwrap(), Some(registry));
        user_data.set_vm_name("vm-7");
        let document = serde_json::to_value(&user_data).unwrap();
        let password = windlass_registry::credentials::reading_password(&Secret::new("writes"), "vm-7");
        let endpoint = format!("http://vm-7:{}@10.0.0.6:25777", password.reveal());
        assert_eq!(
            document["registry"],
            json!({"endpoint": endpoint, "user": "vm-7", "password": password.reveal()}),
            "in the endpoint for agents, and beside it as the contract's document has it"
        );
        assert_eq!(document["server"], json!({"name": "vm-7"}));
        assert_eq!(document["dns"], json!({"nameserver": ["10.0.1.1"]}));
        assert_eq!(document["networks"]["a"]["ip"], "10.0.0.5");
        let text = document.to_string();
        assert!(!text.contains("hunter2") && !text.contains("writes") && !text.contains("agent_id"), "{text}");
    }
}
