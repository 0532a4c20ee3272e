//! What measurements are summed up by and said with.

use std::time::Duration;

/// What stands below the figures of a build that says nothing about speed.
pub(crate) const DEBUG_BUILD: Option<&str> =
    if cfg!(debug_assertions) { Some("This is a debug build; only a release build says anything.") } else { None };

/// What a measurement found.
#[derive(Debug, Default)]
pub struct Report {
    pub tables: Vec<Table>,
    /// What is worth quoting.
    pub figures: Vec<Figure>,
}

/// A table of figures.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What the rows are, in the plural; empty if they are not counted.
    pub content: &'static str,
    /// Stands above it.
    pub title: Option<String>,
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// Stand below it.
    pub notes: Vec<&'static str>,
}

/// A figure that is worth quoting.
#[derive(Debug, Clone)]
pub struct Figure {
    pub what: String,
    pub value: String,
    /// Against what was measured in the same breath.
    pub ratio: Option<String>,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, value: impl Into<String>) -> Self {
        Self { what: what.into(), value: value.into(), ratio: None }
    }

    /// The same figure against something else.
    pub(crate) fn against(self, ratio: impl Into<String>) -> Self {
        Self { ratio: Some(ratio.into()), ..self }
    }
}

/// The time that `percent` of the runs did not exceed.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let index = (times.len() * percent).div_ceil(100).max(1) - 1;
    times.get(index).copied().unwrap_or_default()
}

/// Memory, for people.
pub(crate) fn mebibytes(kib: u64) -> String {
    format!("{:.0} MiB", kib as f64 / 1024.0)
}

/// A short time, for people.
pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=20).rev().map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(10));
        assert_eq!(percentile(&times, 95), Duration::from_millis(19));
        assert_eq!(percentile(&times[..1], 95), times[0]);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
