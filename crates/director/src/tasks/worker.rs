//! Workers claim tasks and carry them out.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use windlass_contract::{explain, shortened};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::Selection;

use super::log::LONGEST_MESSAGE;
use super::outputs::Unseen;
use super::resumption::{self, TRIES};
use super::update_release::ReleaseUpload;
use super::{Job, OutputKind, TaskError, TaskLog, must_be_of_the_same_teams, update_stemcell};
use crate::Director;
use crate::schedules;
use crate::store::{Busy, ClaimedTask, Event, Lane, StoreError, TaskRecord, TaskState};
use crate::users::{self, Users};
use crate::webhook::Ending;

/// How often a worker looks for tasks, should it not have been told of one.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How many tasks that only look are carried out at once, beside those that work.
const LOOK_UPS: usize = 4;
/// How often locks are renewed.
const RENEW: Duration = Duration::from_secs(20);

/// What the workers still had to finish when they were stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    NoTask,
    /// Tasks that somebody may follow.
    SomeTasks,
}

/// The places of a lane, and who has them. A quarter of them, two at most, is never one user's alone, nor one team's: tasks may wait for what
/// their users name, such as a server that sends a release slowly, and for their VMs.
#[derive(Debug)]
struct Places {
    lane: Lane,
    all: usize,
    of_a_user: usize,
    taken: usize,
    of_users: BTreeMap<String, usize>,
    of_teams: BTreeMap<String, usize>,
}

/// Who has a place: a user, and the teams whose deployment is worked on, unless an admin asked for that. Where the director itself works for
/// teams, such as in making their VMs again, only they count: no team may keep it from working for others.
#[derive(Debug, Clone)]
struct Holder {
    /// Whose places are counted; of the director's own tasks only those that are for no team.
    user: Option<String>,
    teams: Vec<String>,
}

impl Holder {
    async fn of(director: &Director, task: &TaskRecord) -> Self {
        let user = task.user.as_str();
        if director.users.admins().contains(&user) {
            return Self { user: Some(user.to_owned()), teams: Vec::new() };
        }
        let teams = director.store.teams_of_task(task.id).await.unwrap_or_else(|error| {
            tracing::warn!(error = explain(&error), task = task.id, "it is not known which team a task is of");
            Vec::new()
        });
        let is_for_teams = users::NOBODY.contains(&user) && !teams.is_empty();
        Self { user: (!is_for_teams).then(|| user.to_owned()), teams }
    }
}

impl Places {
    fn new(lane: Lane, all: usize) -> Self {
        Self {
            lane,
            all,
            of_a_user: all - (all / 4).min(2),
            taken: 0,
            of_users: BTreeMap::new(),
            of_teams: BTreeMap::new(),
        }
    }

    fn is_free(&self) -> bool {
        self.taken < self.all
    }

    /// Users and teams that have as many places as one may have.
    fn busy<'p>(&'p self, users: &'p Users) -> Busy<'p> {
        let full = |(name, taken): (&'p String, &usize)| (*taken >= self.of_a_user).then_some(name.as_str());
        let (of_users, of_teams) = (self.of_users.iter().filter_map(full), self.of_teams.iter().filter_map(full));
        Busy { users: of_users.collect(), teams: of_teams.collect(), admins: users.admins() }
    }

    fn take(&mut self, holder: &Holder) {
        self.taken += 1;
        if let Some(user) = &holder.user {
            *self.of_users.entry(user.clone()).or_default() += 1;
        }
        for team in &holder.teams {
            *self.of_teams.entry(team.clone()).or_default() += 1;
        }
    }

    fn free(&mut self, holder: &Holder) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(user) = &holder.user {
            self.of_users.entry(user.clone()).and_modify(|taken| *taken = taken.saturating_sub(1));
        }
        for team in &holder.teams {
            self.of_teams.entry(team.clone()).and_modify(|taken| *taken = taken.saturating_sub(1));
        }
        self.of_users.retain(|_, taken| *taken > 0);
        self.of_teams.retain(|_, taken| *taken > 0);
    }
}

