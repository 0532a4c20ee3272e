//! The networks of a VM, as they travel in `create_vm` and in the agent's settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::Object;

/// Networks by name.
pub type Networks = BTreeMap<String, Network>;

/// One network of a VM. Unknown keys are kept, because the agent's networks are compared for equality.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// How the address is chosen. A missing type means manual.
    #[serde(default, rename = "type", deserialize_with = "crate::null::or_default")]
    pub kind: NetworkKind,
    /// The address, without a prefix length.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text")]
    pub ip: Option<String>,
    /// The size of the reserved block as a string, normally `"32"` or `"128"`; not the size of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub prefix: Option<String>,
    /// The mask of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text")]
    pub netmask: Option<String>,
    /// The gateway of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text")]
    pub gateway: Option<String>,
    /// Name servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Vec<String>>,
    /// What this network is the default for: `dns`, `gateway`, `addressable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Vec<String>>,
    /// What only the cloud understands.
    #[serde(default, deserialize_with = "object_or_null")]
    pub cloud_properties: Object,
    /// Set by a CPI that configured the interface itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preconfigured: Option<bool>,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

/// How a network's address is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// The director chose it.
    #[default]
    Manual,
    /// The cloud chooses it.
    Dynamic,
    /// An extra address that is routed to the VM.
    Vip,
}

impl Network {
    /// Whether this is the default network for `purpose` (`dns`, `gateway`).
    pub fn is_default_for(&self, purpose: &str) -> bool {
        self.default.iter().flatten().any(|default| default == purpose)
    }
}

/// Older callers send `""` for "none".
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum TextOrNumber {
        Text(String),
        Number(u32),
    }
    Ok(Option::<TextOrNumber>::deserialize(deserializer)?.map(|value| match value {
        TextOrNumber::Text(text) => text,
        TextOrNumber::Number(number) => number.to_string(),
    }))
}

pub(crate) fn object_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
    Ok(Option::<Object>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn networks_keep_what_they_do_not_know() {
        let wire = json!({"type": "manual", "ip": "10.0.0.5", "prefix": "32", "netmask": "255.255.255.0",
            "gateway": "10.0.0.1", "dns": ["8.8.8.8"], "default": ["dns", "gateway"], "cloud_properties": {"a": 1},
            "nic_group": "0"});
        let network: Network = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(network.other["nic_group"], "0");
        assert_eq!(serde_json::to_value(&network).unwrap(), wire);
    }

    #[test]
    fn sloppy_senders_are_understood() {
        let network: Network = serde_json::from_value(
            json!({"ip": "10.0.0.5", "gateway": "", "prefix": 32, "cloud_properties": null, "dns": null}),
        )
        .unwrap();
        assert_eq!(network.kind, NetworkKind::Manual);
        assert_eq!((network.gateway, network.prefix.as_deref()), (None, Some("32")));
    }
}
