//! Stemcells.

use axum::Extension;
use axum::extract::{Path, Query, Request, State};
use axum::response::Response;
use serde::Deserialize;
use windlass_contract::director::{Named, Needed, Stemcell};
use windlass_planning::names::CpiName;
use windlass_planning::records::StemcellRecord;

use super::input::{JsonBody, Parameters};
use super::permissions::Permission;
use super::uploads::{self, Upload};
use super::{ApiError, Json, Shared, User, queue};
use crate::tasks::Job;

pub(super) fn shown(stemcell: &StemcellRecord) -> Stemcell {
    Stemcell {
        name: stemcell.name.clone(),
        operating_system: stemcell.operating_system.clone(),
        version: stemcell.version.clone(),
        cid: stemcell.cid.to_string(),
        cpi: stemcell.cpi.clone().into(),
        deployments: stemcell.deployments.iter().map(|name| Named { name: name.clone() }).collect(),
        api_version: stemcell.api_version.map(|version| version.0),
        id: stemcell.id,
    }
}

pub(super) async fn list(State(director): Shared) -> Result<Json<Vec<Stemcell>>, ApiError> {
    Ok(Json(director.store.stemcells().await?.iter().map(shown).collect()))
}

#[derive(Deserialize)]
pub(super) struct WantedStemcells {
    stemcell: WantedStemcell,
}

#[derive(Deserialize)]
struct WantedStemcell {
    name: String,
    version: String,
}

/// Whether some cloud lacks a stemcell, so that clients need not send it again.
pub(super) async fn is_needed(
    State(director): Shared,
    JsonBody(wanted): JsonBody<WantedStemcells>,
) -> Result<Json<Needed>, ApiError> {
    // A cpi config may have come since the last task.
    director.refresh_clouds().await.map_err(|error| ApiError::internal(&error))?;
    let stemcells = director.store.stemcells().await?;
    let has = |cpi: &CpiName| {
        stemcells.iter().any(|stemcell| {
            stemcell.cpi == *cpi && stemcell.name == wanted.stemcell.name && stemcell.version == wanted.stemcell.version
        })
    };
    let needed = director.clouds.names().iter().any(|cpi| !has(cpi));
    Ok(Json(Needed { needed }))
}

pub(super) async fn upload(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    request: Request,
) -> Result<Response, ApiError> {
    let (fix, replaces) = (query.is_set("fix"), user.may(&director, Permission::Admin));
    match uploads::take(&director, request, "stemcell").await? {
        Upload::Tarball(received) => {
            let job = Job::UpdateStemcell { tarball: received.path().to_owned(), fix, replaces };
            uploads::queue_with(&director, user, job, received).await
        }
        Upload::Remote { location, sha1 } => {
            queue(&director, user, Job::DownloadStemcell { location, sha1, fix, replaces }).await
        }
    }
}

pub(super) async fn remove(
    State(director): Shared,
    Extension(user): Extension<User>,
    Path((name, version)): Path<(String, String)>,
    Query(query): Parameters,
) -> Result<Response, ApiError> {
    let force = query.is_set("force");
    queue(&director, user, Job::DeleteStemcell { name, version, force }).await
}
