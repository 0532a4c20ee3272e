//! Why an instance is as it is: what was done to it, for what reason, and how that went.

use std::time::Duration;

use axum::extract::{Path, State};
use windlass_contract::director::{Explained, ExplainedAction, ExplainedDisk, ExplainedPlan, ExplainedVm};
use windlass_operations::agents::addresses;
use windlass_planning::names::{DeploymentName, IndexOrId, InstanceId};
use windlass_planning::plan::{Action, InstancePlan, Plan, Selection};
use windlass_planning::records::{DiskRecord, InstanceRecord, VmRecord};

use super::deployments::must_include;
use super::timeline::{LogsToRead, Timeline};
use super::{ApiError, Json, Shared};
use crate::Director;
use crate::limits::beside_requests;
use crate::store::{self, StoreError, TaskRecord};
use crate::tasks::reload_one;

/// How many plans are looked through, from the newest on.
const PLANS: u32 = 50;
/// How many of them are told.
const TOLD: usize = 5;
/// How many letters of plans are looked through, and how many one may have: readers may ask, and each takes several times its
/// size in memory. That of ten thousand instances has fewer.
const MOST_READ: i64 = 96 << 20;
const LARGEST_PLAN: i64 = 24 << 20;
/// How long a blobstore may take to give the jobs: others wait meanwhile who ask why something is as it is.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn show(
    State(director): Shared,
    Path((deployment, group, id)): Path<(DeploymentName, String, IndexOrId)>,
) -> Result<Json<Explained>, ApiError> {
    let selection = Selection { group: Some(group), instance: Some(id) };
    let found = must_include(&director, &deployment, &selection).await?;
    // Where something was found it is one: a group has each index and uuid once.
    let id = found.into_iter().next().unwrap_or_default();
    let current = reload_one(&director, &id).await.map_err(|error| ApiError::internal(&error))?;
    let gone = || ApiError::not_found(70001, format!("Instance '{id}' doesn't exist in deployment '{deployment}'"));
    let current = current.ok_or_else(gone)?;
    let (plans, left_out) = plans_with(&director, &deployment, &id).await?;
    let record = &current.record;
    Ok(Json(Explained {
        instance: record.name().into(),
        index: record.index,
        az: record.az.clone().unwrap_or_default(),
        state: record.state.as_str().to_owned(),
        converged: record.converged,
        ignored: record.ignored,
        vm: current.vm.as_ref().map(explained_vm),
        disks: current.disks.iter().map(explained_disk).collect(),
        plans,
        needs_ruby: needs_ruby(&director, record).await,
        plans_left_out: left_out,
    }))
}

fn explained_vm(vm: &VmRecord) -> ExplainedVm {
    ExplainedVm {
        cid: vm.cid.to_string(),
        agent_id: vm.agent_id.to_string(),
        cpi: vm.cpi.clone().into(),
        created_at: vm.created_at,
        ready: vm.ready,
        stemcell: format!("{}/{}", vm.stemcell.name, vm.stemcell.version),
        ips: addresses(&vm.networks).iter().map(ToString::to_string).collect(),
        cloud_properties: vm.cloud_properties.clone().into(),
    }
}

fn explained_disk(disk: &DiskRecord) -> ExplainedDisk {
    ExplainedDisk {
        cid: disk.cid.to_string(),
        name: disk.name.clone().into(),
        size: disk.size,
        vm_cid: disk.vm.as_ref().map(ToString::to_string).unwrap_or_default(),
        mounted: disk.mounted,
        active: disk.active,
        hint: serde_json::to_value(&disk.hint).unwrap_or_default(),
    }
}

/// The newest plans that did something to an instance, and how many were not looked at because they are too large.
async fn plans_with(
    director: &Director,
    deployment: &DeploymentName,
    id: &InstanceId,
) -> Result<(Vec<ExplainedPlan>, u64), ApiError> {
    let (mut plans, mut left_out, mut read, mut logs) = (Vec::new(), 0, 0, LogsToRead::default());
    for (task, length) in director.store.plans_of(deployment, PLANS).await? {
        if length > LARGEST_PLAN || read + length > MOST_READ {
            left_out += 1;
            continue;
        }
        read += length;
        let Some(text) = director.store.plan_of_task(task.id).await? else { continue };
        let find = move || {
            let plan: Plan = store::from_json("plans.plan", &text)?;
            let mut all = plan.groups.into_iter().flat_map(|group| group.instances).chain(plan.removed);
            Ok::<_, StoreError>(all.find(|part| part.id == *id && !part.actions.is_empty()))
        };
        if let Some(part) = director.limits.heavily(find).await? {
            plans.push(told(director, &task, &part, &mut logs));
        }
        if plans.len() == TOLD {
            break;
        }
    }
    Ok((plans, left_out))
}

/// Which of its jobs need Ruby, and for what. A release that is gone tells nothing of it.
async fn needs_ruby(director: &Director, record: &InstanceRecord) -> Vec<String> {
    let digest = record.spec.as_ref().and_then(|spec| spec.software.as_ref()).map(|software| &software.digest);
    let Some(digest) = digest else { return Vec::new() };
    let Ok(Some(software)) = director.store.software(digest).await else { return Vec::new() };
    let rendering = match tokio::time::timeout(PATIENCE, director.library.rendering(&software.jobs)).await {
        Ok(Ok(rendering)) => rendering,
        Ok(Err(_)) => return Vec::new(),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            return vec![format!("not known: the blobstore has not given all jobs within {seconds} seconds")];
        }
    };
    rendering.needs_ruby(&director.limits).await
}

/// What a task was to do to an instance, and what it wrote about that.
fn told(director: &Director, task: &TaskRecord, part: &InstancePlan, logs: &mut LogsToRead) -> ExplainedPlan {
    let action = |action: &Action| ExplainedAction { action: action.what.describe(), reason: action.reason.clone() };
    let (tasks, label) = (director.folders.tasks(), part.label());
    let Timeline { moments, bytes_left_out } = beside_requests(|| Timeline::read(&tasks, task.id, &label, logs));
    ExplainedPlan {
        task: task.id.unsigned_abs(),
        description: task.description.clone(),
        state: task.state.as_str().to_owned(),
        started_at: task.started_at,
        finished_at: task.finished_at,
        actions: part.actions.iter().map(action).collect(),
        timeline: moments,
        bytes_left_out,
    }
}
