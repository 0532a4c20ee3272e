//! What must not be lost is written again until it is there.

use std::time::Duration;

use windlass_contract::explain;

use super::StoreError;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Writes, and as long as the disk is full or the database is away writes again. The caller waits until the operator has
/// made room; going on without the write would forget what a cloud did, or leave a deployment locked.
pub(super) async fn insist<W>(what: &'static str, write: impl Fn() -> W) -> Result<(), StoreError>
where
    W: Future<Output = Result<(), StoreError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match write().await {
            Err(error) if may_pass(&error) => {
                tracing::error!(what, error = explain(&error), "this cannot be written; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            end => return end,
        }
    }
}

fn may_pass(error: &StoreError) -> bool {
    error.is_full() || error.is_away()
}

#[cfg(test)]
mod tests {
    use windlass_database::PrivatePostgres;

    use crate::store::{Busy, Lane, LockName, NewTask, Store, TaskState};
    use crate::tasks::Job;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_task_that_ends_while_postgres_is_away_has_ended_once_it_is_back() {
        let mut server = PrivatePostgres::start().unwrap();
        let store = Store::open(&server.url()).await.unwrap();
        let new = NewTask { job: Job::DeleteOrphanedVms, user: "me".into(), context_id: String::new() };
        let task = store.add_task(&new).await.unwrap();
        store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap();
        store.take_lock(&LockName::of_deployment(&"d".into()), task, "me").await.unwrap();
        server.stop().unwrap();
        let ending = tokio::spawn({
            let store = store.clone();
            async move { store.finish_task(task, TaskState::Done, "well").await }
        });
        tokio::time::sleep(super::FIRST_PAUSE * 3).await;
        assert!(!ending.is_finished(), "what cannot be written is not given up");
        server.start_again().unwrap();
        ending.await.unwrap().unwrap();
        assert_eq!(store.task(task).await.unwrap().unwrap().state, TaskState::Done);
        // PostgreSQL takes no zero byte: a task that said one never ended, and others waited for its locks.
        let task = store.add_task(&new).await.unwrap();
        store.claim_task::<Job>("me", Lane::Work, &Busy::default()).await.unwrap().unwrap();
        store.take_lock(&LockName::of_deployment(&"d".into()), task, "me").await.unwrap();
        store.finish_task(task, TaskState::Error, "a\0b").await.unwrap();
        let ended = store.task(task).await.unwrap().unwrap();
        assert_eq!((ended.state, ended.result.as_deref()), (TaskState::Error, Some("a\u{fffd}b")));
        assert_eq!(store.locks().await.unwrap(), []);
        store.try_writing().await.unwrap();
        store.close().await;
    }
}
