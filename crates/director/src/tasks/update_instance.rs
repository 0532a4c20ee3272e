//! Starts, stops, restarts or recreates one instance from what is on record, whatever else would change with a deploy.

use std::sync::Arc;

use windlass_planning::desired::Lifecycle;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Action, ActionKind, CurrentInstance, Plan, WhatWasThere, Wish, plan_state_change};

use super::cloud_limits::{self, must_be_possible};
use super::execute::{Execution, Failures};
use super::failed_jobs;
use super::instance_event::with_event;
use super::large::reload;
use super::scan::groups_of;
use super::update_deployment::one_or_several;
use super::{InstanceChange, OutputKind, TaskError, TaskLog, lock_deployment, resumption};
use crate::Director;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    change: &InstanceChange,
) -> Result<String, TaskError> {
    lock_deployment(director, log, deployment).await?;
    let change = &resumption::noted_in_change(director, log, deployment, change).await?;
    let current = reload(director, log, deployment).await?;
    let found = current.instances.iter().find(|instance| change.instance.includes(&instance.record));
    let present = found.ok_or_else(|| TaskError::Input(format!("the instance is not in deployment '{deployment}'")))?;
    if present.record.ignored {
        let name = present.record.name();
        return Err(TaskError::refused(190020, format!("{name} is ignored; unignore it first")));
    }
    if present.record.applied_spec().is_none() {
        return Err(TaskError::Input(format!("{} was never deployed; deploy it first", present.record.name())));
    }
    refuse_errands(director, deployment, &present.record.group, change.wish).await?;
    let wish = if has_its_new_vm(present, change) { Wish::Start } else { change.wish };
    let instance = plan_state_change(present, wish, !change.skip_drain, change.ignore_unresponsive_agent);
    let planned = [instance];
    let limits = cloud_limits::of_instances(director, &planned, &current).await?;
    must_be_possible(&planned[0], &limits)?;
    let plan = Plan { deployment: deployment.to_owned(), removed: planned.into(), ..Plan::default() };
    log.count(director.store.save_plan(log.task(), &plan).await?);
    log.write(OutputKind::Debug, &plan.describe());
    let instance = &plan.removed[0];
    director.store.begin_state(&instance.id, instance.state).await?;
    let stage = log.open_stage(&format!("Updating instance {}", instance.label()));
    let work = async {
        let mut execution: Option<Execution> = None;
        let actions = instance.actions.to_vec();
        for actions in actions.chunk_by(|one, next| label(one) == label(next)) {
            let part = stage.part(label(&actions[0]));
            let execution = execution.get_or_insert_with(|| {
                Execution::new(director, log, part.clone(), deployment, instance, Some(present))
            });
            execution.report_to(part.clone());
            let work = async {
                let ran = execution.run(actions, Failures::Stop).await.map_err(one_or_several);
                match ran {
                    Ok(()) => Ok(()),
                    Err(error) => Err(failed_jobs::explained(director, log, instance, execution.vm(), error).await),
                }
            };
            part.run(work).await?;
        }
        Ok(())
    };
    with_event(director, log, deployment, instance, work).await?;
    director.store.finish_state(&instance.id).await?;
    Ok(present.record.name().into())
}

/// BOSH's words: an errand group has VMs only while it runs.
async fn refuse_errands(
    director: &Director,
    deployment: &DeploymentName,
    group: &str,
    wish: Wish,
) -> Result<(), TaskError> {
    let groups = groups_of(director, deployment).await?;
    if !groups.iter().any(|known| known.name == group && known.lifecycle == Lifecycle::Errand) {
        return Ok(());
    }
    let label = match wish {
        Wish::Start => "start",
        Wish::Stop | Wish::Detach => "stop",
        Wish::Restart => "restart",
        Wish::Recreate => "recreate",
    };
    let reason =
        format!("Isolated {label} can not be run on instances of type errand. Try the bosh run-errand command.");
    Err(TaskError::refused(90000, reason))
}

/// Whether its VM was recreated before the director was killed.
fn has_its_new_vm(present: &CurrentInstance, change: &InstanceChange) -> bool {
    let is_new = |only: &WhatWasThere| present.vm.as_ref().is_some_and(|vm| vm.ready && !only.vms.contains(&vm.cid));
    change.wish == Wish::Recreate && change.only.as_ref().is_some_and(is_new)
}

/// As the original names its parts.
fn label(action: &Action) -> &'static str {
    match action.what {
        ActionKind::Stop { .. } => "Stopping instance",
        ActionKind::DetachDisk { .. } | ActionKind::DeleteVm { .. } => "Deleting VM",
        ActionKind::Start => "Starting instance",
        _ => "Creating VM",
    }
}
