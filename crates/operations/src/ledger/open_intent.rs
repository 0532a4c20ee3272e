//! The life of an intent: written before anything is tried, ended exactly once.

use std::time::Duration;

use windlass_contract::RequestId;
use windlass_durable::process::ProcessIdentity;

use super::{Fact, Intent, Ledger, LedgerError};

/// The pauses before the end of an intent is tried to be written again. The cloud has done its part, and what is done next
/// relies on it: an intent that stays open is repeated by the next start, whatever was done meanwhile.
const PAUSES: [Duration; 3] = match cfg!(test) {
    true => [Duration::ZERO; 3],
    false => [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5)],
};

/// An intent that is on disk, and of which nobody knows yet how it ended.
///
/// [`settle`](Self::settle), [`abandon`](Self::abandon) and [`doubt`](Self::doubt) take it away, so that a change cannot be
/// tried without its intent, and an intent cannot end twice. One that is dropped stays open on disk: the next start
/// [settles](crate::settle) it.
#[derive(Debug)]
#[must_use = "an intent that nobody ends is settled only at the next start"]
pub struct OpenIntent<'a> {
    ledger: &'a dyn Ledger,
    intent: Intent,
}

/// How an intent ended. Only [`OpenIntent`] makes one.
#[derive(Debug)]
pub struct IntentEnd<'a> {
    id: &'a RequestId,
    outcome: IntentOutcome<'a>,
}

/// What became of a change.
#[derive(Debug, Clone, Copy)]
pub enum IntentOutcome<'a> {
    /// The cloud confirmed it; the fact and the end of the intent are recorded at once.
    Settled(&'a Fact),
    /// The cloud refused for this reason, and nothing changed.
    Abandoned(&'a str),
    /// Nobody knows whether it happened, for this reason; it stays on record as a possible leak.
    Doubtful(&'a str),
}

impl<'a> IntentEnd<'a> {
    /// The id of the intent, which must be on record exactly once.
    pub fn id(&self) -> &'a RequestId {
        self.id
    }

    pub fn outcome(&self) -> IntentOutcome<'a> {
        self.outcome
    }
}

impl dyn Ledger + '_ {
    /// Writes an intent down, before anything is tried.
    pub async fn open_intent(&self, intent: Intent) -> Result<OpenIntent<'_>, LedgerError> {
        self.write_intent(&intent).await?;
        Ok(OpenIntent { ledger: self, intent })
    }

    /// Intents that nobody ended, oldest first; those in doubt are left out, because nobody can end them.
    pub async fn open_intents(&self) -> Result<Vec<OpenIntent<'_>>, LedgerError> {
        let undecided = self.intents().await?.into_iter().filter(|intent| intent.doubt.is_none());
        Ok(undecided.map(|intent| OpenIntent { ledger: self, intent }).collect())
    }

    /// Intents that stay on record as possible leaks, oldest first.
    pub async fn doubtful_intents(&self) -> Result<Vec<OpenIntent<'_>>, LedgerError> {
        let doubtful = self.intents().await?.into_iter().filter(|intent| intent.doubt.is_some());
        Ok(doubtful.map(|intent| OpenIntent { ledger: self, intent }).collect())
    }
}

impl std::ops::Deref for OpenIntent<'_> {
    type Target = Intent;

    fn deref(&self) -> &Intent {
        &self.intent
    }
}

impl OpenIntent<'_> {
    /// Notes the process that carries it out, before that process hears what to do.
    pub async fn note_child(&self, child: ProcessIdentity) -> Result<(), LedgerError> {
        self.ledger.note_child(&self.intent.id, child).await
    }

    /// The cloud confirmed: this is true now.
    pub async fn settle(self, fact: &Fact) -> Result<(), LedgerError> {
        self.end(IntentOutcome::Settled(fact)).await
    }

    /// The cloud refused for this reason, and nothing changed.
    pub async fn abandon(self, why: &str) -> Result<(), LedgerError> {
        self.end(IntentOutcome::Abandoned(why)).await
    }

    /// Nobody knows whether it happened; it stays on record as a possible leak.
    pub async fn doubt(self, why: &str) -> Result<(), LedgerError> {
        self.end(IntentOutcome::Doubtful(why)).await
    }

    async fn end(self, outcome: IntentOutcome<'_>) -> Result<(), LedgerError> {
        let end = || self.ledger.end_intent(IntentEnd { id: &self.intent.id, outcome });
        let (mut pauses, mut failed_before) = (PAUSES.into_iter(), false);
        loop {
            let Err(error) = end().await else { return Ok(()) };
            if error.is_not_one_intent() {
                // It may have been written before, when only the answer was lost: nobody else has this handle.
                return if failed_before { Ok(()) } else { Err(error) };
            }
            let Some(pause) = pauses.next() else { return Err(error) };
            failed_before = true;
            let error = windlass_contract::explain(&error);
            tracing::warn!(intent = %self.intent.id, error, "the end of an intent was not written; trying again");
            tokio::time::sleep(pause).await;
        }
    }
}
