//! The [`Model`] with its intents as a ledger.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use windlass_contract::RequestId;
use windlass_durable::process::ProcessIdentity;

use crate::ledger::{Fact, Intent, IntentEnd, IntentOutcome, Ledger, LedgerError, Model, NotOneIntent};

/// A ledger in memory. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct MemoryLedger {
    content: Arc<Mutex<Content>>,
}

#[derive(Debug, Default)]
struct Content {
    model: Model,
    intents: Vec<Intent>,
}

impl MemoryLedger {
    /// A ledger in which this is on record.
    pub fn new(model: Model) -> Self {
        Self { content: Arc::new(Mutex::new(Content { model, intents: Vec::new() })) }
    }

    /// What is on record now.
    pub fn model(&self) -> Model {
        self.content().model.clone()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_intent(
        &self,
        what: &'static str,
        id: &RequestId,
        change: impl FnOnce(&mut Content, usize),
    ) -> Result<(), LedgerError> {
        let mut content = self.content();
        let at: Vec<usize> = (0..content.intents.len()).filter(|at| content.intents[*at].id == *id).collect();
        NotOneIntent::unless_one(id, at.len() as u64).map_err(failed(what))?;
        change(&mut content, at[0]);
        Ok(())
    }
}

fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(what: &'static str) -> impl FnOnce(E) -> LedgerError {
    move |error| LedgerError { what, place: "memory".to_owned(), source: error.into() }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn write_intent(&self, intent: &Intent) -> Result<(), LedgerError> {
        let mut content = self.content();
        if content.intents.iter().any(|known| known.id == intent.id) {
            return Err(failed("write an intent")("its id is taken"));
        }
        content.intents.push(intent.clone());
        Ok(())
    }

    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError> {
        self.with_intent("note the process of an intent", id, |content, at| content.intents[at].child = Some(child))
    }

    async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError> {
        match end.outcome() {
            IntentOutcome::Settled(fact) => self.with_intent("settle an intent", end.id(), |content, at| {
                content.model.apply(fact);
                content.intents.remove(at);
            }),
            IntentOutcome::Abandoned(_) => {
                self.with_intent("abandon an intent", end.id(), |content, at| drop(content.intents.remove(at)))
            }
            IntentOutcome::Doubtful(why) => self.with_intent("note a doubt", end.id(), |content, at| {
                content.intents[at].doubt = Some(why.to_owned());
            }),
        }
    }

    async fn record(&self, fact: &Fact) -> Result<(), LedgerError> {
        self.content().model.apply(fact);
        Ok(())
    }

    async fn intents(&self) -> Result<Vec<Intent>, LedgerError> {
        Ok(self.content().intents.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::conformance::{INSTANCES, Subject};

    use super::*;

    #[async_trait]
    impl Subject for MemoryLedger {
        fn ledger(&self) -> &dyn Ledger {
            self
        }

        async fn records(&self) -> Model {
            self.model()
        }

        async fn reopened(self) -> Self {
            self
        }
    }

    async fn ledger() -> MemoryLedger {
        MemoryLedger::new(Model::of_instances(INSTANCES))
    }

    crate::ledger_conformance!(ledger);
}
