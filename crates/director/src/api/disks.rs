//! Disks: those that belong to nobody, and what is done to any by its cid.

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use windlass_contract::DiskCid;
use windlass_contract::director::OrphanedDisk;
use windlass_operations::clock;
use windlass_planning::plan::Selection;

use super::input::Parameters;
use super::{ApiError, Json, Shared, User, queue};
use crate::store::OrphanDisk;
use crate::tasks::Job;

pub(super) fn shown(disk: &OrphanDisk) -> OrphanedDisk {
    OrphanedDisk {
        disk_cid: disk.cid.to_string(),
        size: disk.size,
        az: disk.az.clone().unwrap_or_default(),
        deployment_name: disk.deployment.to_string(),
        instance_name: disk.instance.to_string(),
        cloud_properties: disk.cloud_properties.clone().into(),
        orphaned_at: clock::utc(disk.orphaned_at),
    }
}

pub(super) async fn orphans(State(director): Shared) -> Result<Json<Vec<OrphanedDisk>>, ApiError> {
    Ok(Json(director.store.orphan_disks().await?.iter().map(shown).collect()))
}

fn cid(text: String) -> Result<DiskCid, ApiError> {
    DiskCid::new(text).map_err(|error| ApiError::bad_request(520000, error.to_string()))
}

pub(super) async fn attach(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(disk): Path<String>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let needed = |key: &str| {
        let word = query.get(key).map(str::to_owned);
        word.ok_or_else(|| ApiError::bad_request(40001, format!("'{key}' is required")))
    };
    let (deployment, group, id) = (needed("deployment")?.into(), needed("job")?, needed("instance_id")?);
    super::deployments::must_exist(&director, &deployment).await?;
    let copy_properties = match query.get("disk_properties") {
        None => false,
        Some("copy") => true,
        Some(other) => {
            return Err(ApiError::bad_request(40005, format!("'disk_properties' can only be 'copy', not '{other}'")));
        }
    };
    let instance = Selection { group: Some(group), instance: Some(id.into()) };
    queue(&director, user, Job::AttachDisk { deployment, instance, disk: cid(disk)?, copy_properties }).await
}

/// Orphans a disk, or deletes one that is an orphan.
pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(disk): Path<String>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let disk = cid(disk)?;
    if query.is_set("orphan") {
        return queue(&director, user, Job::OrphanDisk { disk }).await;
    }
    if let Some((deployment, _)) = director.store.disk(&disk).await? {
        let reason = format!("disk {disk} is in use by deployment '{deployment}'; orphan it first");
        return Err(ApiError::bad_request(520000, reason));
    }
    queue(&director, user, Job::DeleteOrphanDisks { disks: vec![disk] }).await
}
