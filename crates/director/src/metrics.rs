//! What is counted while the director runs, for monitoring. Records are counted when somebody asks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_connections::Tally;
use windlass_cpi_client::CallMeter;

use crate::resurrector::DeploymentHealth;
use crate::store::Counts;

/// The counters of a director.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), Timing>>,
    calls: Mutex<BTreeMap<Call, Timing>>,
    rounds: AtomicU64,
    /// Connections to the API.
    pub(crate) connections: Arc<Tally>,
}

/// A method of a CPI, and whether it succeeded.
type Call = (String, String, bool);

#[derive(Debug, Clone, Copy, Default)]
struct Timing {
    count: u64,
    seconds: f64,
}

impl Timing {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.seconds += took.as_secs_f64();
    }
}

/// The methods that are told apart; others are not ours, and a stranger could send any.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "HEAD"];

impl Metrics {
    /// A request was answered.
    pub(crate) fn answered(&self, method: &str, status: u16, took: Duration) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.entry((method, status)).or_default().add(took);
    }

    /// The resurrector asked all agents once more.
    pub(crate) fn round_done(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Measures the calls of a CPI.
    pub(crate) fn meter(self: &Arc<Self>, cpi: &str) -> Arc<dyn CallMeter> {
        Arc::new(Meter { metrics: self.clone(), cpi: cpi.to_owned() })
    }

    /// In the text format of Prometheus, together with what the records say.
    pub(crate) fn text(&self, counts: &Counts, health: &BTreeMap<String, DeploymentHealth>) -> String {
        let mut page = Page::default();
        page.family("windlass_http_requests_seconds", "summary", "Requests to the API by method and status.");
        for ((method, status), timing) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let status = status.to_string();
            page.timing("windlass_http_requests_seconds", &[("method", method), ("status", &status)], *timing);
        }
        page.family("windlass_cpi_calls_seconds", "summary", "Calls to CPIs by CPI, method and outcome.");
        for ((cpi, method, succeeded), timing) in self.calls.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let outcome = if *succeeded { "success" } else { "failure" };
            let labels = [("cpi", cpi.as_str()), ("method", method), ("outcome", outcome)];
            page.timing("windlass_cpi_calls_seconds", &labels, *timing);
        }
        page.family("windlass_tasks", "gauge", "Tasks on record by state.");
        for (state, count) in &counts.tasks {
            page.value("windlass_tasks", &[("state", state)], *count);
        }
        for (name, help, count) in [
            ("windlass_deployments", "Deployments.", counts.deployments),
            ("windlass_vms", "VMs of all deployments.", counts.vms),
            ("windlass_disks", "Persistent disks of all deployments.", counts.disks),
            ("windlass_orphan_disks", "Disks that belong to no instance.", counts.orphan_disks),
            ("windlass_problems", "Problems that cloud-check found and nobody dealt with.", counts.problems),
            (
                "windlass_possible_leaks",
                "Changes in clouds of which nobody knows whether they happened.",
                counts.doubts,
            ),
        ] {
            page.family(name, "gauge", help);
            page.value(name, &[], count);
        }
        page.family("windlass_instances", "gauge", "Instances that should have a VM, by whether its agent answers.");
        for (deployment, health) in health {
            for (word, count) in [("healthy", health.healthy), ("unhealthy", health.unhealthy)] {
                page.value("windlass_instances", &[("deployment", deployment), ("health", word)], count as i64);
            }
        }
        page.family("windlass_health_rounds_total", "counter", "How often all agents were asked.");
        page.value("windlass_health_rounds_total", &[], self.rounds.load(Ordering::Relaxed) as i64);
        let Tally { open, crowded_out } = &*self.connections;
        page.family("windlass_connections", "gauge", "Connections to the API.");
        page.value("windlass_connections", &[], open.load(Ordering::Relaxed) as i64);
        let name = "windlass_connections_crowded_out_total";
        page.family(name, "counter", "Connections to the API that were closed to make room, or not let in.");
        page.value(name, &[], crowded_out.load(Ordering::Relaxed) as i64);
        if let Some(bytes) = resident_bytes() {
            page.family("process_resident_memory_bytes", "gauge", "Resident memory.");
            page.value("process_resident_memory_bytes", &[], bytes);
        }
        page.0
    }
}

#[derive(Debug)]
struct Meter {
    metrics: Arc<Metrics>,
    cpi: String,
}

impl CallMeter for Meter {
    fn called(&self, method: &str, took: Duration, succeeded: bool) {
        let mut calls = self.metrics.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.entry((self.cpi.clone(), method.to_owned(), succeeded)).or_default().add(took);
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: i64) {
        let _ = writeln!(self.0, "{name}{} {value}", labelled(labels));
    }

    fn timing(&mut self, name: &str, labels: &[(&str, &str)], timing: Timing) {
        let labels = labelled(labels);
        let _ = writeln!(self.0, "{name}_count{labels} {}\n{name}_sum{labels} {:.6}", timing.count, timing.seconds);
    }
}

/// Names of deployments come from people.
fn labelled(labels: &[(&str, &str)]) -> String {
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) }
}

fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<i64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_counted_and_strange_names_break_nothing() {
        let metrics = Arc::new(Metrics::default());
        metrics.answered("GET", 200, Duration::from_millis(5));
        metrics.answered("GET", 200, Duration::from_millis(5));
        metrics.answered("BREW", 404, Duration::from_millis(1));
        metrics.meter("").called("create_vm", Duration::from_secs(2), false);
        metrics.round_done();
        let health = BTreeMap::from([("a\"\n\\b".to_owned(), DeploymentHealth { healthy: 2, unhealthy: 1 })]);
        let tasks = BTreeMap::from([("done".to_owned(), 7)]);
        let counts = Counts { tasks, deployments: 4, vms: 3, ..Counts::default() };
        let text = metrics.text(&counts, &health);
        for line in [
            "windlass_http_requests_seconds_count{method=\"GET\",status=\"200\"} 2",
            "windlass_http_requests_seconds_sum{method=\"GET\",status=\"200\"} 0.010000",
            "windlass_http_requests_seconds_count{method=\"other\",status=\"404\"} 1",
            "windlass_cpi_calls_seconds_sum{cpi=\"\",method=\"create_vm\",outcome=\"failure\"} 2.000000",
            "windlass_tasks{state=\"done\"} 7",
            "windlass_deployments 4",
            "windlass_vms 3",
            r#"windlass_instances{deployment="a\"\n\\b",health="unhealthy"} 1"#,
            "windlass_health_rounds_total 1",
        ] {
            assert!(text.lines().any(|found| found == line), "'{line}' is not in:\n{text}");
        }
    }
}
