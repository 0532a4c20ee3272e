//! At most so many calls per second, counted over all processes that share a memory.
//!
//! A token bucket that holds one second's worth of calls, kept as the time at which the next call would find it exactly
//! empty. Each call moves that time on under a lock, and then waits for its turn without it. The clock is the machine's, so
//! setting the time of day changes nothing; after a reboot the bucket is full.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use windlass_contract::cpi::CpiError;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

/// How long the few instructions under the lock may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Bucket {
    /// Seconds on the machine's clock.
    next: f64,
    /// Which start of the machine that clock counts from.
    boot: String,
}

/// When the next call may go, and the bucket after it.
fn reserve(next: f64, now: f64, per_second: f64) -> (Duration, f64) {
    let interval = per_second.recip();
    let stored = (per_second.max(1.0) - 1.0) * interval;
    let turn = next.max(now - stored);
    (Duration::from_secs_f64((turn - now).max(0.0)), turn + interval)
}

/// Waits for this call's turn.
pub(crate) async fn wait(memory: &Path, per_second: f64) -> Result<(), CpiError> {
    let path = memory.join("rate.json");
    let failed = |error| CpiError::cloud(format!("cannot count calls in {}: {error}", path.display()));
    file::create_private_dir(memory).map_err(failed)?;
    let lock = FileLock::acquire(&memory.join("rate.lock"), PATIENCE).map_err(failed)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // One that a killed process left half-written counts as full.
    let bucket: Bucket = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let next = if bucket.boot == boot { bucket.next } else { f64::MIN };
    let (pause, next) = reserve(next, now(), per_second);
    // Not worth a flush: after a power cut the bucket is full anyway.
    let bucket = serde_json::to_vec(&Bucket { next, boot }).map_err(|error| failed(error.into()))?;
    file::write_in_place(&path, bucket).map_err(failed)?;
    drop(lock);
    tokio::time::sleep(pause).await;
    Ok(())
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_no_more_calls_than_configured_whatever_their_processes() {
        for per_second in [0.5, 1.0, 10.0] {
            let mut next = f64::MIN;
            let mut waits = Vec::new();
            for _ in 0..30 {
                let wait;
                (wait, next) = reserve(next, 1000.0, per_second);
                waits.push(wait.as_secs_f64());
            }
            let immediate = waits.iter().filter(|wait| **wait < 1e-6).count();
            assert_eq!(immediate as f64, per_second.max(1.0), "the bucket's content");
            let last = waits.last().unwrap() * per_second;
            assert!((last - (30.0 - per_second.max(1.0))).abs() < 1e-6, "{waits:?}");
        }
    }

    #[tokio::test]
    async fn processes_share_the_bucket_and_a_broken_one_is_full() {
        let memory = tempfile::tempdir().unwrap();
        fs::write(memory.path().join("rate.json"), b"{").unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..8 {
            wait(memory.path(), 5.0).await.unwrap();
        }
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(590), "three calls had to wait 0.2 s each: {took:?}");
    }
}
