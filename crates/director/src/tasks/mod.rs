//! Tasks: what the API queues and workers carry out.
//!
//! A [`Job`] says what to do; [`Workers`] claim tasks from the store and run them; [`TaskLog`] writes what people read
//! while they wait. One file per kind of job.

mod apply_resolutions;
mod attach_disk;
mod clean_up;
mod cloud_limits;
mod compile;
mod delete_deployment;
mod delete_leak;
mod delete_orphan_disks;
mod delete_orphaned_vms;
mod delete_release;
mod delete_stemcell;
mod delete_vm;
mod errands;
mod error;
mod execute;
mod export_release;
mod failed_jobs;
mod fetch_logs;
mod instance_event;
mod job;
mod large;
mod log;
mod orphan_disk;
pub(crate) mod outputs;
mod ports_in_use;
mod prepare;
mod release_packages;
mod renew_certificates;
pub(crate) mod resumption;
mod run_errand;
mod scan;
mod scan_and_fix;
mod snapshots;
mod ssh;
mod update_deployment;
mod update_instance;
mod update_release;
mod update_stemcell;
mod vm_stats;
mod worker;

use std::time::Duration;

pub(crate) use apply_resolutions::Choices;
pub(crate) use clean_up::CleanUp;
pub(crate) use clean_up::{Rubbish, find as find_rubbish};
pub(crate) use delete_leak::LeakRequest;
pub(crate) use errands::errands_of;
pub(crate) use error::TaskError;
pub(crate) use export_release::ExportRequest;
pub(crate) use job::{DeployOptions, InstanceChange, Job};
pub(crate) use log::{EventStage, OutputKind, TaskLog};
pub(crate) use prepare::{Asker, PreparedDeploy, Purpose, prepare, read_outline, reload_one};
pub(crate) use run_errand::{ErrandRequest, InstanceFilter};
pub(crate) use scan_and_fix::Suspects;
pub(crate) use ssh::SshRequest;
pub(crate) use worker::{Finished, Workers};

use windlass_planning::names::DeploymentName;

use crate::Director;
use crate::store::{LockError, LockName};

/// How long a task waits for a lock that another one holds, and how often it looks.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The number of the error that a deployment is not there.
const NO_DEPLOYMENT: u32 = 70000;

/// Takes the lock of a deployment, or fails at once: what is being changed cannot be looked at.
async fn lock_deployment_at_once(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
) -> Result<(), TaskError> {
    director.store.take_lock(&LockName::of_deployment(deployment), log.task(), &director.uuid).await?;
    must_still_be_there(director, log, deployment).await
}

/// Takes the lock of a deployment for as long as the task runs.
async fn lock_deployment(director: &Director, log: &TaskLog, deployment: &DeploymentName) -> Result<(), TaskError> {
    lock_deployment_patiently(director, log, deployment, LOCK_PATIENCE).await
}

/// The same for one that need not be there.
async fn lock_deployment_to_come(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
) -> Result<(), TaskError> {
    lock_patiently(director, log, &LockName::of_deployment(deployment), LOCK_PATIENCE).await?;
    must_be_of_the_same_teams(director, log.task(), deployment).await
}

async fn lock_deployment_patiently(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    patience: Duration,
) -> Result<(), TaskError> {
    lock_patiently(director, log, &LockName::of_deployment(deployment), patience).await?;
    must_still_be_there(director, log, deployment).await
}

/// The user had a right to the deployment of that time. If others deleted it and made another of that name meanwhile, it is theirs.
async fn must_be_of_the_same_teams(
    director: &Director,
    task: i64,
    deployment: &DeploymentName,
) -> Result<(), TaskError> {
    let Some(now) = director.store.teams_of(deployment).await? else { return Ok(()) };
    if director.store.teams_of_task(task).await? == now {
        return Ok(());
    }
    let reason = format!(
        "the deployment '{deployment}' was deleted and made again for other teams after this was asked for; ask once more"
    );
    Err(TaskError::refused(600000, reason))
}

/// The same once the task has the lock: from then on nobody deletes it. One that is gone could be made by others meanwhile.
async fn must_still_be_there(director: &Director, log: &TaskLog, deployment: &DeploymentName) -> Result<(), TaskError> {
    // Tasks about no deployment, such as those about a VM by its id, are those of admins.
    let of_task = director.store.task(log.task()).await?.and_then(|task| task.deployment);
    if of_task.is_none_or(|of_task| deployment != of_task.as_str()) {
        return Ok(());
    }
    if director.store.teams_of(deployment).await?.is_none() {
        return Err(TaskError::refused(NO_DEPLOYMENT, format!("Deployment '{deployment}' doesn't exist")));
    }
    must_be_of_the_same_teams(director, log.task(), deployment).await
}

/// Takes a lock for as long as the task runs.
async fn lock(director: &Director, log: &TaskLog, name: &LockName) -> Result<(), TaskError> {
    lock_patiently(director, log, name, LOCK_PATIENCE).await
}

async fn lock_patiently(
    director: &Director,
    log: &TaskLog,
    name: &LockName,
    patience: Duration,
) -> Result<(), TaskError> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        match director.store.take_lock(name, log.task(), &director.uuid).await {
            Err(LockError::Held { .. }) if log.is_cancelled() => return Err(TaskError::Cancelled),
            // What an earlier run left is settled without anybody's help, however long that takes.
            Err(LockError::Held { task, .. })
                if director.workers.is_settling(task) || tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(LOCK_LOOK_AGAIN).await;
            }
            taken => return Ok(taken?),
        }
    }
}
