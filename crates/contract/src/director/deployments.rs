//! Deployments, and what a deploy would change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Versioned;
use crate::null::or_default;

/// A deployment in a list. What the client asked to leave out is absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Deployment {
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub teams: Vec<String>,
    /// `none`, `latest` or `outdated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_config: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stemcells: Option<Vec<Versioned>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<Vec<Versioned>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked: Option<bool>,
}

/// The manifest of a deployment; none before its first deploy succeeded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub manifest: Option<String>,
}

/// A line, and whether it was `added` or `removed`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DiffLine(pub String, pub Option<String>);

/// The difference between two manifests or configs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Diff {
    /// Pins the configs that the difference was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Value>,
    /// What a config was compared with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "or_default")]
    pub from: BTreeMap<String, String>,
    #[serde(default)]
    pub diff: Vec<DiffLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a deploy would do: in words, and as data of type `P`, whose form differs between versions of directors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShownPlan<P = Value> {
    pub text: String,
    pub plan: Option<P>,
}

/// Files of jobs that a deploy would change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChangedFiles {
    pub files: Vec<ChangedFile>,
    pub notes: Vec<String>,
}

/// A file that changes in the same way on these instances.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChangedFile {
    pub instances: Vec<String>,
    pub job: String,
    /// Below the job's folder; empty for all files of a job.
    pub file: String,
    /// `new`, `removed` or `changed`.
    pub change: String,
    pub lines: Vec<ChangedLine>,
    /// Further lines that change.
    pub more: usize,
}

impl ChangedFile {
    /// Whether the same file changes in the same way, on whatever instances.
    pub fn is_same_change(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.job.clone(), it.file.clone(), it.change.clone(), it.more);
        parts(self) == parts(other) && self.lines == other.lines
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedLine {
    pub number: usize,
    /// `+`, `-`, or `~` where only values change.
    pub change: char,
    pub text: String,
}
