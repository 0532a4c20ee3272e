//! How much an agent may answer. A VM belongs to strangers as soon as one of its jobs does, and what it says must not cost its
//! caller more memory than a few MiB, however many VMs say it at once.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// What most answers fit in. Answers up to this size are read side by side.
pub(crate) const SMALL: usize = 64 * 1024;
/// For answers that carry an instance's spec or the output of a script.
const LARGE: usize = 1024 * 1024;
/// A value takes up to fifty times the memory of the two letters that can make it.
const MOST_VALUES: usize = 20_000;

/// How many bytes of an agent's own words are told in errors, which are kept in logs and records.
pub(crate) const LONGEST_WORDS: usize = 16 * 1024;
/// How many letters a name or an id has at most that an agent gives.
pub(crate) const LONGEST_NAME: usize = 255;

/// Larger answers are read and taken apart some at a time. Nobody who answers briefly waits for them.
static LARGE_ANSWERS: Semaphore = Semaphore::const_new(8);
/// Agents that had a turn and did not finish their answer wait for each other from then on, so that the others do not wait for them.
static ANSWERS_OF_THE_SLOW: Semaphore = Semaphore::const_new(2);
/// Where they listen.
static SLOW: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
/// How many of them are remembered.
const MOST_SLOW: usize = 10_000;

/// How many bytes the result of an action may have.
pub(crate) fn bytes_of(method: &str) -> usize {
    match method {
        "get_state" | "run_errand" => LARGE,
        _ => SMALL,
    }
}

/// An answer in which zero bytes of texts, which PostgreSQL does not take, are replaced. The words for both in JSON are of the same length.
pub(crate) fn without_zero_bytes(mut answer: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let Some(found) = windlass_contract::zero_byte_in(&answer, at) {
        answer[found..found + 6].copy_from_slice(br"\ufffd");
        at = found + 6;
    }
    answer
}

/// A turn to go on with an answer that is larger than most.
#[derive(Debug)]
pub(crate) struct Turn {
    /// None never happens: turns are never closed.
    _permit: Option<SemaphorePermit<'static>>,
    agent: Option<SocketAddr>,
    is_read: bool,
}

impl Turn {
    /// Waits for a turn of the agent at this address.
    pub(crate) async fn of(agent: Option<SocketAddr>) -> Self {
        let is_slow = agent.is_some_and(|agent| slow().contains(&agent));
        let turns = if is_slow { &ANSWERS_OF_THE_SLOW } else { &LARGE_ANSWERS };
        Self { _permit: turns.acquire().await.ok(), agent, is_read: false }
    }

    /// The answer came to its end.
    pub(crate) fn is_read(&mut self) {
        self.is_read = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(agent) = self.agent else { return };
        let mut slow = slow();
        if self.is_read {
            slow.remove(&agent);
        } else if slow.len() < MOST_SLOW {
            slow.insert(agent);
        }
    }
}

fn slow() -> MutexGuard<'static, BTreeSet<SocketAddr>> {
    SLOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether JSON has more values than an answer may have.
pub(crate) fn has_too_many_values(json: &[u8]) -> bool {
    windlass_contract::has_more_values_than(json, MOST_VALUES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One VM that raised alerts with zero bytes kept the resurrector from all deployments behind it.
    #[test]
    fn zero_bytes_of_answers_are_replaced() {
        let cleaned = without_zero_bytes(br#"{"value":"a\u0000b\u0000\u0000"}"#.to_vec());
        let value: serde_json::Value = serde_json::from_slice(&cleaned).unwrap();
        assert_eq!(value["value"], "a\u{fffd}b\u{fffd}\u{fffd}");
        assert_eq!(without_zero_bytes(b"short".to_vec()), b"short");
    }
}
