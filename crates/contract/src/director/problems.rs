//! What is wrong with a deployment, and what can be done about it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::null::or_default;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CloudProblem {
    pub id: u64,
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub data: Value,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    #[serde(default, deserialize_with = "or_default")]
    pub resolutions: Vec<ProblemResolution>,
    /// Empty of directors older than recovery plans.
    #[serde(default, deserialize_with = "or_default")]
    pub instance_group: String,
}

/// A way to repair it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProblemResolution {
    pub name: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub plan: String,
}

/// Whether VMs that are lost are made again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resurrection {
    pub resurrection: bool,
}
