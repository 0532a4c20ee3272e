//! What measurements are summed up by.

use std::time::Duration;

/// The time that `percent` of the runs did not exceed.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let index = (times.len() * percent).div_ceil(100).max(1) - 1;
    times.get(index).copied().unwrap_or_default()
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
