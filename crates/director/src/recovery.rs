//! What happens at the start: every intent that an earlier run left open is settled, repeated, or kept in sight. Then the tasks go on
//! that were interrupted. The director serves meanwhile; only the tasks that an open intent belongs to wait for it, and all of
//! them hold their locks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use windlass_contract::{RequestId, explain};
use windlass_durable::file;
use windlass_operations::ledger::{Ledger, LedgerError};
use windlass_operations::settle::settle;

use crate::Director;
use crate::schedules::remove_forgotten_logs;
use crate::state_dir::remove_if_empty;
use crate::store::{ClaimedTask, StoreError, TaskState};
use crate::tasks::{Job, TaskLog, resumption};

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

/// How many intents are settled at once.
const AT_ONCE: usize = 16;

/// What an earlier run left open, as it was before anything new began.
#[derive(Debug, Default)]
pub(crate) struct LeftOpen {
    /// Intents with the tasks that they belong to. Those about one thing are settled one after the other, oldest first.
    intents: BTreeMap<String, Vec<(RequestId, Option<i64>)>>,
    /// Tasks that go on, or end, with the last of their intents. Until then they hold their locks.
    tasks: BTreeMap<i64, ClaimedTask<Job>>,
    /// Uploads and unpacked archives; some intents need theirs.
    files: Vec<PathBuf>,
}

/// Looks at what an earlier run left open, before any task begins. Tasks that wait for nothing go on, or end.
pub(crate) async fn look(director: &Director) -> Result<LeftOpen, RecoveryError> {
    // After a restore, numbers of tasks are given again, and new tasks would go on in the outputs of those that are unknown now.
    if let Err(error) = remove_forgotten_logs(director).await {
        tracing::warn!(error = explain(&error), "outputs of tasks that are not known cannot be removed");
    }
    let mut left = LeftOpen { files: director.folders.left_over().unwrap_or_default(), ..LeftOpen::default() };
    let ledger: &dyn Ledger = &director.store;
    let mut concerned = BTreeSet::new();
    for open in ledger.open_intents().await? {
        concerned.extend(open.task);
        left.intents.entry(open.change.subject()).or_default().push((open.id.clone(), open.task));
    }
    for unreadable in director.store.unreadable_intents().await? {
        tracing::error!(request = unreadable.id, why = unreadable.why, "nobody can tell what this change is");
    }
    for task in director.store.interrupted_tasks().await? {
        let id = task.record.id;
        if concerned.contains(&id) {
            director.workers.begin_settling(id);
            left.tasks.insert(id, task);
        } else {
            go_on_or_end(director, &task).await?;
        }
    }
    director.store.forget_ended_locks().await?;
    Ok(left)
}

/// Settles it, beside whatever else the director does.
pub(crate) async fn settle_left_open(director: &Director, left: LeftOpen) {
    let LeftOpen { intents, tasks, files } = left;
    let mut waiting: BTreeMap<i64, usize> = BTreeMap::new();
    for task in intents.values().flatten().filter_map(|(_, task)| *task) {
        *waiting.entry(task).or_default() += 1;
    }
    let waiting = Mutex::new(waiting);
    // Each takes up its task itself: one that was waited for here would hold up the others, with what they hold of the database.
    let settling = intents.into_values().map(|about_one_thing| async {
        for (id, task) in about_one_thing {
            settle_one(director, &id).await;
            if let Some(task) = task.filter(|task| is_last(&waiting, *task)).and_then(|task| tasks.get(&task)) {
                let id = task.record.id;
                if let Err(error) = go_on_or_end(director, task).await {
                    tracing::error!(task = id, error = explain(&error), "cannot take up a task");
                }
                director.workers.end_settling(id);
            }
        }
    });
    stream::iter(settling).buffer_unordered(AT_ONCE).collect::<()>().await;
    remove(director, files).await;
    tracing::debug!("all that an earlier run left open is settled");
}

/// Whether this was the last intent that a task waited for.
fn is_last(waiting: &Mutex<BTreeMap<i64, usize>>, task: i64) -> bool {
    let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let left = waiting.entry(task).or_default();
    *left = left.saturating_sub(1);
    *left == 0
}

async fn settle_one(director: &Director, id: &RequestId) {
    let ledger: &dyn Ledger = &director.store;
    match ledger.open_intents().await {
        Ok(open) => {
            if let Some(open) = open.into_iter().find(|open| open.id == *id) {
                settle(&director.clouds, ledger, open).await;
            }
        }
        Err(error) => tracing::error!(request = %id, error = explain(&error), "cannot read the intents"),
    }
}

