//! What the director holds: locks, disks, blobs, possible leaks.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio_util::io::ReaderStream;
use windlass_contract::VmCid;
use windlass_contract::director::{Disk, Known, Leak, Lock, OrphanedVm};
use windlass_operations::agents::addresses;
use windlass_operations::clock;
use windlass_operations::ledger::Ledger;
use windlass_planning::names::{InstanceId, InstanceName};

use super::input::JsonBody;
use super::permissions::Access;
use super::{ApiError, Json, Shared, User, queue};
use crate::blobs::MADE;
use crate::store::{self, LockName, TaskState};
use crate::tasks::{Job, LeakRequest};

/// Strings where one would expect numbers: clients insist.
pub(super) async fn locks(State(director): Shared) -> Result<Json<Vec<Lock>>, ApiError> {
    let locks = director.store.locks().await?;
    Ok(Json(
        locks
            .into_iter()
            .map(|lock| {
                let name = lock.name.as_str();
                let (kind, resource) = name.split_once(':').unwrap_or((name, ""));
                Lock {
                    kind: kind.to_owned(),
                    resource: vec![resource.to_owned()],
                    timeout: format!("{}.0", lock.expires_at),
                    task_id: lock.task.to_string(),
                }
            })
            .collect(),
    ))
}

/// Removes a lock that nobody will give back. One whose task runs is left alone: two would change the same things.
pub(super) async fn unlock(State(director): Shared, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    let name = LockName::from(name);
    let Some(task) = director.store.holder(&name).await? else {
        let reason = format!("there is no lock '{name}'; 'windlass locks' lists them as TYPE:RESOURCE");
        return Err(ApiError::not_found(100, reason));
    };
    if director.workers.is_running(task) {
        let reason = format!("task {task} runs and holds the lock '{name}'; wait for it, or cancel it");
        return Err(ApiError::with_status(StatusCode::CONFLICT, 100, reason));
    }
    let record = director.store.task(task).await?;
    // A task that goes on after a restart keeps its locks while it waits for a worker.
    if record.as_ref().is_some_and(|task| task.state == TaskState::Queued) {
        let reason = format!("task {task} holds the lock '{name}' and is about to go on; wait for it, or cancel it");
        return Err(ApiError::with_status(StatusCode::CONFLICT, 100, reason));
    }
    match record.is_some_and(|task| task.finished_at.is_none()) {
        // Nobody works on it, so nobody will write its end either.
        true => {
            director.store.finish_task(task, TaskState::Error, "nobody worked on it, and its lock was removed").await?
        }
        false => director.store.unlock(&name, task).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// A blob that a task made. Its name is a UUID, so no other file is ever served. Readers see the names of logs, which are not for them.
pub(super) async fn blob(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found(20001, format!("Resource '{id}' not found"));
    let name = uuid::Uuid::try_parse(&id).map_err(|_| missing())?.to_string();
    if let Some(task) = director.store.task_of_logs(&name).await? {
        user.must_with(&director, Access::Admin, &director.store.teams_of_task(task).await?)?;
    }
    let found = match director.blobs.file(MADE, &name, None).await {
        Err(error) if error.is_missing() => return Err(missing()),
        found => found.map_err(|error| ApiError::internal(&error))?,
    };
    // A reader that has it open keeps it, also if its copy goes.
    let file = tokio::fs::File::open(found.as_ref()).await.map_err(|_| missing())?;
    let length = file.metadata().await.map_err(|error| ApiError::internal(&error))?.len();
    let kind = [(header::CONTENT_TYPE, "application/x-gzip")];
    let length = [(header::CONTENT_LENGTH, length)];
    Ok((kind, length, Body::from_stream(ReaderStream::new(file))).into_response())
}

pub(super) fn shown_vm(orphan: &store::OrphanedVm) -> OrphanedVm {
    OrphanedVm {
        az: orphan.az.clone().unwrap_or_default(),
        cid: orphan.vm.cid.to_string(),
        deployment_name: orphan.deployment.to_string(),
        instance_name: orphan.instance.to_string(),
        ip_addresses: addresses(&orphan.vm.networks).iter().map(ToString::to_string).collect(),
        orphaned_at: clock::utc(orphan.orphaned_at),
    }
}

pub(super) async fn orphaned_vms(State(director): Shared) -> Result<Json<Vec<OrphanedVm>>, ApiError> {
    Ok(Json(director.store.orphaned_vms().await?.iter().map(shown_vm).collect()))
}

/// Deletes a VM by its cid, of any deployment or none.
pub(super) async fn remove_vm(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(cid): Path<String>,
) -> Result<Response, ApiError> {
    let vm = VmCid::new(cid).map_err(|error| ApiError::bad_request(40005, error.to_string()))?;
    queue(&director, user, Job::DeleteVm { vm }).await
}

/// Disks that belong to instances, with where their VMs find them.
pub(super) async fn disks(
    State(director): Shared,
    Extension(user): Extension<User>,
) -> Result<Json<Vec<Disk>>, ApiError> {
    let mut listed = Vec::new();
    for deployment in director.store.deployment_names().await? {
        if user.must_with_deployment(&director, Access::Read, &deployment).await.is_err() {
            continue;
        }
        let disks = director.store.disks_in_outline(&deployment).await?;
        if disks.is_empty() {
            continue;
        }
        let instances = director.store.brief_instances(&deployment).await?;
        let groups: BTreeMap<&InstanceId, &str> =
            instances.iter().map(|instance| (&instance.id, instance.group.as_str())).collect();
        for disk in disks {
            let instance = groups.get(&disk.instance).map(|group| InstanceName::of(group, &disk.instance).into());
            listed.push(Disk {
                disk_cid: disk.cid.to_string(),
                size: disk.size,
                deployment: deployment.to_string(),
                instance: instance.unwrap_or_default(),
                vm_cid: disk.vm.as_ref().map(ToString::to_string).unwrap_or_default(),
                active: disk.active,
                mounted: disk.mounted,
                hint: serde_json::to_value(&disk.hint).unwrap_or_default(),
            });
        }
    }
    Ok(Json(listed))
}

/// Everything in the clouds that is on record: what a cloud has beside it, nobody owns.
pub(super) async fn known(State(director): Shared) -> Result<Json<Known>, ApiError> {
    Ok(Json(director.store.known().await?))
}

/// Deletes what a cloud has and nobody owns.
pub(super) async fn delete_leak(
    State(director): Shared,
    Extension(user): Extension<User>,
    JsonBody(leak): JsonBody<LeakRequest>,
) -> Result<Response, ApiError> {
    queue(&director, user, Job::DeleteLeak(leak)).await
}

/// Changes of which nobody knows whether they happened.
pub(super) async fn leaks(State(director): Shared) -> Result<Json<Vec<Leak>>, ApiError> {
    let intents = director.store.intents().await.map_err(|error| ApiError::internal(&error))?;
    let doubtful = intents.into_iter().filter(|intent| intent.doubt.is_some()).map(|intent| Leak {
        method: intent.change.method().to_string(),
        subject: intent.change.subject(),
        request_id: intent.id.to_string(),
        cpi: intent.cpi.into(),
        why: intent.doubt.unwrap_or_default(),
    });
    let unreadable = director.store.unreadable_intents().await?.into_iter().map(|intent| Leak {
        request_id: intent.id,
        cpi: intent.cpi.into(),
        method: "?".to_owned(),
        subject: "?".to_owned(),
        why: intent.why,
    });
    Ok(Json(doubtful.chain(unreadable).collect()))
}