/// The workers of a director.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    queued: Notify,
    running: Mutex<BTreeMap<i64, TaskLog>>,
    /// Tasks of an earlier run that wait for the last of their intents.
    settling: Mutex<BTreeSet<i64>>,
}

impl Workers {
    /// A task was queued.
    pub(crate) fn wake(&self) {
        self.queued.notify_one();
    }

    /// Asks the worker of a task to stop at its next step.
    pub(crate) fn cancel(&self, task: i64) {
        if let Some(log) = self.running().get(&task) {
            log.cancel();
        }
    }

    /// Asks the workers of all tasks to stop at their next step.
    pub(crate) fn cancel_all(&self) {
        self.running().values().for_each(TaskLog::cancel);
    }

    /// Whether somebody works on a task, or on what is left of it.
    pub(crate) fn is_running(&self, task: i64) -> bool {
        self.running().contains_key(&task) || self.is_settling(task)
    }

    /// What an earlier run began for a task is being settled.
    pub(crate) fn begin_settling(&self, task: i64) {
        self.settling().insert(task);
    }

    /// What an earlier run began for a task is settled.
    pub(crate) fn end_settling(&self, task: i64) {
        self.settling().remove(&task);
    }

    /// Whether what an earlier run began for a task is being settled.
    pub(crate) fn is_settling(&self, task: i64) -> bool {
        self.settling().contains(&task)
    }

    fn settling(&self) -> std::sync::MutexGuard<'_, BTreeSet<i64>> {
        self.settling.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn pretend_to_run(&self, director: &Director, task: i64) {
        self.running().insert(task, TaskLog::open(director, task).unwrap());
    }

    #[cfg(test)]
    pub(crate) fn pretend_to_end(&self, task: i64) {
        self.running().remove(&task);
    }

    fn running(&self) -> std::sync::MutexGuard<'_, BTreeMap<i64, TaskLog>> {
        self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Works until `stop` resolves, then lets running tasks finish.
    pub(crate) async fn run(director: Arc<Director>, stop: impl Future<Output = ()>) -> Finished {
        let mut tasks = JoinSet::new();
        let mut lanes = [Places::new(Lane::Work, director.settings.workers), Places::new(Lane::LookUps, LOOK_UPS)];
        let mut renewal = tokio::time::interval(RENEW);
        let mut unseen = Unseen::default();
        tokio::pin!(stop);
        loop {
            for places in &mut lanes {
                while places.is_free() {
                    let busy = places.busy(&director.users);
                    let claimed = director.store.claim_task(&director.uuid, places.lane, &busy).await;
                    match claimed {
                        Ok(Some(task)) => {
                            let holder = Holder::of(&director, &task.record).await;
                            places.take(&holder);
                            let (director, lane) = (director.clone(), places.lane);
                            tasks.spawn(async move {
                                let written = work(director, task).await;
                                (lane, holder, written)
                            });
                        }
                        Ok(None) => break,
                        Err(error) => {
                            tracing::error!(error = explain(&error), "cannot look for tasks");
                            break;
                        }
                    }
                }
            }
            tokio::select! {
                () = &mut stop => break,
                () = director.workers.queued.notified() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                _ = renewal.tick() => renew(&director).await,
                Some(ended) = tasks.join_next() => {
                    // Tasks do not panic: what they carry out is caught.
                    if let Ok((lane, holder, written)) = ended {
                        lanes.iter_mut().filter(|places| places.lane == lane).for_each(|places| places.free(&holder));
                        if unseen.add(written) {
                            tokio::spawn(thin_out(director.clone()));
                        }
                    }
                }
            }
        }
        let finished = if tasks.is_empty() { Finished::NoTask } else { Finished::SomeTasks };
        while !tasks.is_empty() {
            tokio::select! {
                _ = renewal.tick() => renew(&director).await,
                _ = tasks.join_next() => {}
            }
        }
        finished
    }
}

async fn renew(director: &Director) {
    if let Err(error) = director.store.renew_locks(&director.uuid).await {
        tracing::error!(error = explain(&error), "cannot renew locks");
    }
}

