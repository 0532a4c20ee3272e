//! Configs and variables.

use serde::{Deserialize, Serialize};

use super::Versioned;
use crate::null::or_default;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    #[serde(default, deserialize_with = "or_default")]
    pub content: String,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    #[serde(default, with = "crate::null::text")]
    pub team: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
    #[serde(default)]
    pub current: bool,
}

/// A config under the older path of its type.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CloudConfig {
    pub properties: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_at: String,
}

/// Another change of a config came first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConfigConflict {
    #[serde(default, deserialize_with = "or_default")]
    pub latest_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub expected_latest_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
}

/// A config that a deployment uses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeploymentConfig {
    #[serde(default)]
    pub id: usize,
    #[serde(default, deserialize_with = "or_default")]
    pub deployment: String,
    pub config: UsedConfig,
}

/// Here, and only here, a config's id is a number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UsedConfig {
    pub id: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
}

/// A version of a variable that a deployment uses, without its value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Variable {
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    pub name: String,
}

/// Which deployments use which version of a variable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VariableUsers {
    pub deployments: Vec<Versioned>,
}

/// When a certificate among the variables ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VariableExpiry {
    pub name: String,
    pub id: String,
    pub expiry_date: String,
    pub days_left: i64,
}
