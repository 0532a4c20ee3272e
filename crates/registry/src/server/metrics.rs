//! What is counted: totals for monitoring, and, where a test wants to know, what each instance was asked.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_connections::Tally;

/// The methods that are told apart; the last stands for all others.
const METHODS: [&str; 4] = ["GET", "PUT", "DELETE", "other"];
/// The statuses that are told apart; the last stands for all others.
const STATUSES: [&str; 10] = ["200", "400", "401", "404", "408", "413", "431", "500", "503", "other"];

/// The requests for one instance's settings that were allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the instance itself asked for them.
    pub reads: u64,
    /// How often somebody who may write asked for them.
    pub lookups: u64,
    /// How often they were stored.
    pub writes: u64,
    /// How often they were removed.
    pub deletions: u64,
}

/// All counters of a registry.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    requests: [[AtomicU64; STATUSES.len()]; METHODS.len()],
    /// Settings that were stored or removed.
    pub(super) writes: AtomicU64,
    connections: Arc<Tally>,
    instances: Option<Mutex<HashMap<String, Counts>>>,
}

impl Metrics {
    /// `per_instance` keeps a little memory for every instance that ever was.
    pub(super) fn new(connections: Arc<Tally>, per_instance: bool) -> Self {
        Self { connections, instances: per_instance.then(Mutex::default), ..Self::default() }
    }

    pub(super) fn count_request(&self, method: &str, status: &str) {
        let method = METHODS.iter().position(|known| *known == method).unwrap_or(METHODS.len() - 1);
        let status = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        self.requests[method][status].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_for(&self, id: &str, count: impl FnOnce(&mut Counts)) {
        if let Some(instances) = &self.instances {
            count(instances.lock().unwrap_or_else(PoisonError::into_inner).entry(id.to_owned()).or_default());
        }
    }

    pub(super) fn counts(&self, id: &str) -> Counts {
        let all = self.instances.as_ref().map(|instances| instances.lock().unwrap_or_else(PoisonError::into_inner));
        all.and_then(|all| all.get(id).copied()).unwrap_or_default()
    }

    pub(super) fn instances(&self) -> Vec<(String, Counts)> {
        let all = self.instances.as_ref().map(|instances| instances.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all: Vec<_> = all.iter().flat_map(|all| all.iter()).map(|(id, counts)| (id.clone(), *counts)).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// In the text format of Prometheus.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("# TYPE windlass_registry_requests_total counter\n");
        for (method, statuses) in METHODS.iter().zip(&self.requests) {
            for (status, count) in STATUSES.iter().zip(statuses) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    let labels = format!("method=\"{method}\",status=\"{status}\"");
                    let _ = writeln!(text, "windlass_registry_requests_total{{{labels}}} {count}");
                }
            }
        }
        for (name, kind, count) in [
            ("windlass_registry_writes_total", "counter", &self.writes),
            ("windlass_registry_connections", "gauge", &self.connections.open),
            ("windlass_registry_connections_crowded_out_total", "counter", &self.connections.crowded_out),
        ] {
            let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {}", count.load(Ordering::Relaxed));
        }
        text
    }
}
