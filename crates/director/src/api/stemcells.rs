//! Stemcells.

use axum::extract::{Path, Query, Request, State};
use axum::http::header;
use axum::response::Response;
use axum::{Extension, Json};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use windlass_planning::records::StemcellRecord;

use super::input::{JsonBody, Parameters};
use super::{ApiError, LARGEST_DOCUMENT, Shared, User, queue};
use crate::Director;
use crate::tasks::Job;

pub(super) fn shown(stemcell: &StemcellRecord) -> Value {
    let deployments: Vec<_> = stemcell.deployments.iter().map(|name| json!({"name": name})).collect();
    json!({
        "name": stemcell.name, "operating_system": stemcell.operating_system, "version": stemcell.version,
        "cid": stemcell.cid, "cpi": stemcell.cpi, "deployments": deployments,
        "api_version": stemcell.api_version, "id": stemcell.id,
    })
}

pub(super) async fn list(State(director): Shared) -> Result<Json<Value>, ApiError> {
    Ok(Json(director.store.stemcells().await?.iter().map(shown).collect()))
}

#[derive(Deserialize)]
pub(super) struct Upload {
    stemcell: UploadedStemcell,
}

#[derive(Deserialize)]
struct UploadedStemcell {
    name: String,
    version: String,
}

/// Whether some cloud lacks a stemcell, so that clients need not send it again.
pub(super) async fn is_needed(
    State(director): Shared,
    JsonBody(upload): JsonBody<Upload>,
) -> Result<Json<Value>, ApiError> {
    // A cpi config may have come since the last task.
    director.refresh_clouds().await.map_err(|error| ApiError::internal(&error))?;
    let stemcells = director.store.stemcells().await?;
    let has = |cpi: &str| {
        stemcells.iter().any(|stemcell| {
            stemcell.cpi == cpi && stemcell.name == upload.stemcell.name && stemcell.version == upload.stemcell.version
        })
    };
    let needed = director.clouds.names().iter().any(|cpi| !has(cpi));
    Ok(Json(json!({"needed": needed})))
}

pub(super) async fn upload(
    State(director): Shared,
    Extension(user): Extension<User>,
    Query(query): Parameters,
    request: Request,
) -> Result<Response, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let fix = query.is_set("fix");
    match kind.split(';').next().unwrap_or_default().trim() {
        "application/x-compressed" => {
            let tarball = receive(&director, request).await?;
            queue(&director, user, Job::UpdateStemcell { tarball, fix }).await
        }
        "application/json" => {
            let body = axum::body::to_bytes(request.into_body(), LARGEST_DOCUMENT).await;
            let body = body.map_err(|_| ApiError::bad_request(50000, "the request is too large or broke off"))?;
            let remote: Remote = serde_json::from_slice(&body)
                .map_err(|error| ApiError::bad_request(40000, format!("the body's JSON: {error}")))?;
            if !remote.location.starts_with("http://") && !remote.location.starts_with("https://") {
                let reason = format!("'{}' is no URL that begins with https:// or http://", remote.location);
                return Err(ApiError::bad_request(50000, reason));
            }
            queue(&director, user, Job::DownloadStemcell { location: remote.location, sha1: remote.sha1, fix }).await
        }
        other => {
            let reason =
                format!("a stemcell comes as application/x-compressed, or as JSON with its location, not as '{other}'");
            Err(ApiError::bad_request(50000, reason))
        }
    }
}

/// A stemcell that the director fetches itself.
#[derive(Deserialize)]
struct Remote {
    location: String,
    sha1: Option<String>,
}

/// Streams the body to a file of ours.
async fn receive(director: &Director, request: Request) -> Result<std::path::PathBuf, ApiError> {
    let path = director.folders.temporary().join(format!("upload-{}", uuid::Uuid::new_v4()));
    let result = async {
        let mut file = tokio::fs::File::create_new(&path).await.map_err(|error| ApiError::internal(&error))?;
        let mut body = request.into_body().into_data_stream();
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|_| ApiError::bad_request(50000, "the upload broke off"))?;
            file.write_all(&chunk).await.map_err(|error| ApiError::internal(&error))?;
        }
        file.sync_all().await.map_err(|error| ApiError::internal(&error))
    }
    .await;
    if result.is_err() {
        let _ = tokio::fs::remove_file(&path).await;
    }
    result.map(|()| path)
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
