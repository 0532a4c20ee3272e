//! Which calls fail, and how.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use windlass_contract::RequestId;
use windlass_durable::process::ProcessIdentity;

use crate::ledger::{Fact, Intent, IntentEnd, Ledger, LedgerError};
use crate::testing::MemoryLedger;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing happens.
    Refused,
    /// It happens, and its answer gets lost.
    Lost,
}

/// Counts the calls to the cloud, to agents and to the ledger, and decides which of them fail. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    planned: Vec<(usize, Fault)>,
    /// From this call on nothing works any more, as for a process that is killed.
    killed_at: Option<usize>,
}

impl Faults {
    /// The calls with these numbers fail, counted from 1, after those that were made before.
    pub(super) fn plan(&self, faults: &[(usize, Fault)]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { planned: faults.to_vec(), ..State::default() };
    }

    /// No call from this one on reaches anybody.
    pub(super) fn kill_at(&self, call: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State { killed_at: Some(call), ..State::default() };
    }

    /// How many calls were made since the faults were planned.
    pub(super) fn calls(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).calls
    }

    /// Counts a call; says how it fails, if it does.
    pub(super) fn next(&self) -> Option<Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls += 1;
        if state.killed_at.is_some_and(|at| state.calls >= at) {
            return Some(Fault::Refused);
        }
        state.planned.iter().find(|(at, _)| *at == state.calls).map(|(_, fault)| *fault)
    }
}

/// A ledger that fails by plan.
#[derive(Debug, Clone)]
pub(super) struct FaultyLedger {
    pub(super) ledger: MemoryLedger,
    pub(super) faults: Faults,
}

impl FaultyLedger {
    /// What cannot be written is not there: a ledger writes all or nothing.
    fn try_it(&self) -> Result<(), LedgerError> {
        self.faults.next().map_or(Ok(()), |_| Err(by_plan()))
    }
}

fn by_plan() -> LedgerError {
    LedgerError { what: "write", place: "memory".to_owned(), source: "by plan".into() }
}

#[async_trait]
impl Ledger for FaultyLedger {
    async fn write_intent(&self, intent: &Intent) -> Result<(), LedgerError> {
        self.try_it()?;
        self.ledger.write_intent(intent).await
    }

    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError> {
        self.try_it()?;
        self.ledger.note_child(id, child).await
    }

    async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError> {
        match self.faults.next() {
            None => self.ledger.end_intent(end).await,
            Some(Fault::Refused) => Err(by_plan()),
            Some(Fault::Lost) => self.ledger.end_intent(end).await.and(Err(by_plan())),
        }
    }

    async fn record(&self, fact: &Fact) -> Result<(), LedgerError> {
        self.try_it()?;
        self.ledger.record(fact).await
    }

    async fn intents(&self) -> Result<Vec<Intent>, LedgerError> {
        self.ledger.intents().await
    }
}
