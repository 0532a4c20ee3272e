//! Why an instance is as it is: what was done to it, for what reason, and how that went.

use axum::extract::{Path, State};
use serde::Deserialize;
use windlass_contract::director::{Explained, ExplainedAction, ExplainedDisk, ExplainedPlan, ExplainedVm, Moment};
use windlass_operations::agents::addresses;
use windlass_planning::names::{DeploymentName, IndexOrId, InstanceId};
use windlass_planning::plan::{Action, InstancePlan, Plan, Selection};
use windlass_planning::records::{DiskRecord, InstanceRecord, VmRecord};

use super::deployments::must_include;
use super::{ApiError, Json, Shared};
use crate::Director;
use crate::store::{self, StoreError, TaskRecord};
use crate::tasks::{OutputKind, reload_one};

/// How many plans are looked through, from the newest on.
const PLANS: u32 = 50;
/// How many of them are told.
const TOLD: usize = 5;
/// How many letters of plans are looked through, and how many one may have: readers may ask, and each takes several times its
/// size in memory. That of ten thousand instances has fewer.
const MOST_READ: i64 = 96 << 20;
const LARGEST_PLAN: i64 = 24 << 20;

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
    let (mut plans, mut left_out, mut read) = (Vec::new(), 0, 0);
    for (task, length) in director.store.plans_of(deployment, PLANS).await? {
        if length > LARGEST_PLAN || read + length > MOST_READ {
            left_out += 1;
            continue;
        }
        read += length;
        let Some(text) = director.store.plan_of_task(task.id).await? else { continue };
        let find = || {
            let plan: Plan = store::from_json("plans.plan", &text)?;
            let mut all = plan.groups.into_iter().flat_map(|group| group.instances).chain(plan.removed);
            Ok::<_, StoreError>(all.find(|part| part.id == *id && !part.actions.is_empty()))
        };
        if let Some(part) = director.limits.heavily(find).await? {
            plans.push(told(director, &task, &part).await);
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
    let Ok(rendering) = director.library.rendering(&software.jobs).await else { return Vec::new() };
    rendering.needs_ruby(&director.limits).await
}

/// What a task was to do to an instance, and what it wrote about that.
async fn told(director: &Director, task: &TaskRecord, part: &InstancePlan) -> ExplainedPlan {
    let action = |action: &Action| ExplainedAction { action: action.what.describe(), reason: action.reason.clone() };
    // A log may have been removed with age; the plan is there all the same.
    let mut log = String::new();
    // Earlier versions had all steps among the events.
    for kind in [OutputKind::Event, OutputKind::Steps] {
        let path = kind.path(&director.folders.tasks(), task.id);
        log = tokio::fs::read_to_string(path).await.unwrap_or(log);
    }
    ExplainedPlan {
        task: task.id.unsigned_abs(),
        description: task.description.clone(),
        state: task.state.as_str().to_owned(),
        started_at: task.started_at,
        finished_at: task.finished_at,
        actions: part.actions.iter().map(action).collect(),
        timeline: timeline(&log, &part.label()),
    }
}

#[derive(Deserialize)]
struct Line {
    time: i64,
    /// Since 1970; earlier versions did not note it.
    milliseconds: Option<i64>,
    #[serde(default)]
    stage: String,
    #[serde(default)]
    task: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    data: LineData,
}

#[derive(Default, Deserialize)]
struct LineData {
    status: Option<String>,
    error: Option<String>,
}

/// The moments in a task's log that are about one instance, which the log calls `label`: the part of a stage begins with it, the stage
/// ends with it where it is about nothing else, and a problem that is repaired has it in quotation marks.
fn timeline(log: &str, label: &str) -> Vec<Moment> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let (quoted, at_the_end) = (format!("'{label}'"), format!(" {label}"));
    let is_about =
        |line: &Line| line.task.starts_with(label) || line.task.contains(&quoted) || line.stage.ends_with(&at_the_end);
    lines
        .filter(is_about)
        .map(|line| {
            let said = line.data.error.map(|error| format!("failed: {error}")).or(line.data.status);
            Moment {
                time: line.time,
                milliseconds: Some(line.milliseconds.unwrap_or(line.time * 1000)),
                stage: line.stage,
                what: said.unwrap_or(line.state),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_moments_of_the_instance_are_told() {
        let log = r#"{"time":1,"stage":"Preparing deployment","tags":[],"total":1,"task":"Preparing deployment","index":1,"state":"started","progress":0}
{"time":2,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/a (0)","index":1,"state":"started","progress":0}
{"time":2,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/b (1)","index":2,"state":"started","progress":0}
{"time":3,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/a (0)","index":1,"state":"in_progress","progress":50,"data":{"status":"waiting for the agent"}}
{"time":4,"stage":"Creating missing vms","tags":[],"total":2,"task":"db/a (0)","index":1,"state":"finished","progress":100}
{"time":5,"stage":"Updating instance","tags":["db"],"total":2,"task":"db/a (0) (canary)","index":1,"state":"failed","progress":100,"data":{"error":"no"}}
{"time":5,"error":{"code":100,"message":"no"}}
"#;
        let log = log.replacen("{\"time\":3,", "{\"time\":3,\"milliseconds\":3250,", 1);
        let log = log.as_str();
        let times: Vec<_> = timeline(log, "db/a (0)").iter().map(|moment| moment.milliseconds.unwrap()).collect();
        assert_eq!(times, [2000, 3250, 4000, 5000], "steps of earlier versions have whole seconds");
        let told: Vec<_> = timeline(log, "db/a (0)").iter().map(|moment| moment.what.clone()).collect();
        assert_eq!(told, ["started", "waiting for the agent", "finished", "failed: no"]);
        let log = r#"{"time":1,"stage":"Updating instance db/a (0)","tags":[],"task":"Stopping instance","index":1,"state":"started"}
{"time":2,"stage":"Updating instance db/ba (0)","tags":[],"task":"Stopping instance","index":1,"state":"started"}
{"time":3,"stage":"Applying problem resolutions","tags":[],"task":"VM for 'db/a (0)' is not responding.: Recreate VM","index":1,"state":"finished"}
"#;
        let times: Vec<_> = timeline(log, "db/a (0)").iter().map(|moment| moment.time).collect();
        assert_eq!(times, [1, 3], "starting, stopping and repairs are told as well");
    }
}
