//! Who may have how many tasks in the queue, and which task serves two who ask the same.

use windlass_database::sqlx::{self, Row};

use super::{NewTask, Store, StoreError, StoredJob, to_json};

/// The type of tasks that only look. They have workers of their own, so that work never waits for them.
pub(crate) const LOOK_UP: &str = "vms";

/// Who has enough tasks under way.
#[derive(Debug, Default)]
pub(crate) struct Busy<'b> {
    pub(crate) users: Vec<&'b str>,
    /// Of their deployments no more tasks are begun, unless an admin asked for them.
    pub(crate) teams: Vec<&'b str>,
    pub(crate) admins: Vec<&'b str>,
}

/// Which tasks a worker claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// What changes something.
    Work,
    /// What only looks.
    LookUps,
}

impl Store {
    /// How many tasks of a user wait or run.
    pub(crate) async fn unfinished_tasks_of(&self, user: &str) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar(
            "SELECT COUNT(*) FROM tasks WHERE state IN ('queued', 'processing', 'cancelling') AND username = $1",
        );
        Ok(count.bind(user).fetch_one(self.database.pool()).await?)
    }

    /// The task with which the same user asked for the same, if nobody works on it yet: its answer is as fresh as another's.
    pub(crate) async fn queued_twin<J: StoredJob>(&self, task: &NewTask<J>) -> Result<Option<i64>, StoreError> {
        let row = sqlx::query(
            "SELECT id FROM tasks WHERE state = 'queued' AND type = $1 AND username = $2 AND job = $3 ORDER BY id LIMIT 1",
        )
        .bind(task.job.kind())
        .bind(task.user.as_str())
        .bind(to_json("tasks.job", &task.job)?)
        .fetch_optional(self.database.pool())
        .await?;
        Ok(row.map(|row| row.try_get("id")).transpose()?)
    }
}
