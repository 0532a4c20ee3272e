//! What is done from time to time: VMs and disks that belong to nobody are deleted, snapshots are taken, the logs of old tasks
//! go. What touches a cloud is a task like any other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use windlass_contract::cpi::methods::{HasDisk, HasVm};
use windlass_contract::explain;
use windlass_durable::file;
use windlass_operations::clock;
use windlass_operations::ledger::{Change, Fact, Ledger};
use windlass_planning::plan::Selection;

use crate::Director;
use crate::store::{NewTask, StoreError, StoredJob};
use crate::tasks::{Job, outputs};
use crate::users::DIRECTOR;

/// How often orphaned disks are looked at, at most.
const DISKS: Duration = Duration::from_secs(30 * 60);
/// How often records are thinned out.
const RECORDS: Duration = Duration::from_secs(60 * 60);
/// How many versions of each config are kept, beside those in use.
const CONFIGS: i64 = 100;
/// When the last scheduled snapshots were taken: a restart neither forgets nor repeats them.
const SNAPSHOTS_TAKEN_AT: &str = "snapshots_taken_at";

/// Something that is due again after a while.
#[derive(Debug)]
struct Turn {
    every: Duration,
    next: Instant,
}

impl Turn {
    fn every(every: Duration) -> Self {
        Self { every, next: Instant::now() + every }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.every;
        }
        is_due
    }
}

/// Does what is due until `stop` resolves.
pub(crate) async fn run(director: Arc<Director>, stop: impl Future<Output = ()>) {
    let schedules = &director.settings.schedules;
    let mut vms = Turn::every(schedules.delete_orphaned_vms_every);
    let mut disks = schedules.delete_orphan_disks_after.map(|after| Turn::every(after.min(DISKS)));
    let mut snapshots = schedules.snapshot_every.map(|every| Turn::every((every / 10).max(Duration::from_secs(1))));
    let mut records = Turn::every(RECORDS);
    let turns = [Some(&vms), disks.as_ref(), snapshots.as_ref(), Some(&records)];
    let shortest = turns.into_iter().flatten().map(|turn| turn.every).min().unwrap_or(RECORDS);
    tokio::pin!(stop);
    // One that is restarted often would never come to it otherwise.
    report("old records", thin_out(&director).await);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = tokio::time::sleep(shortest) => {}
        }
        let now = Instant::now();
        if vms.is_due(now) {
            report("orphaned VMs", delete_orphaned_vms(&director).await);
        }
        if disks.as_mut().is_some_and(|turn| turn.is_due(now)) {
            report("orphaned disks", delete_orphan_disks(&director).await);
        }
        if snapshots.as_mut().is_some_and(|turn| turn.is_due(now)) {
            report("snapshots", take_snapshots(&director).await);
        }
        if records.is_due(now) {
            report("old records", thin_out(&director).await);
            settle_doubts(&director).await;
        }
    }
}

fn report(what: &str, result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::error!(what, error = explain(&error), "what is scheduled cannot be done");
    }
}

/// Unless it waits or runs already.
pub(crate) async fn queue(director: &Director, job: Job) -> Result<(), StoreError> {
    if !director.store.has_unfinished_task(job.kind(), job.deployment()).await? {
        director.store.add_task(&NewTask { job, user: DIRECTOR.to_owned(), context_id: String::new() }).await?;
        director.workers.wake();
    }
    Ok(())
}

async fn delete_orphaned_vms(director: &Director) -> Result<(), StoreError> {
    match director.store.orphaned_vms().await?.is_empty() {
        true => Ok(()),
        false => queue(director, Job::DeleteOrphanedVms).await,
    }
}

async fn delete_orphan_disks(director: &Director) -> Result<(), StoreError> {
    let Some(after) = director.settings.schedules.delete_orphan_disks_after else { return Ok(()) };
    let newest = clock::now() - i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
    let disks = director.store.orphan_disks().await?;
    let disks: Vec<_> = disks.into_iter().filter(|disk| disk.orphaned_at <= newest).map(|disk| disk.cid).collect();
    match disks.is_empty() {
        true => Ok(()),
        false => queue(director, Job::DeleteOrphanDisks { disks }).await,
    }
}

async fn take_snapshots(director: &Director) -> Result<(), StoreError> {
    let (Some(every), true) = (director.settings.schedules.snapshot_every, director.settings.takes_snapshots()) else {
        return Ok(());
    };
    let now = clock::now();
    let last = director.store.attribute(SNAPSHOTS_TAKEN_AT, || now.to_string()).await?;
    if now - last.parse().unwrap_or(now) < i64::try_from(every.as_secs()).unwrap_or(i64::MAX) {
        return Ok(());
    }
    director.store.set_attribute(SNAPSHOTS_TAKEN_AT, &now.to_string()).await?;
    for deployment in director.store.deployment_names().await? {
        if !director.store.disks_in_outline(&deployment).await?.is_empty() {
            queue(director, Job::TakeSnapshots { deployment, instances: Selection::default() }).await?;
        }
    }
    Ok(())
}