/// What tasks leave is looked at every hour; in less time very many may leave more than the disk has.
async fn thin_out(director: Arc<Director>) {
    if let Err(error) = schedules::thin_out(&director).await {
        tracing::warn!(error = explain(&error), "old tasks cannot be forgotten");
    }
}

/// Says how many bytes the task wrote.
async fn work(director: Arc<Director>, ClaimedTask { record: task, job }: ClaimedTask<Job>) -> u64 {
    let id = task.id;
    let log = match TaskLog::open_for(&director, id, &task.user) {
        Ok(log) => log,
        Err(error) => {
            finish(&director, id, TaskState::Error, &format!("cannot write the task's output: {error}")).await;
            return 0;
        }
    };
    director.workers.running().insert(id, log.clone());
    tracing::info!(task = id, description = task.description, tries = task.tries, "task started");
    if task.tries > 1 {
        let tries = task.tries;
        log.goes_on(&format!(
            "the director was stopped while it worked on this task; it goes on (try {tries} of {TRIES})"
        ));
    }
    let ending = job.as_ref().ok().and_then(Ending::of);
    let upload = job.as_ref().ok().and_then(Job::tarball).map(Path::to_owned);
    let (event, result) = match job {
        Ok(job) => {
            let event = begin_event(&director, &task, &job).await;
            let result = unless_it_panics(carry_out(&director, &task, &job, &log)).await;
            let result = result.or_else(|error| match resumption::was_done(&task, &job, &error) {
                true => Ok(task.description.clone()),
                false => Err(error),
            });
            (event, result)
        }
        Err(source) => (None, Err(TaskError::Unreadable(source))),
    };
    director.workers.running().remove(&id);
    log.large_place().lock().await.take();
    match result {
        Ok(result) => {
            if let Some(event) = event {
                noted(director.store.end_event(event, None).await);
            }
            finish(&director, id, TaskState::Done, &result).await;
            if let Some(ending) = ending {
                ending.tell(&director, &task, TaskState::Done, &result).await;
            }
        }
        Err(error) => {
            let message = shortened(explain(&error), LONGEST_MESSAGE);
            // Also of instances that were being worked on when it failed.
            noted(director.store.end_events_of(id, &message).await);
            log.debug(&message);
            let state = if error.is_cancellation() { TaskState::Cancelled } else { TaskState::Error };
            let message = told(&error, message);
            log.error(error.code(), &message);
            finish(&director, id, state, &message).await;
            if let Some(ending) = ending {
                ending.tell(&director, &task, state, &message).await;
            }
        }
    }
    // Not before its end is on record: without it the task could not go on after a kill.
    if let Some(upload) = upload.filter(|_| !log.is_of_another_director())
        && let Err(error) = director.folders.forget_upload(&upload)
    {
        tracing::warn!(path = %upload.display(), %error, "an upload cannot be removed");
    }
    log.written()
}

/// How many instances were at work when a task was cancelled is for developers; the user wants to know that it ended.
fn told(error: &TaskError, message: String) -> String {
    match error {
        TaskError::Several(_) if error.is_cancellation() => TaskError::Cancelled.to_string(),
        _ => message,
    }
}

/// An event that cannot be written is no reason to leave the work undone.
async fn begin_event(director: &Director, task: &TaskRecord, job: &Job) -> Option<i64> {
    let deployment = match task.deployment.as_deref() {
        Some(name) => director.store.deployment(&name.into()).await.ok().flatten(),
        None => None,
    };
    let is_new = deployment.is_none_or(|deployment| deployment.manifest.is_none());
    let (action, object_type, name) = job.event(is_new)?;
    let event = Event {
        task: Some(task.id),
        deployment: task.deployment.clone(),
        ..Event::new(&task.user, action, object_type, Some(name))
    };
    noted(director.store.add_event(&event).await)
}

fn noted<T>(written: Result<T, StoreError>) -> Option<T> {
    written.inspect_err(|error| tracing::error!(error = explain(error), "cannot write an event")).ok()
}

