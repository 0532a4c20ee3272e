//! Snapshots of the disks of a deployment.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use windlass_contract::director::Snapshot;
use windlass_operations::clock;
use windlass_planning::names::{DeploymentName, IndexOrId};
use windlass_planning::plan::Selection;

use super::deployments::{must_exist, must_include};
use super::{ApiError, Json, Shared, User, queue};
use crate::tasks::Job;

pub(super) async fn list(
    State(director): Shared,
    Path(deployment): Path<DeploymentName>,
) -> Result<Json<Vec<Snapshot>>, ApiError> {
    must_exist(&director, &deployment).await?;
    let snapshots = director.store.snapshots(&deployment).await?;
    Ok(Json(
        snapshots
            .into_iter()
            .map(|found| Snapshot {
                job: found.group,
                index: Some(found.index),
                uuid: found.instance.into(),
                snapshot_cid: found.snapshot.cid.to_string(),
                created_at: clock::utc(found.snapshot.created_at),
                clean: found.snapshot.clean,
            })
            .collect(),
    ))
}

pub(super) async fn take(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    queue(&director, user, Job::TakeSnapshots { deployment, instances: Selection::default() }).await
}

pub(super) async fn take_of_instance(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, group, instance)): Path<(DeploymentName, String, IndexOrId)>,
) -> Result<Response, ApiError> {
    let instances = Selection { group: Some(group), instance: Some(instance) };
    must_include(&director, &deployment, &instances).await?;
    queue(&director, user, Job::TakeSnapshots { deployment, instances }).await
}

pub(super) async fn remove_all(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path(deployment): Path<DeploymentName>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    queue(&director, user, Job::DeleteSnapshots { deployment, snapshot: None }).await
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((deployment, cid)): Path<(DeploymentName, String)>,
) -> Result<Response, ApiError> {
    must_exist(&director, &deployment).await?;
    let found = director.store.snapshots(&deployment).await?.into_iter().map(|found| found.snapshot.cid);
    let snapshot = found.into_iter().find(|found| found.as_str() == cid);
    let missing =
        || ApiError::not_found(70008, format!("Snapshot '{cid}' does not exist in deployment '{deployment}'"));
    let snapshot = Some(snapshot.ok_or_else(missing)?);
    queue(&director, user, Job::DeleteSnapshots { deployment, snapshot }).await
}
