//! How an agent is: what the original tells on a message bus every half minute, and when something breaks.
//!
//! Over HTTPS agents speak when they are spoken to, so both are asked for, by a message that every generation answers: the state
//! in full has everything that a heartbeat has, and agents that keep alerts add them when the second word is `alerts`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::error::CallError;
use crate::limits::LONGEST_NAME;
use crate::methods::{AgentState, failing, some};

/// How many alerts of one VM are heard: more than agents keep.
const MOST_ALERTS: usize = 200;
/// How many bytes of an alert's words are heard. They are kept with events, and told to people.
const LONGEST_ALERT: usize = 2000;

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

/// How the jobs of a VM are, and what broke: no more than a few words for each, however much the VM says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "SaidHealth")]
pub struct JobHealth {
    /// `running`, `stopped`, `starting`, `failing` or `unknown`.
    pub job_state: String,
    /// What broke since the agent started, the latest last; nothing from agents that keep no alerts.
    pub alerts: Vec<Alert>,
    /// The processes that do not run, as far as they fit into a line or two.
    pub failing: Vec<String>,
}

#[derive(Deserialize)]
struct SaidHealth {
    #[serde(default)]
    job_state: String,
    #[serde(default)]
    alerts: Vec<Alert>,
    #[serde(default)]
    processes: Vec<Value>,
}

impl From<SaidHealth> for JobHealth {
    fn from(mut said: SaidHealth) -> Self {
        // The latest are at the end.
        let mut alerts = said.alerts.split_off(said.alerts.len().saturating_sub(MOST_ALERTS));
        for alert in &mut alerts {
            shorten(&mut alert.id, LONGEST_NAME);
            shorten(&mut alert.title, LONGEST_ALERT);
            shorten(&mut alert.summary, LONGEST_ALERT);
        }
        shorten(&mut said.job_state, LONGEST_NAME);
        Self { job_state: said.job_state, alerts, failing: some(failing(&said.processes)) }
    }
}

fn shorten(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A director asks all VMs, and keeps what they say until it has looked at them all.
    #[test]
    fn a_vm_with_a_megabyte_to_say_about_its_health_is_heard_in_a_few_words() {
        let alert = |number: usize| {
            let words = "ä".repeat(300);
            json!({"id": format!("{number}-{words}"), "severity": 1, "title": words, "summary": words.repeat(10), "created_at": 7})
        };
        let alerts: Vec<Value> = (0..1000).map(alert).collect();
        let process = json!({"name": "p".repeat(1000), "state": "failing"});
        let state = "s".repeat(1000);
        let said = json!({"job_state": state, "alerts": alerts, "processes": vec![process; 1000], "vitals": alerts});
        let heard: JobHealth = serde_json::from_value(said).unwrap();
        assert_eq!((heard.alerts.len(), heard.failing.len(), heard.job_state.len()), (MOST_ALERTS, 20, LONGEST_NAME));
        assert!(heard.alerts.last().unwrap().id.starts_with("999-"), "the latest are heard");
        for Alert { id, title, summary, .. } in &heard.alerts {
            assert!(id.len() <= LONGEST_NAME && title.len() <= LONGEST_ALERT && summary.len() <= LONGEST_ALERT);
            assert!(title.len() == 600 && summary.len() > LONGEST_ALERT - 2);
        }
        assert!(heard.failing.iter().all(|name| name.len() == LONGEST_NAME));
    }
}
