//! How much an agent may answer. A VM belongs to strangers as soon as one of its jobs does, and what it says must not cost its
//! caller more memory than a few MiB, however many VMs say it at once.

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

/// How many bytes the result of an action may have.
pub(crate) fn bytes_of(method: &str) -> usize {
    match method {
        "get_state" | "run_errand" => LARGE,
        _ => SMALL,
    }
}

/// A turn to go on with an answer that is larger than most.
pub(crate) async fn turn() -> Option<SemaphorePermit<'static>> {
    // It is never closed.
    LARGE_ANSWERS.acquire().await.ok()
}

/// Whether JSON has more values than an answer may have.
pub(crate) fn has_too_many_values(json: &[u8]) -> bool {
    windlass_contract::has_more_values_than(json, MOST_VALUES)
}
