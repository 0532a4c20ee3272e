//! What a director answers, once for both sides: its API writes these types, its clients read them, and its OpenAPI document
//! describes them ([`schema()`]).
//!
//! Keys are written in the order of the fields, which is BOSH's. A field with `null::text` is written as `null` where it is
//! empty. Reading is liberal: a director may be BOSH's, or of another version.
//!
//! - Here: who it is, tasks, events, locks. [`deployments`]: deployments and what a deploy would change. [`instances`]: how
//!   instances are, and why. [`configs`]: configs and variables. [`releases`]: releases and stemcells. [`resources`]: disks, VMs,
//!   snapshots, what nobody owns. [`problems`]: what is wrong, and what can be done about it.

pub mod configs;
pub mod deployments;
pub mod instances;
pub mod problems;
pub mod releases;
pub mod resources;
mod schema;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Object;
use crate::null::or_default;

pub use configs::*;
pub use deployments::*;
pub use instances::*;
pub use problems::*;
pub use releases::*;
pub use resources::*;
pub use schema::schema;

/// `/info`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Info {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub uuid: String,
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    /// Of the request; empty without credentials.
    #[serde(default, with = "crate::null::text")]
    pub user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell_version: String,
    #[serde(default)]
    pub user_authentication: Value,
    #[serde(default, deserialize_with = "or_default")]
    pub features: Features,
}

/// What a director can do, by name, in the order in which it says it.
#[derive(Debug, Clone, Default)]
pub struct Features(pub Vec<(String, Feature)>);

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, feature)| (name, feature)))
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(BTreeMap::deserialize(deserializer)?.into_iter().collect()))
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Feature {
    pub status: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extras: Option<Value>,
}

/// When a certificate of the director ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Certificate {
    #[serde(default, with = "crate::null::text")]
    pub certificate_path: String,
    #[serde(default, deserialize_with = "or_default")]
    pub expiry: String,
    #[serde(default)]
    pub days_left: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    pub id: u64,
    pub state: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// When it ended, in Unix seconds.
    pub timestamp: Option<i64>,
    /// In Unix seconds.
    pub started_at: Option<i64>,
    /// Once it ended.
    pub result: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, with = "crate::null::text")]
    pub deployment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub context_id: String,
}

impl Task {
    /// Whether it has yet to end.
    pub fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "queued" | "processing" | "cancelling")
    }
}

/// Something that happened. Keys without a value are left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordedEvent {
    pub id: String,
    /// The event that began what this one ends.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub parent_id: String,
    /// In Unix seconds.
    #[serde(default, deserialize_with = "or_default")]
    pub timestamp: i64,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub action: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub object_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub object_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub error: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub task: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub deployment: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "or_default")]
    pub instance: String,
    #[serde(default, deserialize_with = "or_default")]
    pub context: Object,
}

/// A lock. BOSH's clients insist on strings where one would expect numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lock {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub resource: Vec<String>,
    /// Seconds since 1970, as text.
    #[serde(default, deserialize_with = "or_default")]
    pub timeout: String,
    #[serde(default, deserialize_with = "or_default")]
    pub task_id: String,
}

/// Something that only has a name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Versioned {
    pub name: String,
    pub version: String,
}

/// Whether something must be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Needed {
    pub needed: bool,
}