/// A panic in one task ends that task and its locks, and nothing else.
async fn unless_it_panics<T>(work: impl Future<Output = Result<T, TaskError>>) -> Result<T, TaskError> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
            Err(TaskError::Panicked(said.to_owned()))
        }
    }
}

async fn finish(director: &Director, task: i64, state: TaskState, result: &str) {
    tracing::info!(task, state = state.as_str(), result, "task ended");
    if let Err(error) = director.store.finish_task(task, state, result).await {
        tracing::error!(task, error = explain(&error), "cannot record the end of a task");
    }
    director.dns.wake();
}

async fn carry_out(director: &Arc<Director>, task: &TaskRecord, job: &Job, log: &TaskLog) -> Result<String, TaskError> {
    director.refresh_clouds().await?;
    if let Some(deployment) = task.deployment.as_deref().map(DeploymentName::from) {
        must_be_of_the_same_teams(director, task.id, &deployment).await?;
    }
    match job {
        Job::UpdateStemcell { tarball, fix, replaces } => {
            let how = update_stemcell::StemcellUpload { fix: *fix, replaces: *replaces };
            update_stemcell::run(director, log, tarball, how).await
        }
        Job::DownloadStemcell { location, sha1, fix, replaces } => {
            let how = update_stemcell::StemcellUpload { fix: *fix, replaces: *replaces };
            update_stemcell::run_remote(director, log, (location, sha1.as_deref()), how).await
        }
        Job::RunErrand { deployment, request } => super::run_errand::run(director, log, deployment, request).await,
        Job::UpdateRelease { tarball, fix, rebase, replaces } => {
            let how = ReleaseUpload { fix: *fix, rebase: *rebase, replaces: *replaces };
            super::update_release::run(director, log, tarball, how).await
        }
        Job::DownloadRelease { location, sha1, fix, rebase, replaces } => {
            let how = ReleaseUpload { fix: *fix, rebase: *rebase, replaces: *replaces };
            super::update_release::run_remote(director, log, (location, sha1.as_deref()), how).await
        }
        Job::ExportRelease(request) => super::export_release::run(director, log, request).await,
        Job::DeleteRelease { name, version } => {
            super::delete_release::run(director, log, name, version.as_deref()).await
        }
        Job::DeleteStemcell { name, version, force } => {
            super::delete_stemcell::run(director, log, name, version, *force).await
        }
        Job::UpdateDeployment { deployment, manifest, options } => {
            super::update_deployment::run(director, log, deployment, manifest, options).await
        }
        Job::UpdateInstance { deployment, change } => {
            super::update_instance::run(director, log, deployment, change).await
        }
        Job::DeleteDeployment { deployment, force } => {
            super::delete_deployment::run(director, log, deployment, *force).await
        }
        Job::Scan { deployment } => super::scan::run(director, log, deployment).await,
        Job::ApplyResolutions { deployment, choices, max_in_flight } => {
            super::apply_resolutions::run(director, log, deployment, choices, max_in_flight).await
        }
        Job::RenewCertificates { deployment } => super::renew_certificates::run(director, log, deployment).await,
        Job::ScanAndFix { deployment, suspects } => super::scan_and_fix::run(director, log, deployment, suspects).await,
        Job::DeleteOrphanedVms => super::delete_orphaned_vms::run(director, log).await,
        Job::VmStats { deployment, instances } => {
            super::vm_stats::run(director, deployment, *instances, |line| log.write(OutputKind::Result, line)).await?;
            Ok(String::new())
        }
        Job::AttachDisk { deployment, instance, disk, copy_properties } => {
            super::attach_disk::run(director, log, deployment, instance, (disk, *copy_properties)).await
        }
        Job::OrphanDisk { disk } => super::orphan_disk::run(director, log, disk).await,
        Job::DeleteOrphanDisks { disks } => super::delete_orphan_disks::run(director, log, disks).await,
        Job::TakeSnapshots { deployment, instances } => {
            let taken = super::snapshots::take(director, log, deployment, instances).await?;
            Ok(match *instances == Selection::default() {
                true => format!("snapshots of deployment '{deployment}' created"),
                false => format!("snapshot(s) {} created", taken.join(", ")),
            })
        }
        Job::DeleteSnapshots { deployment, snapshot } => {
            super::snapshots::delete(director, log, deployment, snapshot.as_ref()).await
        }
        Job::CleanUp(how) => super::clean_up::run(director, log, *how).await,
        Job::DeleteVm { vm } => super::delete_vm::run(director, log, vm).await,
        Job::DeleteLeak(leak) => super::delete_leak::run(director, log, leak).await,
        Job::FetchLogs { deployment, instances, kind, filters } => {
            super::fetch_logs::run(director, log, deployment, instances, (kind, filters)).await
        }
        Job::Ssh { deployment, request } => super::ssh::run(director, log, &task.user, deployment, request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewTask;

    #[test]
    fn a_cancelled_task_says_so_once_and_other_failures_are_all_told() {
        let cancelled = TaskError::Several(vec![TaskError::Cancelled, TaskError::Cancelled]);
        assert_eq!(told(&cancelled, explain(&cancelled)), TaskError::Cancelled.to_string());
        let failed = TaskError::Several(vec![TaskError::Cancelled, TaskError::Input("no".to_owned())]);
        assert_eq!(told(&failed, explain(&failed)), explain(&failed));
    }

    #[tokio::test]
    async fn no_user_has_all_workers() {
        let bench = crate::testing::TestDirector::new().await;
        let (store, users) = (&bench.director.store, &bench.director.users);
        let queue = async |user: &str| {
            let job = Job::DeleteOrphanedVms;
            store.add_task(&NewTask { job, user: user.to_owned(), context_id: String::new() }).await.unwrap()
        };
        for _ in 0..8 {
            queue("eve").await;
        }
        let of_ann = queue("ann").await;
        let mut places = Places::new(Lane::Work, 8);
        let mut claimed = Vec::new();
        while places.is_free() {
            let claim = store.claim_task::<Job>("uuid", places.lane, &places.busy(users)).await.unwrap();
            let Some(task) = claim else { break };
            places.take(&Holder { user: Some(task.record.user), teams: Vec::new() });
            claimed.push(task.record.id);
        }
        assert_eq!(claimed, [1, 2, 3, 4, 5, 6, of_ann]);
        places.free(&Holder { user: Some("eve".into()), teams: Vec::new() });
        let next = store.claim_task::<Job>("uuid", places.lane, &places.busy(users)).await.unwrap();
        assert_eq!(next.map(|task| task.record.id), Some(7));
        for (all, of_a_user) in [(1, 1), (2, 2), (3, 3), (4, 3), (8, 6), (100, 98)] {
            assert_eq!(Places::new(Lane::Work, all).of_a_user, of_a_user);
        }
    }

    /// A team with two users, or with VMs that hang whenever the resurrector makes them again, had all workers for hours.
    #[tokio::test]
    async fn no_team_has_all_workers_whoever_works_for_it() {
        let bench = crate::testing::TestDirector::new().await;
        let (director, store) = (&bench.director, &bench.director.store);
        for (deployment, team) in [("of-shop", "shop"), ("of-bank", "bank")] {
            store.add_deployment(&deployment.into(), &[team.to_owned()]).await.unwrap();
        }
        let queue = async |user: &str, deployment: &str| {
            let job = Job::Scan { deployment: deployment.into() };
            store.add_task(&NewTask { job, user: user.to_owned(), context_id: String::new() }).await.unwrap()
        };
        for user in ["shop-admin", "another", "resurrector", "shop-admin", "another", "resurrector", "resurrector"] {
            queue(user, "of-shop").await;
        }
        let others = [queue("resurrector", "of-bank").await, queue("admin", "of-shop").await];
        let mut places = Places::new(Lane::Work, 8);
        let (mut claimed, mut holders) = (Vec::new(), Vec::new());
        while places.is_free() {
            let busy = places.busy(&director.users);
            let Some(task) = store.claim_task::<Job>("uuid", places.lane, &busy).await.unwrap() else { break };
            let holder = Holder::of(director, &task.record).await;
            places.take(&holder);
            holders.push(holder);
            claimed.push(task.record.id);
        }
        assert_eq!(claimed, [&[1, 2, 3, 4, 5, 6], &others[..]].concat());
        holders.iter().for_each(|holder| places.free(holder));
        assert!(places.taken == 0 && places.of_users.is_empty() && places.of_teams.is_empty());
    }

    /// With VMs that hang whenever they are made again, a team kept those of all others from being made again.
    #[tokio::test]
    async fn no_team_keeps_the_director_itself_from_working_for_others() {
        let bench = crate::testing::TestDirector::new().await;
        let (director, store) = (&bench.director, &bench.director.store);
        for (deployment, teams) in
            [("of-shop", vec!["shop".to_owned()]), ("of-bank", vec!["bank".to_owned()]), ("of-all", Vec::new())]
        {
            store.add_deployment(&deployment.into(), &teams).await.unwrap();
        }
        let claim_all = async |places: &mut Places| {
            let mut claimed = Vec::new();
            while places.is_free() {
                let busy = places.busy(&director.users);
                let Some(task) = store.claim_task::<Job>("uuid", places.lane, &busy).await.unwrap() else { break };
                places.take(&Holder::of(director, &task.record).await);
                claimed.push(task.record.id);
            }
            claimed
        };
        for full in ["of-shop", "of-all"] {
            let queue = async |deployment: &str| {
                let job = Job::Scan { deployment: deployment.into() };
                let user = users::RESURRECTOR.to_owned();
                store.add_task(&NewTask { job, user, context_id: String::new() }).await.unwrap()
            };
            let mut held = Vec::new();
            for _ in 0..7 {
                held.push(queue(full).await);
            }
            let of_bank = queue("of-bank").await;
            let mut places = Places::new(Lane::Work, 8);
            assert_eq!(claim_all(&mut places).await, [&held[..6], &[of_bank]].concat(), "{full}");
            store.finish_task(held[6], TaskState::Cancelled, "").await.unwrap();
        }
    }

    /// A user of the team before would come into VMs of the team after, or deploy to them.
    #[tokio::test]
    async fn a_task_works_on_no_deployment_of_other_teams_before_and_after_it_waits_for_the_lock() {
        let bench = crate::testing::TestDirector::new().await;
        let (director, store) = (&bench.director, &bench.director.store);
        let staging = DeploymentName::from("staging");
        let make = async |team: &str| store.add_deployment(&staging, &[team.to_owned()]).await.unwrap();
        make("shop").await;
        let (user, context_id) = ("shop-admin".to_owned(), String::new());
        let task = NewTask { job: Job::Scan { deployment: staging.clone() }, user, context_id };
        let id = store.add_task(&task).await.unwrap();
        let log = TaskLog::open(director, id).unwrap();
        let before =
            async || must_be_of_the_same_teams(director, id, &staging).await.map_err(|error| error.to_string());
        let locked = async || super::super::lock_deployment(director, &log, &staging).await;
        before().await.unwrap();
        locked().await.unwrap();
        store.remove_deployment(&staging).await.unwrap();
        before().await.unwrap();
        let gone = locked().await.unwrap_err();
        assert_eq!((gone.code(), gone.to_string().as_str()), (70000, "Deployment 'staging' doesn't exist"));
        make("bank").await;
        let refused = before().await.unwrap_err();
        assert!(refused.contains("made again for other teams"), "{refused}");
        assert_eq!(locked().await.unwrap_err().to_string(), refused);
        store.remove_deployment(&staging).await.unwrap();
        make("shop").await;
        before().await.unwrap();
        locked().await.unwrap();
    }

    /// A task that panics would otherwise stay 'processing', with its locks, until the director is restarted.
    #[tokio::test]
    async fn a_panic_is_the_end_of_one_task() {
        let result = unless_it_panics::<()>(async { panic!("{} is not {}", 1, 2) }).await;
        assert!(matches!(result, Err(TaskError::Panicked(said)) if said == "1 is not 2"));
        let result = unless_it_panics::<()>(async { panic!("plainly") }).await;
        assert!(matches!(result, Err(TaskError::Panicked(said)) if said == "plainly"));
    }
}
