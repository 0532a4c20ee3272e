//! What happens at the start: every intent that an earlier run left open is settled, repeated, or kept in sight.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use windlass_durable::process::ProcessIdentity;

use crate::Director;
use crate::clouds::{Clouds, OnBehalfOf};
use crate::ledger::{Change, Intent, Ledger, LedgerError};
use crate::store::{StoreError, TaskState};
use crate::tasks::{TaskLog, explain};

/// How long a CPI that outlived its director may go on before it is killed.
const LEFT_OVER: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// why an earlier run's work cannot be looked at
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// the intents cannot be read
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// the tasks cannot be read
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Settles what an earlier run left open. Tasks begin only after this.
pub async fn recover(director: &Director) -> Result<(), RecoveryError> {
    settle_intents(&director.clouds, &director.store).await?;
    for task in director.store.interrupted_tasks().await? {
        let message = "the director was stopped while it worked on this task; what it had begun in the clouds was \
                       settled at its start. Run the command again to finish.";
        if let Ok(log) = TaskLog::open(&director.folders.tasks(), task.id) {
            log.error(100, message);
        }
        director.store.release_locks(task.id).await?;
        director.store.finish_task(task.id, TaskState::Error, message).await?;
        tracing::warn!(task = task.id, description = task.description, "this task was interrupted");
    }
    Ok(())
}

/// Settles the changes that an earlier run began and did not hear the end of.
pub async fn settle_intents(clouds: &Clouds, ledger: &dyn Ledger) -> Result<(), LedgerError> {
    for intent in ledger.open_intents().await? {
        if intent.doubt.is_none() {
            settle(clouds, ledger, &intent).await;
        }
    }
    Ok(())
}

async fn settle(clouds: &Clouds, ledger: &dyn Ledger, intent: &Intent) {
    let (method, subject) = (intent.change.method(), intent.change.subject());
    tracing::warn!(method, subject, request = %intent.id, "an earlier run did not hear the end of this");
    if let Some(child) = intent.child {
        end(child).await;
    }
    if let Some(image) = lost_image(&intent.change) {
        tracing::warn!(image = %image.display(), "the image of this stemcell is gone; upload it again");
    }
    let log = |line: &str| tracing::debug!(line, "cpi");
    let who = OnBehalfOf { ledger, task: intent.task, log: &log };
    match clouds.resolve(who, intent).await {
        Ok(_) => tracing::info!(method, subject, "settled"),
        Err(error) => tracing::warn!(method, subject, error = explain(&error), "not settled"),
    }
}

/// A stemcell's image does not outlive its upload.
fn lost_image(change: &Change) -> Option<&Path> {
    match change {
        Change::CreateStemcell { image, .. } if !image.exists() => Some(image),
        _ => None,
    }
}

/// A CPI that outlived its director is let finish, for a while: half of its work is worse than all of it.
async fn end(child: ProcessIdentity) {
    let deadline = tokio::time::Instant::now() + LEFT_OVER;
    while child.is_running() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if child.is_running() {
        tracing::warn!(pid = child.pid, "a CPI of an earlier run does not end and is killed");
        if let Err(error) = child.signal_group(Signal::KILL) {
            tracing::warn!(pid = child.pid, %error, "it cannot be killed");
        }
        while child.is_running() && tokio::time::Instant::now() < deadline + LEFT_OVER {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
