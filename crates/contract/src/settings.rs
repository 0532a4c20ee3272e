//! The document that an agent boots from.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::null::{self, or_default};
use crate::{AgentId, DiskCid, DiskHint, Networks, Object, Secret};

/// Agent settings in full: what a CPI hands the VM at `create_vm` when no registry is needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentSettings {
    /// Its absence tells an agent that these are not the full settings.
    pub agent_id: AgentId,
    #[serde(default, deserialize_with = "or_default")]
    pub vm: Vm,
    /// The VM's networks.
    #[serde(default, deserialize_with = "null::or_absent")]
    pub networks: Networks,
    /// The VM's disks.
    #[serde(default, deserialize_with = "or_default")]
    pub disks: Disks,
    /// The sixth argument of `create_vm`, verbatim.
    #[serde(default, deserialize_with = "or_default")]
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
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// The disks of a VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Disks {
    /// A string on the wire, because the original agent takes nothing else; one document shows an object with `path`.
    #[serde(default, deserialize_with = "system_disk")]
    pub system: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "null::hint")]
    pub ephemeral: Option<DiskHint>,
    /// Persistent disks; empty at `create_vm`.
    #[serde(default, deserialize_with = "null::hints")]
    pub persistent: BTreeMap<DiskCid, DiskHint>,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

fn system_disk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
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

/// The environment of a VM. Only what our agent and director understand is typed. It is written exactly as it was read, with
/// its nulls and empty objects, but for what was changed since.
#[derive(Clone, Default)]
pub struct Env {
    /// What the director adds.
    pub bosh: BoshEnv,
    /// The rest.
    pub other: Object,
    /// What was read.
    given: Option<Object>,
}

impl Env {
    /// An environment that nobody gave.
    pub fn new(bosh: BoshEnv, other: Object) -> Self {
        Self { bosh, other, given: None }
    }

    fn read(given: Object) -> Result<Self, serde_json::Error> {
        let mut other = given.clone();
        let bosh = other.shift_remove("bosh").unwrap_or_default();
        let bosh = if bosh.is_null() { BoshEnv::default() } else { serde_json::from_value(bosh)? };
        Ok(Self { bosh, other, given: Some(given) })
    }

    /// As it is understood, without what means nothing.
    fn understood(&self) -> Result<Object, serde_json::Error> {
        let mut env = Object::new();
        if self.bosh != BoshEnv::default() {
            env.insert("bosh".into(), serde_json::to_value(&self.bosh)?);
        }
        env.extend(self.other.clone());
        Ok(env)
    }

    fn written(&self) -> Result<Object, serde_json::Error> {
        let now = self.understood()?;
        match &self.given {
            Some(given) => Ok(with_changes(given, &Self::read(given.clone())?.understood()?, &now)),
            None => Ok(now),
        }
    }
}

/// `given`, but for what differs between `before`, which is what was understood of it, and `now`.
fn with_changes(given: &Object, before: &Object, now: &Object) -> Object {
    let mut written = Object::new();
    for (key, value) in given {
        match (before.get(key), now.get(key)) {
            (before, now) if before == now => drop(written.insert(key.clone(), value.clone())),
            (Some(Value::Object(before)), Some(Value::Object(now))) => {
                let given = value.as_object().unwrap_or(before);
                written.insert(key.clone(), Value::Object(with_changes(given, before, now)));
            }
            (_, Some(now)) => drop(written.insert(key.clone(), now.clone())),
            (_, None) => {}
        }
    }
    let added = now.iter().filter(|(key, value)| !given.contains_key(*key) && before.get(*key) != Some(value));
    written.extend(added.map(|(key, value)| (key.clone(), value.clone())));
    written
}

/// What means the same is equal.
impl PartialEq for Env {
    fn eq(&self, other: &Self) -> bool {
        (&self.bosh, &self.other) == (&other.bosh, &other.other)
    }
}

/// What was given holds secrets in the clear.
impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Env").field("bosh", &self.bosh).field("other", &self.other).finish_non_exhaustive()
    }
}

impl Serialize for Env {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Env {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Option::<Object>::deserialize(deserializer)?.unwrap_or_default();
        Self::read(given).map_err(serde::de::Error::custom)
    }
}

/// `env.bosh`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BoshEnv {
    /// How the agent is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mbus: Option<Mbus>,
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not", deserialize_with = "or_default")]
    pub require_client_cert: bool,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

/// A certificate with its key and CA, as PEM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MbusCert {
    #[serde(default, deserialize_with = "or_default")]
    pub ca: String,
    #[serde(default, deserialize_with = "or_default")]
    pub certificate: String,
    #[serde(default, deserialize_with = "or_default")]
    pub private_key: Secret,
    /// Keys that we do not know.
    #[serde(flatten)]
    pub other: Object,
}

impl Default for Secret {
    fn default() -> Self {
        Secret::new("")
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

    /// The agents of others compare it, and CPIs of others pass it on to them.
    #[test]
    fn an_environment_is_written_exactly_as_it_was_read_but_for_what_was_changed() {
        let text = |env: &Env| serde_json::to_string(env).unwrap();
        for given in [
            r#"{}"#,
            r#"{"bosh":{}}"#,
            r#"{"bosh":null}"#,
            r#"{"b":1,"bosh":{"ntp":null,"x":{},"mbus":{"cert":{"ca":"c"},"require_client_cert":false}},"a":null}"#,
        ] {
            let env: Env = serde_json::from_str(given).unwrap();
            assert_eq!(text(&env), given);
            assert_eq!(env.bosh == BoshEnv::default(), !given.contains("mbus"));
        }
        let given =
            r#"{"bosh":{"ntp":null,"mbus":{"urls":["https://0.0.0.0"],"cert":{"ca":"c"}},"group":"g"},"a":null}"#;
        let mut env: Env = serde_json::from_str(given).unwrap();
        env.bosh.mbus.as_mut().unwrap().urls = Some(vec![Secret::new("https://10.0.0.5")]);
        env.bosh.group = None;
        env.bosh.blobstores = Some(vec![]);
        env.other.insert("b".into(), json!(1));
        assert_eq!(
            text(&env),
            r#"{"bosh":{"ntp":null,"mbus":{"urls":["https://10.0.0.5"],"cert":{"ca":"c"}},"blobstores":[]},"a":null,"b":1}"#
        );
        assert!(serde_json::from_str::<Env>(r#"{"bosh":"odd"}"#).is_err());
        assert_eq!(text(&Env::default()), "{}");
    }

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