/// Keeps the newest tasks of each type, versions of each config, and events.
pub(crate) async fn thin_out(director: &Director) -> Result<(), StoreError> {
    let keep = i64::try_from(director.settings.schedules.keep_tasks).unwrap_or(i64::MAX);
    director.store.forget_tasks(keep).await?;
    if let Err(error) = remove_forgotten_logs(director).await {
        tracing::warn!(error = explain(&error), "logs of old tasks cannot be removed");
    }
    outputs::thin_out(director).await?;
    director.store.forget_configs(CONFIGS).await?;
    director.store.forget_old_events().await
}

/// Removes the folders of tasks that the store does not know. Each was made after its task was stored, so the task was
/// forgotten: just now, by a director that was killed before it came to the folder, or because an earlier database was restored.
pub(crate) async fn remove_forgotten_logs(director: &Director) -> Result<(), TaskLogsError> {
    let tasks = director.folders.tasks();
    file::empty_trash(&tasks)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&tasks)? {
        let entry = entry?;
        found.extend(
            entry.file_name().to_str().and_then(|name| name.parse().ok()).map(|task: i64| (task, entry.path())),
        );
    }
    // Read after the folders: a task that came in between is not taken for a forgotten one.
    let known = director.store.task_ids().await?;
    for (_, folder) in found.iter().filter(|(task, _)| !known.contains(task)) {
        file::remove_tree(folder)?;
    }
    Ok(())
}

/// why logs of tasks cannot be removed
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskLogsError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Folder(#[from] std::io::Error),
}

