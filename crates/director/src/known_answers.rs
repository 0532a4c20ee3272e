//! Lists that many ask for again and again, kept as they were written until something is.
//!
//! A request gets what was read after it came, or before that with nothing written in between: the same as if it were read for it
//! alone. Those who ask for the same at the same time wait for one who reads it, so that many lists cost no more memory than one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::Mutex as AsyncMutex;

/// How long an answer counts even if nobody wrote anything, for what others do to the database.
const LONGEST: Duration = Duration::from_secs(1);
/// How many bytes of answers are kept.
const MOST_BYTES: usize = 16 << 20;
/// How many of them: a question has a few bytes, too.
const MOST: usize = 1000;

/// Answers by what was asked.
#[derive(Debug, Default)]
pub(crate) struct KnownAnswers {
    known: Mutex<HashMap<String, Arc<AsyncMutex<Option<Answer>>>>>,
}

#[derive(Debug)]
struct Answer {
    /// How many changes there were when it was begun.
    changes: u64,
    begun: Instant,
    body: Bytes,
}

impl KnownAnswers {
    /// The answer to `question`, which `make` gives if nobody has one that is new enough. `changes` counts what was written.
    pub(crate) async fn get<E>(
        &self,
        question: String,
        changes: impl Fn() -> u64,
        make: impl AsyncFnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        let asked = changes();
        let place = self.place(&question);
        let mut known = place.lock().await;
        if let Some(answer) =
            known.as_ref().filter(|answer| answer.changes >= asked && answer.begun.elapsed() < LONGEST)
        {
            return Ok(answer.body.clone());
        }
        // Nobody needs the old one while the new one is made.
        *known = None;
        let (changes, begun) = (changes(), Instant::now());
        let made = make().await;
        if made.is_err() {
            // Nobody asks for what there is not a second time.
            self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&question);
        }
        let body = Bytes::from(made?);
        // Larger ones are shared by those who wait, and not kept for others.
        *known = Some(Answer { changes, begun, body: body.clone() });
        drop(known);
        drop(place);
        self.keep_few();
        Ok(body)
    }

    fn place(&self, question: &str) -> Arc<AsyncMutex<Option<Answer>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(question) {
            Some(place) => place.clone(),
            None => known.entry(question.to_owned()).or_default().clone(),
        }
    }

    /// Forgets everything that nobody waits for when there is too much of it.
    fn keep_few(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is being made counts when it is there.
        let size = |place: &Arc<AsyncMutex<Option<Answer>>>| {
            place.try_lock().map_or(0, |answer| answer.as_ref().map_or(0, |answer| answer.body.len()))
        };
        if known.len() > MOST || known.values().map(size).sum::<usize>() > MOST_BYTES {
            known.retain(|_, place| Arc::strong_count(place) > 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_was_read_counts_until_something_is_written() {
        let (answers, changes, made) = (KnownAnswers::default(), AtomicU64::new(1), AtomicUsize::new(0));
        let ask = |question: &str| {
            let make = async || {
                made.fetch_add(1, Ordering::SeqCst);
                Ok::<_, ()>(changes.load(Ordering::SeqCst).to_string().into_bytes())
            };
            answers.get(question.to_owned(), || changes.load(Ordering::SeqCst), make)
        };
        assert_eq!(ask("a").await.unwrap(), "1");
        assert_eq!(ask("a").await.unwrap(), "1");
        assert_eq!(ask("b").await.unwrap(), "1");
        assert_eq!(made.load(Ordering::SeqCst), 2);
        changes.store(2, Ordering::SeqCst);
        assert_eq!(ask("a").await.unwrap(), "2");
        // Somebody else may have changed the database.
        tokio::time::sleep(LONGEST).await;
        ask("a").await.unwrap();
        assert_eq!(made.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn who_asks_while_something_is_written_gets_what_was_read_after_they_asked() {
        let (answers, changes, made) = (KnownAnswers::default(), AtomicU64::new(1), AtomicUsize::new(0));
        let ask = || {
            let make = async || {
                made.fetch_add(1, Ordering::SeqCst);
                let read = changes.load(Ordering::SeqCst);
                // Something is written while the answer is made.
                tokio::time::sleep(Duration::from_millis(20)).await;
                changes.fetch_add(1, Ordering::SeqCst);
                Ok::<_, ()>(read.to_string().into_bytes())
            };
            answers.get("a".to_owned(), || changes.load(Ordering::SeqCst), make)
        };
        let together = futures_util::future::join_all((0..64).map(|_| ask())).await;
        assert!(together.iter().all(|answer| answer.as_ref().unwrap() == "1"), "all of them asked before the change");
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert_eq!(ask().await.unwrap(), "2");
    }

    #[tokio::test]
    async fn what_fails_is_asked_again_and_large_answers_are_not_kept() {
        let answers = KnownAnswers::default();
        let failed = answers.get("a".to_owned(), || 1, async || Err::<Vec<u8>, _>("no")).await;
        assert_eq!(failed, Err("no"));
        assert!(answers.known.lock().unwrap().is_empty());
        let large = async || Ok::<_, ()>(vec![0; MOST_BYTES + 1]);
        assert_eq!(answers.get("a".to_owned(), || 1, large).await.unwrap().len(), MOST_BYTES + 1);
        assert!(answers.known.lock().unwrap().is_empty());
        for number in 0..2 * MOST {
            answers.get(number.to_string(), || 1, async || Ok::<_, ()>(vec![0; 10])).await.unwrap();
        }
        assert!(answers.known.lock().unwrap().len() <= MOST + 1);
    }
}
