//! How an agent is: what the original tells on a message bus every half minute, and when something breaks.
//!
//! Over HTTPS agents speak when they are spoken to, so both are asked for, by a message that every generation answers: the state
//! in full has everything that a heartbeat has, and agents that keep alerts add them when the second word is `alerts`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::error::CallError;
use crate::methods::{AgentState, failing};

/// A heartbeat, in the original's form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The deployment; empty before the first `apply`.
    pub deployment: String,
    /// The instance group; none before the first `apply`.
    pub job: Option<String>,
    /// The index in it; none before the first `apply`.
    pub index: Option<u64>,
    /// `running`, `stopped`, `starting`, `failing` or `unknown`.
    pub job_state: String,
    /// Load, memory, disks.
    pub vitals: Value,
    /// The instance's id; empty before the first `apply`.
    pub node_id: String,
    /// How many processes the jobs have.
    pub number_of_processes: Option<usize>,
}

/// An alert, in the original's form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub id: String,
    /// From 1, an alert, over 2, critical, and 3, an error, to 4, a warning.
    pub severity: u8,
    /// What it is about.
    pub title: String,
    pub summary: String,
    /// When, in seconds since 1970.
    pub created_at: u64,
}

/// How the jobs of a VM are, and what broke.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct JobHealth {
    /// `running`, `stopped`, `starting`, `failing` or `unknown`.
    #[serde(default)]
    pub job_state: String,
    /// What broke since the agent started, the latest last; nothing from agents that keep no alerts.
    #[serde(default)]
    pub alerts: Vec<Alert>,
    #[serde(default)]
    processes: Vec<Value>,
}

impl JobHealth {
    /// The processes that do not run.
    pub fn failing(&self) -> Vec<&str> {
        failing(&self.processes).collect()
    }
}

impl From<AgentState> for Heartbeat {
    fn from(state: AgentState) -> Self {
        let text = |key: &str| state.other.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let job = state.other.get("job").and_then(|job| job["name"].as_str()).map(str::to_owned);
        Self {
            deployment: text("deployment"),
            job,
            index: state.other.get("index").and_then(Value::as_u64),
            node_id: text("id"),
            job_state: state.job_state,
            vitals: state.vitals.unwrap_or_else(|| json!({})),
            number_of_processes: Some(state.processes.len()),
        }
    }
}

impl Agent {
    /// How the agent, its jobs and its machine are.
    pub async fn heartbeat(&self) -> Result<Heartbeat, CallError> {
        Ok(self.get_state(true).await?.into())
    }

    /// What broke since the agent started, the latest last; nothing from agents that keep no alerts.
    pub async fn alerts(&self) -> Result<Vec<Alert>, CallError> {
        Ok(self.health().await?.alerts)
    }

    /// How its jobs are, and what broke.
    pub async fn health(&self) -> Result<JobHealth, CallError> {
        self.typed("get_state", vec![json!("full"), json!("alerts")]).await
    }
}
