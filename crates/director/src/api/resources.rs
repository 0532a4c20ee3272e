//! What the director holds: locks, disks, possible leaks.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::{ApiError, Shared};
use crate::clock;
use crate::ledger::Ledger;

/// Strings where one would expect numbers: clients insist.
pub(super) async fn locks(State(director): Shared) -> Result<Json<Value>, ApiError> {
    let locks = director.store.locks().await?;
    Ok(Json(
        locks
            .into_iter()
            .map(|lock| {
                let (kind, resource) = lock.name.split_once(':').unwrap_or((&lock.name, ""));
                json!({
                    "type": kind, "resource": [resource], "timeout": format!("{}.0", lock.expires_at),
                    "task_id": lock.task.to_string(),
                })
            })
            .collect(),
    ))
}

pub(super) async fn orphan_disks(State(director): Shared) -> Result<Json<Value>, ApiError> {
    let disks = director.store.orphan_disks().await?;
    Ok(Json(
        disks
            .into_iter()
            .map(|disk| {
                json!({
                    "disk_cid": disk.cid, "size": disk.size, "az": disk.az, "deployment_name": disk.deployment,
                    "instance_name": disk.instance, "cloud_properties": disk.cloud_properties,
                    "orphaned_at": clock::utc(disk.orphaned_at),
                })
            })
            .collect(),
    ))
}

/// Disks that belong to instances, with where their VMs find them.
pub(super) async fn disks(State(director): Shared) -> Result<Json<Value>, ApiError> {
    let mut listed = Vec::new();
    for deployment in director.store.deployments().await? {
        let instances = director.store.instances(&deployment.name).await?;
        for disk in director.store.disks(Some(&deployment.name)).await? {
            let instance = instances.iter().find(|instance| instance.id == disk.instance);
            listed.push(json!({
                "disk_cid": disk.cid, "size": disk.size, "deployment": deployment.name,
                "instance": instance.map(crate::store::InstanceRecord::name), "vm_cid": disk.vm,
                "active": disk.active, "mounted": disk.mounted, "hint": disk.hint,
            }));
        }
    }
    Ok(Json(listed.into()))
}

/// Changes of which nobody knows whether they happened.
pub(super) async fn leaks(State(director): Shared) -> Result<Json<Value>, ApiError> {
    let intents = director.store.open_intents().await.map_err(|error| ApiError::internal(&error))?;
    Ok(Json(
        intents
            .into_iter()
            .filter(|intent| intent.doubt.is_some())
            .map(|intent| {
                json!({
                    "request_id": intent.id, "cpi": intent.cpi, "method": intent.change.method(),
                    "subject": intent.change.subject(), "why": intent.doubt,
                })
            })
            .collect(),
    ))
}
