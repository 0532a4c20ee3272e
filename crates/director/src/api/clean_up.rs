//! Deleting what nobody uses.

use axum::extract::{Query, State};
use axum::response::Response;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{JsonBody, Parameters};
use super::{ApiError, Shared, User, disks, queue, resources, stemcells};
use crate::tasks::{CleanUp, Job, Rubbish, find_rubbish};

#[derive(Debug, Deserialize)]
pub(super) struct Request {
    config: CleanUp,
}

pub(super) async fn run(
    State(director): Shared,
    Extension(user): Extension<User>,
    JsonBody(Request { config }): JsonBody<Request>,
) -> Result<Response, ApiError> {
    queue(&director, user, Job::CleanUp(config)).await
}

pub(super) async fn dry_run(State(director): Shared, Query(query): Parameters) -> Result<Json<Value>, ApiError> {
    let how =
        CleanUp { remove_all: query.is_set("remove_all"), keep_orphaned_disks: query.is_set("keep_orphaned_disks") };
    let Rubbish { stemcells, disks, vms } = find_rubbish(&director, how).await?;
    Ok(Json(json!({
        "releases": [], "compiled_packages": [], "exported_releases": [], "dns_blobs": [],
        "stemcells": stemcells.iter().map(stemcells::shown).collect::<Value>(),
        "orphaned_vms": vms.iter().map(resources::shown_vm).collect::<Value>(),
        "orphaned_disks": disks.iter().map(disks::shown).collect::<Value>(),
    })))
}
