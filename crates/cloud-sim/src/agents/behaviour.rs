//! What a simulated agent is like.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_agent::Handling;
use windlass_contract::Object;

/// What an agent is like: good and quick, unless something else is said. Times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentBehaviour {
    /// How long after its VM's start it comes up.
    pub delay: u64,
    /// How long after it came up its settings appear.
    pub settings_delay: u64,
    /// How long it takes to look at a message.
    pub latency: u64,
    /// It never comes up.
    pub never_up: bool,
    /// It answers so many messages after a start; then it is silent.
    pub silent_after_messages: Option<u64>,
    /// It does nothing on the message of this number after a start, counted from 1, and says so.
    pub fails_message: Option<u64>,
    /// It does nothing on the message of this number after a start, and ends the connection without an answer.
    pub drops_message: Option<u64>,
    /// It does what the message of this number after a start says, and ends the connection without an answer.
    pub loses_answer: Option<u64>,
    /// It answers for so long after its first message; then it is silent.
    pub silent_after: Option<u64>,
    /// Disks that are attached to its VM do not appear there, so it cannot mount them.
    pub misses_disks: bool,
    /// Told to migrate, it unmounts its disk and fails.
    pub fails_to_migrate: bool,
    /// It takes jobs. Their processes only seem to run; their scripts, and those that compile packages, run on this machine as
    /// the user who runs the cloud.
    pub runs_jobs: bool,
}

impl AgentBehaviour {
    /// This one, but for what `changes` says.
    pub(crate) fn with(&self, changes: &Object) -> Result<Self, serde_json::Error> {
        let mut whole = serde_json::to_value(self)?;
        if let Value::Object(whole) = &mut whole {
            whole.extend(changes.clone());
        }
        serde_json::from_value(whole)
    }

    /// What becomes of the message of this number. What is not as usual is told in the host's log.
    pub(super) fn handling(&self, number: u64, method: &str) -> Handling {
        let is_it = |fault: Option<u64>| fault == Some(number);
        let (handling, what) = if is_it(self.fails_message) {
            (Handling::Refused(format!("message {number}, {method}, fails as configured")), "fails")
        } else if is_it(self.drops_message) {
            (Handling::Dropped, "is dropped")
        } else if is_it(self.loses_answer) {
            (Handling::AnswerLost, "is done without an answer")
        } else {
            return Handling::Answered;
        };
        tracing::warn!("message {number}, {method}, {what} as configured");
        handling
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_vm_changes_what_it_names_and_a_typing_error_is_found() {
        let usual = AgentBehaviour { delay: 1000, latency: 5, ..AgentBehaviour::default() };
        let changed = |changes: Value| usual.with(changes.as_object().unwrap());
        let expected = AgentBehaviour { delay: 0, silent_after_messages: Some(3), ..usual };
        assert_eq!(changed(json!({"delay": 0, "silent_after_messages": 3})).unwrap(), expected);
        assert!(changed(json!({"delai": 0})).unwrap_err().to_string().contains("delai"));
    }
}