/// What the task had begun in the clouds is settled.
async fn go_on_or_end(director: &Director, task: &ClaimedTask<Job>) -> Result<(), StoreError> {
    let (id, description) = (task.record.id, &task.record.description);
    let why_not = resumption::why_not(task);
    if why_not.is_none() {
        // First, because the worker begins others.
        director.store.end_events_of(id, "the director was stopped while it worked on this task").await?;
    }
    if why_not.is_none() && director.store.resume_task(id).await? {
        director.workers.wake();
        tracing::warn!(task = id, description, "this task was interrupted, and goes on");
        return Ok(());
    }
    let is_cancelled = director.store.task(id).await?.is_some_and(|task| task.state == TaskState::Cancelling);
    let (state, message) = match why_not {
        Some(why) if !is_cancelled => {
            let message = format!(
                "the director was stopped while it worked on this task; what it had begun in the clouds was settled at its \
                 start. The task does not go on by itself: {why}. Run the command again to finish."
            );
            (TaskState::Error, message)
        }
        _ => (TaskState::Cancelled, "the director was stopped while it cancelled this task".to_owned()),
    };
    if let Ok(log) = TaskLog::open(director, id) {
        log.error(100, &message);
    }
    director.store.end_events_of(id, &message).await?;
    director.store.finish_task(id, state, &message).await?;
    tracing::warn!(task = id, description, state = state.as_str(), "this task was interrupted");
    Ok(())
}

