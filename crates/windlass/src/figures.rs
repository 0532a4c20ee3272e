//! What measurements are summed up by and said with.

use std::time::Duration;

/// What stands below the figures of a build that says nothing about speed.
pub(crate) const DEBUG_BUILD: Option<&str> =
    if cfg!(debug_assertions) { Some("This is a debug build; only a release build says anything.") } else { None };

/// The time that `percent` of the runs did not exceed.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let index = (times.len() * percent).div_ceil(100).max(1) - 1;
    times.get(index).copied().unwrap_or_default()
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
