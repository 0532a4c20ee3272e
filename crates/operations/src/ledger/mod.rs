//! What the steps remember, and the order in which they must.
//!
//! A [`Change`] is one thing to be done in a cloud; an [`Intent`] is a change written down before it is tried; a
//! [`Fact`] is what is true once the cloud confirmed it. The steps know only the trait [`Ledger`], which the director's
//! database implements, so that a state file can implement it as well.
//!
//! The rule: no change without its intent on disk; no record dropped before the cloud confirmed; the fact and the end
//! of its intent are one transaction. A process that is killed in between leaves an open intent, which
//! [`settle`](crate::settle) ends.

mod change;
mod fact;
mod model;
mod open_intent;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use windlass_contract::{ApiVersion, RequestId};
use windlass_durable::process::ProcessIdentity;
use windlass_planning::names::CpiName;

pub use change::{Change, NewDisk, NewStemcell, NewVm};
pub use fact::Fact;
pub use model::Model;
pub use open_intent::{IntentEnd, IntentOutcome, OpenIntent};

/// A change that was written down before it was tried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Intent {
    /// Sent to the CPI, which answers a repetition with the first answer if it remembers requests.
    pub id: RequestId,
    /// The task that wanted it.
    pub task: Option<i64>,
    pub cpi: CpiName,
    /// The stemcell's version, where the call is about a VM.
    pub stemcell_version: Option<ApiVersion>,
    pub change: Change,
    /// The CPI's process, once it was started on this machine.
    pub child: Option<ProcessIdentity>,
    /// Where it was started instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Elsewhere>,
    /// Why nobody knows whether it happened, if so.
    pub doubt: Option<String>,
}

/// A CPI that was started on another machine, where nobody can see from here whether it still runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The machine, for people.
    pub host: String,
    /// When it is past its deadline, in Unix seconds.
    pub until: i64,
}

/// the records cannot be read or written
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} in {place}")]
pub struct LedgerError {
    /// What was tried.
    pub what: &'static str,
    /// Where the records are, such as `the director's database`.
    pub place: String,
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl LedgerError {
    /// Whether it failed because somebody else ended the intent, or nobody wrote it.
    pub fn is_not_one_intent(&self) -> bool {
        self.source.is::<NotOneIntent>()
    }
}

/// why an intent could not be changed: the records must have exactly one of its id
#[derive(Debug, thiserror::Error)]
#[error("{found} intents have the id '{id}' instead of one; somebody else ended it, or it was never written")]
pub struct NotOneIntent {
    pub id: String,
    pub found: u64,
}

impl NotOneIntent {
    /// Fails unless exactly one record was changed.
    pub fn unless_one(id: &RequestId, found: u64) -> Result<(), Self> {
        if found == 1 { Ok(()) } else { Err(Self { id: id.to_string(), found }) }
    }
}

/// Durable memory of changes and facts. Every method is durable when it returns. Intents are opened and ended through
/// [`OpenIntent`] only; a ledger stores what it is told.
#[async_trait]
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// Stores an intent.
    async fn write_intent(&self, intent: &Intent) -> Result<(), LedgerError>;
    /// Notes the process that carries an intent out; fails unless exactly one intent has this id.
    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError>;
    /// Ends an intent, together with its fact; fails, and changes nothing, unless exactly one intent has this id.
    async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError>;
    /// Notes a fact that needed no change in a cloud.
    async fn record(&self, fact: &Fact) -> Result<(), LedgerError>;
    /// Every intent that did not end or is in doubt, oldest first.
    async fn intents(&self) -> Result<Vec<Intent>, LedgerError>;
}