/// Removes files of an earlier run, but for tarballs of tasks that have not ended.
async fn remove(director: &Director, files: Vec<PathBuf>) {
    let needed = match director.store.unfinished_uploads::<Job>().await {
        Ok(jobs) => jobs.iter().filter_map(Job::tarball).map(Path::to_owned).collect::<Vec<_>>(),
        Err(error) => {
            tracing::error!(error = explain(&error), "files of an earlier run are not removed");
            return;
        }
    };
    for path in files {
        // Of a folder with such a tarball, the rest goes; the folder itself goes with the tarball.
        let holds_needed = needed.iter().any(|needed| needed.starts_with(&path) && *needed != path);
        let unneeded = if holds_needed { entries(&path) } else { vec![path.clone()] };
        for path in unneeded.iter().filter(|path| !needed.contains(path)) {
            warn_unless(remove_whatever(path), path);
        }
        if holds_needed {
            warn_unless(remove_if_empty(&path), &path);
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn remove_whatever(path: &Path) -> std::io::Result<()> {
    if path.is_dir() { file::remove_tree(path) } else { file::remove_file(path) }
}

fn warn_unless(removed: std::io::Result<()>, path: &Path) {
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "a file of an earlier run cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use windlass_contract::VmCid;
    use windlass_operations::ledger::{Change, Intent};

    use super::*;
    use crate::store::{Busy, Event, EventFilter, Lane, LockName, NewTask};
    use crate::tasks::Workers;
    use crate::testing::TestDirector;
    use windlass_planning::names::CpiName;

    async fn queue(director: &Director, job: Job) -> i64 {
        director.store.add_task(&NewTask { job, user: "me".into(), context_id: String::new() }).await.unwrap()
    }

    /// Five hundred deploys that waited, of two megabytes each, took gigabytes of memory at a start.
    #[tokio::test]
    async fn of_tasks_that_wait_only_uploads_are_read_at_a_start() {
        let bench = TestDirector::new().await;
        let director = &bench.director;
        queue(director, Job::DeleteOrphanDisks { disks: Vec::new() }).await;
        let tarball = director.folders.temporary().join("upload");
        queue(director, Job::UpdateRelease { tarball, fix: false, rebase: false, replaces: false }).await;
        assert_eq!(director.store.unfinished_uploads::<Job>().await.unwrap().len(), 1);
    }

    /// After a restore, numbers of tasks are given again. Who follows such a task must not see what an unknown one did.
    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_restore_no_task_goes_on_in_the_output_of_another() {
        let bench = TestDirector::new().await;
        let director = bench.director.clone();
        let known = queue(&director, Job::DeleteOrphanDisks { disks: Vec::new() }).await;
        TaskLog::open(&director, known).unwrap().debug("kept");
        TaskLog::open(&director, known + 1).unwrap().debug("of a time that was undone");
        look(&director).await.unwrap();
        let folder = |task: i64| director.folders.tasks().join(task.to_string());
        assert!(std::fs::read_to_string(folder(known).join("debug")).unwrap().contains("kept"));
        assert!(!folder(known + 1).exists());
    }

    /// One record that nobody can read must not take the director, and all deployments, with it.
    #[tokio::test(flavor = "multi_thread")]
    async fn records_that_cannot_be_read_neither_stop_a_director_nor_vanish() {
        let bench = TestDirector::new().await;
        let director = bench.director.clone();
        let store = &director.store;
        let harmless = || Job::DeleteOrphanDisks { disks: Vec::new() };
        let interrupted = queue(&director, harmless()).await;
        store.claim_task::<Job>("an earlier run", Lane::Work, &Busy::default()).await.unwrap().unwrap();
        let begun = Event { task: Some(interrupted), ..Event::new("me", "update", "deployment", Some("d")) };
        let begun = store.add_event(&begun).await.unwrap();
        let queued = queue(&director, harmless()).await;
        store.tamper("UPDATE tasks SET job = '{\"job\": \"from the future\"}'").await;
        let readable = queue(&director, harmless()).await;
        let change = Change::DeleteVm { cid: VmCid::new("vm-1").unwrap() };
        let (id, cpi) = (RequestId::random(), CpiName::Default);
        let intent =
            Intent { id, task: None, cpi, stemcell_version: None, change, child: None, elsewhere: None, doubt: None };
        store.write_intent(&intent).await.unwrap();
        store.tamper("UPDATE intents SET change_json = '{'").await;

        let left = look(&director).await.unwrap();
        settle_left_open(&director, left).await;
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

    /// An upload that was queued is not lost by a restart.
    #[tokio::test]
    async fn files_of_an_earlier_run_go_but_for_those_of_tasks_that_have_not_begun() {
        let bench = TestDirector::new().await;
        let director = &bench.director;
        let tmp = director.folders.temporary().parent().unwrap().to_owned();
        std::fs::create_dir_all(tmp.join("earlier/half")).unwrap();
        std::fs::create_dir_all(tmp.join("waiting")).unwrap();
        std::fs::write(tmp.join("waiting/upload"), "tarball").unwrap();
        std::fs::create_dir_all(tmp.join("waiting/release-1/jobs")).unwrap();
        std::fs::write(tmp.join("waiting/download-2"), "half").unwrap();
        queue(
            director,
            Job::UpdateRelease { tarball: tmp.join("waiting/upload"), fix: false, rebase: false, replaces: false },
        )
        .await;
        let new = director.folders.temporary().join("upload-new");
        let left = look(director).await.unwrap();
        std::fs::write(&new, "sent meanwhile").unwrap();
        settle_left_open(director, left).await;
        assert!(!tmp.join("earlier").exists() && new.exists());
        assert_eq!(entries(&tmp.join("waiting")), [tmp.join("waiting/upload")], "what was half unpacked goes");
        director.folders.forget_upload(&tmp.join("waiting/upload")).unwrap();
        director.folders.forget_upload(&new).unwrap();
        assert_eq!(entries(&tmp), [director.folders.temporary()], "with its last upload an earlier run's folder goes");
    }

    async fn state_of(director: &Director, task: i64) -> (TaskState, String) {
        let task = director.store.task(task).await.unwrap().unwrap();
        (task.state, task.result.unwrap_or_default())
    }

    async fn begin_again(director: &Director) -> Option<i64> {
        let claimed = director.store.claim_task::<Job>("a run", Lane::Work, &Busy::default()).await.unwrap();
        claimed.map(|claimed| claimed.record.id)
    }

    async fn restart(director: &Director) {
        let left = look(director).await.unwrap();
        settle_left_open(director, left).await;
    }

    /// A task that kills its director every time would otherwise do so for ever.
    #[tokio::test]
    async fn a_task_that_was_interrupted_goes_on_under_its_locks_twice_and_then_says_why_not() {
        let bench = TestDirector::new().await;
        let (director, store) = (&bench.director, &bench.director.store);
        let task = queue(director, Job::DeleteDeployment { deployment: "d".into(), force: false }).await;
        for _ in 0..2 {
            assert_eq!(begin_again(director).await, Some(task));
            store.take_lock(&LockName::of_deployment(&"d".into()), task, "a run").await.unwrap();
            restart(director).await;
            assert_eq!(state_of(director, task).await, (TaskState::Queued, String::new()));
            assert_eq!(store.locks().await.unwrap()[0].task, task, "nobody else comes in between");
        }
        assert_eq!(begin_again(director).await, Some(task));
        restart(director).await;
        let (state, result) = state_of(director, task).await;
        assert_eq!(state, TaskState::Error);
        assert!(result.contains("begun 3 times") && result.contains("Run the command again"), "{result}");
        assert_eq!(store.locks().await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_task_that_was_being_cancelled_stays_cancelled() {
        let bench = TestDirector::new().await;
        let director = &bench.director;
        let task = queue(director, Job::DeleteDeployment { deployment: "d".into(), force: false }).await;
        begin_again(director).await.unwrap();
        assert!(director.store.cancel_task(task).await.unwrap());
        restart(director).await;
        assert_eq!(state_of(director, task).await.0, TaskState::Cancelled);
        assert_eq!(begin_again(director).await, None);
    }

    #[tokio::test]
    async fn what_cannot_go_on_says_why() {
        let bench = TestDirector::new().await;
        let director = &bench.director;
        let upload = director.folders.temporary().join("upload");
        std::fs::write(&upload, "tarball").unwrap();
        let snapshots = Job::TakeSnapshots { deployment: "d".into(), instances: Default::default() };
        let begun = [
            (Job::UpdateRelease { tarball: upload.clone(), fix: false, rebase: false, replaces: false }, None),
            (
                Job::UpdateRelease {
                    tarball: upload.with_extension("gone"),
                    fix: false,
                    rebase: false,
                    replaces: false,
                },
                Some("is gone"),
            ),
            (snapshots, Some("some of the snapshots")),
            (
                Job::UpdateDeployment { deployment: "d".into(), manifest: String::new(), options: Default::default() },
                None,
            ),
        ];
        let mut tasks = Vec::new();
        for (job, _) in &begun {
            tasks.push(queue(director, job.clone()).await);
            begin_again(director).await.unwrap();
        }
        director.store.tamper("UPDATE tasks SET tries = 0 WHERE id = 4").await;
        restart(director).await;
        for (task, (job, why)) in tasks.iter().zip(&begun).take(3) {
            let (state, result) = state_of(director, *task).await;
            match why {
                None => assert_eq!(state, TaskState::Queued, "{job:?}"),
                Some(why) => assert!(state == TaskState::Error && result.contains(why), "{job:?}: {result}"),
            }
        }
        assert!(upload.exists());
        let (state, result) = state_of(director, tasks[3]).await;
        assert!(state == TaskState::Error && result.contains("an earlier version"), "{result}");
    }

    #[tokio::test]
    async fn a_task_holds_its_locks_until_its_intents_are_settled_and_others_do_not_wait() {
        let bench = TestDirector::new().await;
        let (director, store) = (&bench.director, &bench.director.store);
        let mut tasks = Vec::new();
        for deployment in ["a", "b"] {
            store.add_deployment(&deployment.into(), &[]).await.unwrap();
            let task = queue(director, Job::DeleteDeployment { deployment: deployment.into(), force: false }).await;
            store.claim_task::<Job>("an earlier run", Lane::Work, &Busy::default()).await.unwrap().unwrap();
            store.take_lock(&LockName::of_deployment(&deployment.into()), task, "an earlier run").await.unwrap();
            tasks.push(task);
        }
        let change = Change::DeleteVm { cid: VmCid::new("vm-1").unwrap() };
        let (id, cpi, task) = (RequestId::random(), CpiName::Default, Some(tasks[0]));
        let intent =
            Intent { id, task, cpi, stemcell_version: None, change, child: None, elsewhere: None, doubt: None };
        store.write_intent(&intent).await.unwrap();

        let left = look(director).await.unwrap();
        let locks: Vec<String> = store.locks().await.unwrap().into_iter().map(|lock| lock.name.to_string()).collect();
        assert_eq!(locks, ["deployment:a", "deployment:b"]);
        assert_eq!(begin_again(director).await, Some(tasks[1]), "where nothing is to be settled, it goes on at once");
        assert!(director.workers.is_running(tasks[0]), "its lock is not removed by hand either");
        settle_left_open(director, left).await;
        assert_eq!(store.locks().await.unwrap().len(), 2);
        assert_eq!(begin_again(director).await, Some(tasks[0]));
        assert!(!director.workers.is_running(tasks[0]));
    }
}
