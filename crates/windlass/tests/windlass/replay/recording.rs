//! What was recorded, trimmed.

use serde::Deserialize;
use serde_json::Value;

/// A command of the original's client.
#[derive(Debug, Deserialize)]
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    /// What the cloud and the agent of one instance were asked to change, in this order.
    pub(crate) calls: Option<Vec<String>>,
}

/// A request and what was answered.
#[derive(Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) body: Option<String>,
    #[serde(default)]
    pub(crate) anonymous: bool,
    /// With a wrong password.
    #[serde(default)]
    pub(crate) wrong: bool,
    pub(crate) range: Option<String>,
    pub(crate) status: u16,
    /// Whether the answer had the header `WWW-Authenticate`.
    pub(crate) challenge: bool,
    #[serde(default)]
    pub(crate) content_range: bool,
    /// Text, or JSON of which the shape counts.
    pub(crate) answer: Option<Value>,
    pub(crate) task: Option<RecordedTask>,
}

/// The task that a request became.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedTask {
    pub(crate) state: String,
    pub(crate) description: String,
    pub(crate) result: Option<String>,
    /// The code of its last line, if it failed.
    pub(crate) error: Option<u64>,
    /// Stage, tags, task, state.
    pub(crate) events: Vec<(String, Vec<String>, String, String)>,
    /// The first line of its result.
    pub(crate) output: Option<Value>,
}

impl Recording {
    pub(crate) fn all() -> Vec<Self> {
        Self::read(include_str!("data/recordings.jsonl"))
    }

    /// Those of releases, jobs, errands and links.
    pub(crate) fn of_software() -> Vec<Self> {
        Self::read(include_str!("data/software.jsonl"))
    }

    /// Those of a deployment with links, vips and dynamic networks, and of what became of it.
    pub(crate) fn of_networks() -> Vec<Self> {
        Self::read(include_str!("data/misc.jsonl"))
    }

    fn read(text: &str) -> Vec<Self> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