/// What was to be deleted, and may or may not have been, is no leak once the cloud says that it is gone.
async fn settle_doubts(director: &Director) {
    let ledger: &dyn Ledger = &director.store;
    for doubtful in ledger.doubtful_intents().await.unwrap_or_default() {
        let Ok(cpi) = director.clouds.cpi(&doubtful.cpi) else { continue };
        let version = doubtful.stemcell_version;
        let is_there = match &doubtful.change {
            Change::DeleteVm { cid } => cpi.call(&HasVm { vm_cid: cid.clone() }, version).await,
            Change::DeleteDisk { cid } => cpi.call(&HasDisk { disk_cid: cid.clone() }, version).await,
            _ => continue,
        };
        if let Ok(false) = is_there
            && let Err(error) = doubtful.settle(&Fact::Nothing).await
        {
            tracing::error!(error = explain(&error), "a doubt cannot be settled");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewConfig;
    use crate::testing::TestDirector;

    async fn add(director: &Director, job: Job) -> i64 {
        let id = director.store.add_task(&NewTask { job, user: "u".into(), context_id: String::new() }).await.unwrap();
        crate::tasks::TaskLog::open(director, id).unwrap().debug("something");
        id
    }

    /// A director that runs for years does not fill its disk with what nobody reads.
    #[tokio::test]
    async fn old_tasks_go_with_their_logs_and_new_and_unfinished_ones_stay() {
        let mut bench = TestDirector::new().await;
        Arc::get_mut(&mut bench.director).unwrap().settings.schedules.keep_tasks = 2;
        let director = &bench.director;
        let scan = || Job::Scan { deployment: "d".into() };
        let waiting = add(director, scan()).await;
        let mut finished = Vec::new();
        for _ in 0..4 {
            let id = add(director, scan()).await;
            director.store.finish_task(id, crate::store::TaskState::Done, "").await.unwrap();
            finished.push(id);
        }
        let other = add(director, Job::DeleteOrphanedVms).await;
        director.store.finish_task(other, crate::store::TaskState::Done, "").await.unwrap();
        let half_forgotten = add(director, scan()).await;
        director.store.tamper("DELETE FROM tasks WHERE id = (SELECT MAX(id) FROM tasks)").await;
        thin_out(director).await.unwrap();
        assert!(!director.folders.tasks().join(half_forgotten.to_string()).exists(), "of a director that was killed");
        for (id, stays) in
            [(waiting, true), (finished[0], false), (finished[1], false), (finished[3], true), (other, true)]
        {
            assert_eq!(director.store.task(id).await.unwrap().is_some(), stays, "task {id}");
            assert_eq!(director.folders.tasks().join(id.to_string()).exists(), stays, "logs of task {id}");
        }
    }

    /// A deployment with many tasks would push out the tasks of others, and people would not find out what happened to theirs.
    #[tokio::test]
    async fn the_newest_tasks_of_a_deployment_stay_however_many_others_have() {
        let mut bench = TestDirector::new().await;
        Arc::get_mut(&mut bench.director).unwrap().settings.schedules.keep_tasks = 2;
        let director = &bench.director;
        director.store.add_deployment(&"quiet".into(), &[]).await.unwrap();
        let mut tasks = Vec::new();
        for deployment in ["quiet", "quiet", "quiet", "gone", "busy", "busy", "busy"] {
            let id = add(director, Job::Scan { deployment: deployment.into() }).await;
            director.store.finish_task(id, crate::store::TaskState::Done, "").await.unwrap();
            tasks.push(id);
        }
        thin_out(director).await.unwrap();
        let kept = director.store.task_ids().await.unwrap();
        let kept: Vec<bool> = tasks.iter().map(|id| kept.contains(id)).collect();
        assert_eq!(kept, [false, true, true, false, false, true, true]);
    }

    /// Who made and deleted deployments under other names kept the task, and its folder, of each deletion for good.
    #[tokio::test]
    async fn plans_of_deployments_that_are_gone_keep_no_tasks_and_results_are_short() {
        let mut bench = TestDirector::new().await;
        Arc::get_mut(&mut bench.director).unwrap().settings.schedules.keep_tasks = 1;
        let director = &bench.director;
        director.store.add_deployment(&"there".into(), &[]).await.unwrap();
        for deployment in ["there", "gone", "gone-too", "another"] {
            let id = add(director, Job::Scan { deployment: deployment.into() }).await;
            director.store.finish_task(id, crate::store::TaskState::Error, &"x".repeat(64 << 10)).await.unwrap();
            assert!(director.store.task(id).await.unwrap().unwrap().result.unwrap().len() < 10_000);
        }
        director
            .store
            .tamper("INSERT INTO plans (task, deployment, plan) SELECT id, deployment, '{}' FROM tasks")
            .await;
        thin_out(director).await.unwrap();
        let mut kept: Vec<i64> = director.store.task_ids().await.unwrap().into_iter().collect();
        kept.sort_unstable();
        assert_eq!(kept, [1, 4]);
    }

    #[tokio::test]
    async fn old_versions_of_configs_go_and_those_in_use_stay() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        for number in 0..130 {
            store.add_config(NewConfig::new("cloud", "default", &format!("a: {number}")), |_| true).await.unwrap();
        }
        store.add_config(NewConfig::new("cloud", "other", "a: 1"), |_| true).await.unwrap();
        store.add_deployment(&"d".into(), &[]).await.unwrap();
        store.finish_deployment(&"d".into(), "name: d", &[3], None).await.unwrap();
        thin_out(&bench.director).await.unwrap();
        let kept = store.configs(Some("cloud"), Some("default"), 1000).await.unwrap();
        let kept: Vec<i64> = kept.iter().map(|config| config.id).rev().collect();
        assert_eq!(kept[0], 3, "a deployment uses it");
        assert_eq!(kept[1..], (31..=130).collect::<Vec<i64>>());
        assert!(store.current_config("cloud", "other").await.unwrap().is_some());
    }

    /// One that is restarted often would never come to it between.
    #[tokio::test]
    async fn a_director_that_starts_forgets_old_records() {
        let bench = TestDirector::new().await;
        let store = &bench.director.store;
        for number in 0..130 {
            store.add_config(NewConfig::new("cloud", "default", &format!("a: {number}")), |_| true).await.unwrap();
        }
        run(bench.director.clone(), std::future::ready(())).await;
        assert_eq!(store.configs(Some("cloud"), Some("default"), 1000).await.unwrap().len(), 100);
    }

    #[tokio::test]
    async fn what_is_queued_waits_for_the_one_before() {
        let bench = TestDirector::new().await;
        for _ in 0..2 {
            queue(&bench.director, Job::DeleteOrphanedVms).await.unwrap();
        }
        assert_eq!(bench.director.store.counts().await.unwrap().tasks["queued"], 1);
    }

    #[test]
    fn a_turn_is_due_once_in_each_interval() {
        let mut turn = Turn::every(Duration::from_secs(10));
        let start = turn.next;
        assert!(!turn.is_due(start - Duration::from_secs(1)));
        assert!(turn.is_due(start) && !turn.is_due(start + Duration::from_secs(9)));
        assert!(turn.is_due(start + Duration::from_secs(10)));
    }
}
