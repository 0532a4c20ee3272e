//! What broke, in the original's form of alerts, until somebody asks.
//!
//! The original sends alerts over a message bus. Over HTTPS they are asked for: `get_state ["full", "alerts"]`, which agents that
//! keep none answer as `get_state ["full"]`.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use windlass_supervise::protocol::Happening;

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

/// How bad monit's events are, as the original has it; none of what is good news.
fn severity_of(event: &str) -> Option<u8> {
    const IGNORED: [&str; 4] = ["exists", "action done", "content match", "monit instance changed"];
    let event = event.to_lowercase();
    match event.as_str() {
        "does not exist" | "execution failed" | "connection failed" | "monit instance failed" => Some(1),
        "resource limit matched"
        | "data access error"
        | "content failed"
        | "content doesn't match"
        | "invalid type" => Some(3),
        "gid failed" | "heartbeat failed" | "permission failed" | "size failed" | "filesystem flags failed" => Some(3),
        "connection changed" | "size changed" | "timestamp failed" => Some(3),
        "timestamp changed" | "checksum changed" | "pid changed" => Some(4),
        _ if IGNORED.contains(&&*event) || event.ends_with("succeeded") || event.ends_with("not changed") => None,
        _ if event.ends_with(" changed") => Some(4),
        _ => Some(2),
    }
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

impl Alert {
    /// What happened to a service, in the original's words, on a machine with these addresses; none if it is good news.
    pub(crate) fn of(happening: &Happening, addresses: &[String]) -> Option<Self> {
        let Happening { number, at, service, event, text, action } = happening;
        let severity = severity_of(event)?;
        let service = match addresses {
            [] => service.clone(),
            addresses => format!("{service} ({})", addresses.join(", ")),
        };
        let action = match (event.as_str(), text.rsplit_once(": ")) {
            _ if action.is_some() => action.as_deref().unwrap_or_default(),
            ("Does not exist", None) => "restart",
            (_, Some((_, action @ ("restart" | "stop" | "start" | "unmonitor")))) => action,
            _ => "alert",
        };
        let title = format!("{service} - {event} - {action}");
        Some(Self { id: format!("{at}.{number}"), severity, title, summary: text.clone(), created_at: *at })
    }
}

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

    /// All of them, with those that others know of, in the order of time.
    pub(crate) fn with(&self, others: impl IntoIterator<Item = Alert>) -> Vec<Alert> {
        let mut all: Vec<Alert> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        all.extend(others);
        all.sort_by_key(|alert| alert.created_at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_services_is_as_bad_as_the_original_says() {
        let happening = |event: &str, text: &str| Happening {
            number: 7,
            at: 1000,
            service: "web".into(),
            event: event.into(),
            text: text.into(),
            action: None,
        };
        let told = |event: &str, text: &str| {
            let alert = Alert::of(&happening(event, text), &["10.0.0.1".to_owned(), "10.0.0.2".to_owned()])?;
            Some((alert.severity, alert.title))
        };
        let title = |rest: &str| format!("web (10.0.0.1, 10.0.0.2) - {rest}");
        let died = told("Does not exist", "process is not running");
        assert_eq!(died, Some((1, title("Does not exist - restart"))));
        let limit = told("Resource limit matched", "TotalMemory is beyond its limit of 5 (once): restart");
        assert_eq!(limit, Some((3, title("Resource limit matched - restart"))));
        assert_eq!(told("PID changed", "x").map(|(severity, _)| severity), Some(4));
        assert_eq!(told("Timeout", "x: unmonitor"), Some((2, title("Timeout - unmonitor"))));
        assert_eq!(told("Connection succeeded", "x"), None);
        let bare = Alert::of(&happening("Exists", "x"), &[]);
        assert_eq!(bare, None);
    }

    #[test]
    fn a_flood_of_alerts_fills_no_memory_and_the_latest_stay() {
        let alerts = Alerts::default();
        for number in 0..2 * KEPT {
            alerts.raise(Severity::Error, format!("{number}"), "broken");
        }
        let all = alerts.with([]);
        assert_eq!((all.len(), all.last().unwrap().title.as_str()), (KEPT, "199"));
        assert_eq!(serde_json::to_value(&all[0]).unwrap().as_object().unwrap().len(), 5);
    }
}
