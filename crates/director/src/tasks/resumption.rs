//! Which tasks go on after their director was killed. What a task had begun in the clouds is settled first; then it is carried out
//! once more, under the locks that it has and with the same outputs. Most do only what is not done yet. A task that recreates
//! things notes what was there when it began, so that it recreates nothing twice.

use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{WhatWasThere, Wish};

use super::prepare::read_outline;
use super::{DeployOptions, InstanceChange, Job, TaskError, TaskLog};
use crate::Director;
use crate::store::{ClaimedTask, TaskRecord};

/// How often a task is begun: one that takes its director with it must not do so for ever.
pub(crate) const TRIES: i64 = 3;

/// Why a task that was interrupted does not go on, if so.
pub(crate) fn why_not(task: &ClaimedTask<Job>) -> Option<String> {
    let job = match (&task.job, task.record.tries) {
        (_, 0) => return Some("an earlier version of the director began it".to_owned()),
        (_, TRIES..) => return Some(format!("it was begun {TRIES} times")),
        (Err(_), _) => return Some("what it should do cannot be read".to_owned()),
        (Ok(job), _) => job,
    };
    let why = match job {
        Job::UpdateStemcell { tarball, .. } | Job::UpdateRelease { tarball, .. } if !tarball.exists() => {
            "the file that was uploaded is gone"
        }
        Job::TakeSnapshots { .. } => "it may have taken some of the snapshots",
        Job::ApplyResolutions { .. } => "it may have solved some of the problems; another cloud-check finds the others",
        Job::RunErrand { .. } => "its script may have run",
        Job::Ssh { .. } => "nobody may wait for it any more",
        _ => return None,
    };
    Some(why.to_owned())
}

/// Whether a task failed because the try before had done all of its work, and was killed before it could say so.
pub(super) fn was_done(task: &TaskRecord, job: &Job, error: &TaskError) -> bool {
    task.tries > 1
        && match job {
            Job::DeleteStemcell { .. } => error.code() == 50003,
            Job::DeleteRelease { .. } => matches!(error.code(), 30005 | 30006),
            _ => false,
        }
}

/// The options of a deploy. If it recreates something, they say from now on what was there when it began.
pub(super) async fn noted_in_options(
    director: &Director,
    log: &TaskLog,
    (deployment, manifest): (&DeploymentName, &str),
    options: &DeployOptions,
) -> Result<DeployOptions, TaskError> {
    let recreates = options.change_state.as_ref().is_some_and(|change| change.wish == Wish::Recreate);
    let makes_anew = options.recreate || options.recreate_persistent_disks || recreates;
    if !makes_anew || options.dry_run || options.only.is_some() {
        return Ok(options.clone());
    }
    let options = DeployOptions { only: Some(what_is_there(director, deployment).await?), ..options.clone() };
    let (deployment, manifest) = (deployment.clone(), manifest.to_owned());
    let job = Job::UpdateDeployment { deployment, manifest, options: options.clone() };
    director.store.replace_job(log.task(), &job).await?;
    Ok(options)
}

/// The same for one instance.
pub(super) async fn noted_in_change(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    change: &InstanceChange,
) -> Result<InstanceChange, TaskError> {
    if change.wish != Wish::Recreate || change.only.is_some() {
        return Ok(change.clone());
    }
    let change = InstanceChange { only: Some(what_is_there(director, deployment).await?), ..change.clone() };
    let job = Job::UpdateInstance { deployment: deployment.to_owned(), change: change.clone() };
    director.store.replace_job(log.task(), &job).await?;
    Ok(change)
}

async fn what_is_there(director: &Director, deployment: &DeploymentName) -> Result<WhatWasThere, TaskError> {
    Ok(WhatWasThere::of(&read_outline(director, deployment).await?.instances))
}
