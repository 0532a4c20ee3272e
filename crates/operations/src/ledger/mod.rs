//! What the steps remember, and the order in which they must.
//!
//! A [`Change`] is one thing to be done in a cloud; an [`Intent`] is a change written down before it is tried; a
//! [`Fact`] is what is true once the cloud confirmed it. The steps know only the trait [`Ledger`], which the director's
//! database implements, so that a state file can implement it as well.
//!
//! The rule: no change without its intent on disk; no record dropped before the cloud confirmed; the fact and the end
//! of its intent are one transaction. Whoever is killed in between leaves an open intent, which
//! [`settle`](crate::settle) ends.

mod change;
mod fact;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_contract::{ApiVersion, RequestId};
use windlass_durable::process::ProcessIdentity;

pub use change::{Change, NewDisk, NewStemcell, NewVm};
pub use fact::Fact;

/// A change that was written down before it was tried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Intent {
    /// Sent to the CPI, which answers a repetition with the first answer if it remembers requests.
    pub id: RequestId,
    /// The task that wanted it.
    pub task: Option<i64>,
    /// The CPI's name; empty for the default one.
    pub cpi: String,
    /// The stemcell's version, where the call is about a VM.
    pub stemcell_version: Option<ApiVersion>,
    /// What to do.
    pub change: Change,
    /// The CPI's process, once it was started.
    pub child: Option<ProcessIdentity>,
    /// Why nobody knows whether it happened, if so.
    pub doubt: Option<String>,
}

/// the records cannot be read or written
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} in the director's records")]
pub struct LedgerError {
    /// What was tried.
    pub what: &'static str,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Durable memory of changes and facts. Every method is durable when it returns.
#[async_trait]
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// Writes an intent down, before anything is tried.
    async fn open_intent(&self, intent: &Intent) -> Result<(), LedgerError>;
    /// Notes the process that carries it out.
    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError>;
    /// The cloud confirmed: the fact and the end of the intent, at once.
    async fn settle(&self, id: &RequestId, fact: &Fact) -> Result<(), LedgerError>;
    /// The cloud refused for this reason, and nothing changed.
    async fn abandon(&self, id: &RequestId, why: &str) -> Result<(), LedgerError>;
    /// Nobody knows whether it happened; it stays on record as a possible leak.
    async fn doubt(&self, id: &RequestId, why: &str) -> Result<(), LedgerError>;
    /// Notes a fact that needed no change in a cloud.
    async fn record(&self, fact: &Fact) -> Result<(), LedgerError>;
    /// Intents that nobody settled, oldest first.
    async fn open_intents(&self) -> Result<Vec<Intent>, LedgerError>;
}
