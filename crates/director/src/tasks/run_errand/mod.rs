//! Runs an errand: a job that does its work once, on instances that have it, or on a VM that is made for it.
//!
//! - [`mod@targets`]: where it runs.
//! - [`on_instance`]: how it runs on one of them, and what is told of it.

mod on_instance;
mod targets;

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use windlass_contract::explain;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{InstancePlan, Plan, Wish, plan_state_change};

use super::execute::{Execution, Failures};
use super::prepare::reload_one;
use super::update_deployment::{DeployRun, all, one_or_several};
use super::{TaskError, TaskLog, lock_deployment};
use crate::Director;
use targets::{Target, targets};

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ErrandRequest {
    /// A job, or a group that is an errand.
    pub errand: String,
    /// Whether the VM that is made for it stays.
    pub keep_alive: bool,
    /// Whether it runs only if something changed since it last succeeded.
    pub when_changed: bool,
    /// Where it runs; empty for everywhere.
    pub instances: Vec<InstanceFilter>,
}

/// Some instances of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceFilter {
    pub group: String,
    /// A uuid, an index, or `first`; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

struct ErrandRun<'a> {
    director: &'a Arc<Director>,
    log: &'a TaskLog,
    deployment: &'a DeploymentName,
    request: &'a ErrandRequest,
    /// Whether its name is a job's.
    by_job: bool,
    exit_codes: Mutex<Vec<i64>>,
}

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    request: &ErrandRequest,
) -> Result<String, TaskError> {
    lock_deployment(director, log, deployment).await?;
    let stage = log.stage("Preparing deployment", &[], 1);
    let preparing = stage.part("Preparing deployment");
    let (by_job, targets) = preparing.run(targets(director, log, deployment, request)).await?;
    let state = state_of(&targets);
    if request.when_changed
        && director.store.errand_success(deployment, &request.errand).await?.as_ref() == Some(&state)
    {
        return Ok("skipped - no changes detected".to_owned());
    }
    director.store.forget_errand_success(deployment, &request.errand).await?;
    let run = ErrandRun { director, log, deployment, request, by_job, exit_codes: Mutex::default() };
    let at_once = director.settings.max_threads;
    // It runs nowhere unless there is a VM wherever one is needed.
    let made =
        all(Box::new(targets.iter().map(|target| -> BoxFuture<'_, _> { Box::pin(run.make_vm(target)) })), at_once);
    if let Err(error) = made.await {
        run.take_back(&targets).await;
        return Err(error);
    }
    all(Box::new(targets.iter().map(|target| -> BoxFuture<'_, _> { Box::pin(run.on(target)) })), at_once).await?;
    let codes = run.exit_codes.into_inner().unwrap_or_else(PoisonError::into_inner);
    if codes.iter().all(|code| *code == 0) {
        director.store.note_errand_success(deployment, &request.errand, &state).await?;
    }
    let count = |is_it: fn(&i64) -> bool| codes.iter().filter(|code| is_it(code)).count();
    let (succeeded, cancelled) = (count(|code| *code == 0), count(|code| *code > 128));
    let errored = codes.len() - succeeded - cancelled;
    Ok(format!("{succeeded} succeeded, {errored} errored, {cancelled} canceled"))
}

/// Stands for the instances, their packages and their files.
fn state_of(targets: &[Target]) -> String {
    let mut states: Vec<String> = targets.iter().map(|target| target.state.clone()).collect();
    states.sort();
    Sha1::digest(states.concat()).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ErrandRun<'_> {
    /// Makes the VM that an errand group has only while it runs.
    async fn make_vm(&self, target: &Target) -> Result<(), TaskError> {
        let Some(plan) = &target.plan else { return Ok(()) };
        self.deploy_run().create_missing_vms(plan).await
    }

    fn deploy_run(&self) -> DeployRun<'_> {
        DeployRun::new(self.director, self.log, self.deployment)
    }

    /// VMs that were made for nothing go.
    async fn take_back(&self, targets: &[Target]) {
        for target in targets.iter().filter(|target| target.plan.is_some() && !self.request.keep_alive) {
            if let Err(error) = self.remove_vm(&target.instance).await {
                self.log.warning(&format!("Failed to delete vms: {}", explain(&error)));
            }
        }
    }

    async fn on(&self, target: &Target) -> Result<(), TaskError> {
        match &target.plan {
            None => self.on_instance(&target.instance).await,
            Some(plan) => {
                let result = self.on_new_vm(plan, &target.instance).await;
                if self.request.keep_alive {
                    return result;
                }
                let removed = self.remove_vm(&target.instance).await;
                match (result, removed) {
                    (Err(error), Err(second)) => {
                        self.log.warning(&format!("Failed to delete vms: {}", explain(&second)));
                        Err(error)
                    }
                    (result, removed) => result.and(removed),
                }
            }
        }
    }

    /// On a VM that was made for it, or that an earlier run left; it is brought up to date.
    async fn on_new_vm(&self, plan: &Plan, instance: &InstancePlan) -> Result<(), TaskError> {
        let run = self.deploy_run();
        for group in &plan.groups {
            run.update(group).await?;
        }
        self.on_instance(instance).await
    }

    /// Deletes the VM, also if the task is cancelled or failed: nobody needs it.
    async fn remove_vm(&self, instance: &InstancePlan) -> Result<(), TaskError> {
        let Some(present) = reload_one(self.director, &instance.id).await?.filter(|present| present.vm.is_some())
        else {
            return Ok(());
        };
        let plan = plan_state_change(&present, Wish::Detach, false, false);
        let quiet = Arc::new(on_instance::Quiet(self.log.clone()));
        let mut execution = Execution::new(self.director, self.log, quiet, self.deployment, &plan, Some(&present));
        execution.run(&plan.actions.to_vec(), Failures::Stop).await.map_err(one_or_several)
    }

    fn ended_with(&self, exit_code: i64) {
        self.exit_codes.lock().unwrap_or_else(PoisonError::into_inner).push(exit_code);
    }
}
