//! The document that an agent boots from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AgentId, DiskCid, DiskHint, Networks, Object, Secret};

/// Agent settings in full: what a CPI hands the VM at `create_vm` when no registry is needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// Its absence tells an agent that these are not the full settings.
    pub agent_id: AgentId,
    /// The VM.
    #[serde(default)]
    pub vm: Vm,
    /// The VM's networks.
    #[serde(default)]
    pub networks: Networks,
    /// The VM's disks.
    #[serde(default)]
    pub disks: Disks,
    /// The sixth argument of `create_vm`, verbatim.
    #[serde(default)]
    pub env: Env,
    /// Where the agent listens; `env.bosh.mbus.urls` wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbus: Option<Secret>,
    /// Time servers; `env.bosh.ntp` wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntp: Option<Vec<String>>,
    /// Blob store; `env.bosh.blobstores` wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobstore: Option<Value>,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

/// The VM in its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// By convention the VM's cid.
    #[serde(default)]
    pub name: String,
}

/// The disks of a VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Disks {
    /// A string on the wire, because the original agent takes nothing else; one document shows an object with `path`.
    #[serde(default, deserialize_with = "system_disk")]
    pub system: String,
    /// The ephemeral disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<DiskHint>,
    /// Persistent disks; empty at `create_vm`.
    #[serde(default)]
    pub persistent: BTreeMap<DiskCid, DiskHint>,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

fn system_disk<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum System {
        Path(String),
        Object { path: String },
    }
    Ok(match Option::<System>::deserialize(deserializer)? {
        Some(System::Path(path) | System::Object { path }) => path,
        None => String::new(),
    })
}

/// The environment of a VM. Only what our agent and director understand is typed; the rest passes verbatim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Env {
    /// What the director adds.
    #[serde(default)]
    pub bosh: BoshEnv,
    /// The rest.
    #[serde(flatten)]
    pub other: Object,
}

/// `env.bosh`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BoshEnv {
    /// How the agent is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbus: Option<Mbus>,
    /// Where blobs are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobstores: Option<Vec<Value>>,
    /// Time servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ntp: Option<Vec<String>>,
    /// Canonical `<director>-<deployment>-<group>`, for the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The six canonical combinations, for the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// The rest.
    #[serde(flatten)]
    pub other: Object,
}

/// `env.bosh.mbus`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mbus {
    /// `https://user:password@address:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urls: Option<Vec<Secret>>,
    /// The server certificate of the agent and the CA of its clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<MbusCert>,
    /// Ours: the agent demands a client certificate issued by `cert.ca`. The original ignores it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_client_cert: bool,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

/// A certificate with its key and CA, as PEM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MbusCert {
    /// The CA.
    #[serde(default)]
    pub ca: String,
    /// The certificate.
    #[serde(default)]
    pub certificate: String,
    /// Its key.
    #[serde(default = "no_secret")]
    pub private_key: Secret,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

fn no_secret() -> Secret {
    Secret::new("")
}

impl Default for Secret {
    fn default() -> Self {
        no_secret()
    }
}

impl AgentSettings {
    /// Where the agent listens: `env.bosh.mbus.urls` before `mbus`.
    pub fn mbus_url(&self) -> Option<&Secret> {
        self.env.bosh.mbus.as_ref().and_then(|mbus| mbus.urls.as_ref()?.first()).or(self.mbus.as_ref())
    }

    /// The agent's server certificate.
    pub fn mbus_cert(&self) -> Option<&MbusCert> {
        self.env.bosh.mbus.as_ref()?.cert.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_seeds_settings_are_understood_and_sent_as_the_original_takes_them() {
        let settings: AgentSettings = serde_json::from_value(json!({
            "agent_id": "4149ba0f", "dns": {}, "networks": {"private": {"type": "manual", "ip": "10.230.13.6"}},
            "disks": {"system": {"path": "/dev/sda1"}, "ephemeral": {"path": "/dev/sdb1"}, "persistent": {}},
            "vm": {"name": "i-347844"}, "env": {"bosh": {"password": "x", "mbus": {"urls": ["https://u:p@0.0.0.0:6868"]}}},
            "mbus": "https://other@0.0.0.0:1"
        }))
        .unwrap();
        assert_eq!(settings.disks.system, "/dev/sda1");
        assert_eq!(settings.mbus_url().unwrap().reveal(), "https://u:p@0.0.0.0:6868");
        let sent = serde_json::to_value(&settings).unwrap();
        assert_eq!(sent["disks"]["system"], "/dev/sda1");
        assert_eq!(sent["env"]["bosh"]["password"], "x");
        assert_eq!(sent["dns"], json!({}));
    }
}
