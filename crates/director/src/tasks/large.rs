//! Tasks with much in memory: few of one user run at once.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Current, Plan};

use super::prepare::read_current;
use super::{TaskError, TaskLog};
use crate::limits::{LARGE, OF_A_MEMBER, OF_AN_OBJECT};
use crate::store::StoreError;
use crate::{Director, users};

/// How long a task waits before it says for what.
const SAY_WHY: Duration = Duration::from_secs(5);

/// A task's place, once it has one. It keeps it until it ends.
pub(super) type LargePlace = tokio::sync::Mutex<Option<OwnedSemaphorePermit>>;

/// What is on record of a deployment, for a task that works with it. If that is much, it waits for its place.
pub(super) async fn reload(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
) -> Result<Current, TaskError> {
    take_place_for(director, log, deployment).await?;
    read_current(director, deployment).await
}

/// Waits for the task's place if much is on record of a deployment.
pub(super) async fn take_place_for(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
) -> Result<(), TaskError> {
    if !is_of_an_admin(director, log) && director.store.memory_of_records(deployment).await? > LARGE {
        take_place(director, log).await?;
    }
    Ok(())
}

/// Whether the task may keep its plan in memory: it is small, or the task has a place or gets one at once.
pub(super) async fn may_keep(director: &Director, log: &TaskLog, plan: &Plan) -> Result<bool, TaskError> {
    Ok(!is_large(plan) || is_of_an_admin(director, log) || has_place(director, log).await?)
}

/// Whether the task may make a plan whose instances have so many bytes, which it would have in memory beside what they have now.
pub(super) async fn may_plan(director: &Director, log: &TaskLog, bytes: usize) -> Result<bool, TaskError> {
    Ok(bytes as u64 <= LARGE || is_of_an_admin(director, log) || has_place(director, log).await?)
}

/// Whether the task has its place, or gets it at once.
async fn has_place(director: &Director, log: &TaskLog) -> Result<bool, TaskError> {
    let mut place = log.large_place().lock().await;
    if place.is_none() {
        *place = director.limits.large(&holder(director, log).await?).try_acquire_owned().ok();
    }
    Ok(place.is_some())
}

/// Waits for the task's place, unless it has one.
pub(super) async fn take_place(director: &Director, log: &TaskLog) -> Result<(), TaskError> {
    if is_of_an_admin(director, log) {
        return Ok(());
    }
    let mut place = log.large_place().lock().await;
    if place.is_none() {
        let places = director.limits.large(&holder(director, log).await?);
        let mut waiting =
            std::pin::pin!(log.unless_cancelled(async { Ok::<_, TaskError>(places.acquire_owned().await.ok()) }));
        *place = match tokio::time::timeout(SAY_WHY, &mut waiting).await {
            Ok(taken) => taken?,
            Err(_) => {
                log.warning("waiting: this deployment is large, and another task with a large one runs for the same team or user");
                waiting.await?
            }
        };
    }
    Ok(())
}

/// Admins share no places: who may do everything may also use all memory.
fn is_of_an_admin(director: &Director, log: &TaskLog) -> bool {
    director.users.admins().contains(&log.user())
}

/// Under which name its places are counted.
async fn holder(director: &Director, log: &TaskLog) -> Result<String, StoreError> {
    let teams = match users::NOBODY.contains(&log.user()) {
        true => director.store.teams_of_task(log.task()).await?,
        false => Vec::new(),
    };
    // No user is called so.
    Ok(if teams.is_empty() { director.users.party(log.user()).to_owned() } else { format!(":{}", teams.join(",")) })
}

/// By what its JSON takes in memory.
fn is_large(plan: &Plan) -> bool {
    /// Takes no more than that.
    struct Room(u64);
    impl std::io::Write for Room {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let each = bytes.iter().map(|byte| match byte {
                b'{' => 1 + OF_AN_OBJECT,
                b',' => 1 + OF_A_MEMBER,
                _ => 1,
            });
            self.0 = self.0.checked_sub(each.sum()).ok_or(std::io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Room(LARGE), plan).is_err()
}

#[cfg(test)]
mod tests {
    use windlass_operations::testing::new_instance_record;

    use super::*;
    use crate::testing::TestDirector;

    async fn give_back(log: &TaskLog) {
        log.large_place().lock().await.take();
    }

    /// Six deploys of a team at their limits had more than 256 MiB of plans and records.
    #[tokio::test]
    async fn one_task_of_a_user_keeps_a_large_plan_and_small_ones_are_kept_beside_it() {
        let test = TestDirector::new().await;
        let director = &test.director;
        let open = |task, user| TaskLog::open_for(director, task, user).unwrap();
        let of_length = |length: u64| Plan { warnings: vec!["x".repeat(length as usize)], ..Plan::default() };
        let (large, small) = (of_length(LARGE), of_length(LARGE / 2));
        let (first, second) = (open(1, "shop-admin"), open(2, "shop-admin"));
        let may_keep = async |log: &TaskLog, plan: &Plan| super::may_keep(director, log, plan).await.unwrap();
        assert!(may_keep(&first, &large).await && may_keep(&first, &large).await, "it has its place");
        assert!(may_keep(&second, &small).await);
        assert!(!may_keep(&second, &large).await);
        assert!(may_keep(&open(3, "bank-admin"), &large).await, "others have their own");
        assert!(may_keep(&open(4, "admin"), &large).await && may_keep(&open(5, "admin"), &large).await);
        give_back(&first).await;
        assert!(may_keep(&second, &large).await);
    }

    #[tokio::test]
    async fn who_reads_very_large_records_waits_for_their_other_task_that_does() {
        let test = TestDirector::new().await;
        let (director, deployment) = (&test.director, "d".into());
        let store = &director.store;
        store.add_deployment(&deployment, &[]).await.unwrap();
        store.begin_instances(&[new_instance_record("d", "db", "1f")], &[]).await.unwrap();
        let patience = Duration::from_secs(1);
        let reads = async |log: &TaskLog| match tokio::time::timeout(patience, reload(director, log, &deployment)).await
        {
            Ok(read) => read.unwrap().instances.len() == 1,
            Err(_) => false,
        };
        let open = |task, user| TaskLog::open_for(director, task, user).unwrap();
        let (first, second) = (open(1, "shop-admin"), open(2, "shop-admin"));
        assert!(reads(&first).await && reads(&second).await);
        store
            .tamper(
                "INSERT INTO disks (cid, instance, name, cpi, size, cloud_properties, active, mounted, created_at)
                 VALUES ('disk', '1f', '', '', 1, '{\"a\":[{}' || REPLACE(printf('%040000d', 0), '0', ',{\"b\":0}') || ']}', 1, 0, 0)",
            )
            .await;
        assert!(reads(&first).await && reads(&first).await && !reads(&second).await);
        assert!(reads(&open(3, "admin")).await && reads(&open(4, users::RESURRECTOR)).await);
        give_back(&first).await;
        assert!(reads(&second).await);
        let waits = reload(director, &first, &deployment);
        first.cancel();
        assert!(waits.await.is_err_and(|error| error.is_cancellation()));
    }
}
