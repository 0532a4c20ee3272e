//! What happens at the start: every intent that an earlier run left open is settled, repeated, or kept in sight.

use windlass_operations::ledger::LedgerError;
use windlass_operations::settle::settle_intents;

use crate::Director;
use crate::store::{StoreError, TaskState};
use crate::tasks::TaskLog;

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
pub(crate) async fn recover(director: &Director) -> Result<(), RecoveryError> {
    settle_intents(&director.clouds, &director.store).await?;
    for unreadable in director.store.unreadable_intents().await? {
        tracing::error!(request = unreadable.id, why = unreadable.why, "nobody can tell what this change is");
    }
    for task in director.store.interrupted_tasks().await? {
        let message = "the director was stopped while it worked on this task; what it had begun in the clouds was \
                       settled at its start. Run the command again to finish.";
        if let Ok(log) = TaskLog::open(&director.folders.tasks(), task.id) {
            log.error(100, message);
        }
        director.store.end_events_of(task.id, message).await?;
        director.store.finish_task(task.id, TaskState::Error, message).await?;
        tracing::warn!(task = task.id, description = task.description, "this task was interrupted");
    }
    Ok(director.store.forget_ended_locks().await?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use windlass_contract::{RequestId, VmCid};
    use windlass_operations::ledger::{Change, Intent, Ledger};

    use super::*;
    use crate::store::{Event, EventFilter, Lane, NewTask};
    use crate::tasks::{Job, Workers};
    use crate::testing::TestDirector;

    async fn queue(director: &Director, job: Job) -> i64 {
        director.store.add_task(&NewTask { job, user: "me".into(), context_id: String::new() }).await.unwrap()
    }

    /// One record that nobody can read must not take the director, and all deployments, with it.
    #[tokio::test(flavor = "multi_thread")]
    async fn records_that_cannot_be_read_neither_stop_a_director_nor_vanish() {
        let bench = TestDirector::new().await;
        let director = bench.director.clone();
        let store = &director.store;
        let harmless = || Job::DeleteOrphanDisks { disks: Vec::new() };
        let interrupted = queue(&director, harmless()).await;
        store.claim_task::<Job>("an earlier run", Lane::Work).await.unwrap().unwrap();
        let begun = Event { task: Some(interrupted), ..Event::new("me", "update", "deployment", Some("d")) };
        let begun = store.add_event(&begun).await.unwrap();
        let queued = queue(&director, harmless()).await;
        store.tamper("UPDATE tasks SET job = '{\"job\": \"from the future\"}'").await;
        let readable = queue(&director, harmless()).await;
        let change = Change::DeleteVm { cid: VmCid::new("vm-1").unwrap() };
        let (id, cpi) = (RequestId::random(), String::new());
        let intent = Intent { id, task: None, cpi, stemcell_version: None, change, child: None, doubt: None };
        store.write_intent(&intent).await.unwrap();
        store.tamper("UPDATE intents SET change_json = '{'").await;

        recover(&director).await.unwrap();
        let unreadable = store.unreadable_intents().await.unwrap();
        assert_eq!(unreadable.iter().map(|intent| intent.id.as_str()).collect::<Vec<_>>(), [intent.id.as_str()]);
        let task = store.task(interrupted).await.unwrap().unwrap();
        assert_eq!(task.state, TaskState::Error);
        assert!(task.result.unwrap().contains("Run the command again"));
        let events = store.events(&EventFilter { task: Some(interrupted), ..Default::default() }).await.unwrap();
        assert_eq!(events[0].parent, Some(begun), "what was begun has an end");
        assert!(events[0].event.error.as_ref().unwrap().contains("was stopped"));

        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let working = tokio::spawn(Workers::run(Arc::clone(&director), async {
            let _ = stopped.await;
        }));
        let deadline = Instant::now() + Duration::from_secs(30);
        while store.task(readable).await.unwrap().unwrap().state != TaskState::Done {
            assert!(Instant::now() < deadline, "the task after the damaged one is not carried out");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.send(()).unwrap();
        working.await.unwrap();
        let task = store.task(queued).await.unwrap().unwrap();
        assert_eq!(task.state, TaskState::Error);
        let result = task.result.unwrap();
        assert!(result.contains("tasks.job") && result.contains("run the command again"), "{result}");
    }
}
