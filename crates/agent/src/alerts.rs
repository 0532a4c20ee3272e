//! What broke, in the original's form of alerts, until somebody asks.
//!
//! The original sends alerts over a message bus. Over HTTPS they are asked for: `get_state ["full", "alerts"]`, which agents that
//! keep none answer as `get_state ["full"]`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// How many are kept.
const KEPT: usize = 100;

/// How bad it is, in the original's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Somebody must do something now.
    Alert = 1,
    /// Something did not work.
    Error = 3,
}

/// Something that broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Alert {
    id: String,
    severity: u8,
    title: String,
    summary: String,
    created_at: u64,
}

/// What broke since the agent started, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Alerts(Mutex<VecDeque<Alert>>);

impl Alerts {
    /// Logs and keeps an alert.
    pub(crate) fn raise(&self, severity: Severity, title: impl Into<String>, summary: impl Into<String>) {
        let (title, summary) = (title.into(), summary.into());
        tracing::warn!("{title}: {summary}");
        let created_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let id = uuid::Uuid::new_v4().to_string();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Alert { id, severity: severity as u8, title, summary, created_at });
        while kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Alert> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_alerts_fills_no_memory_and_the_latest_stay() {
        let alerts = Alerts::default();
        for number in 0..2 * KEPT {
            alerts.raise(Severity::Error, format!("{number}"), "broken");
        }
        let all = alerts.all();
        assert_eq!((all.len(), all.last().unwrap().title.as_str()), (KEPT, "199"));
        assert_eq!(serde_json::to_value(&all[0]).unwrap().as_object().unwrap().len(), 5);
    }
}
