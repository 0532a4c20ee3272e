//! Tarballs that clients send, or say where to fetch.

use std::path::PathBuf;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use windlass_archive::Limits;
use windlass_blobs::BlobError;

use super::{ApiError, LARGEST_DOCUMENT};
use crate::Director;

/// What an upload brings.
pub(super) enum Upload {
    /// A file of ours.
    Tarball(PathBuf),
    /// Where the director fetches it itself.
    Remote { location: String, sha1: Option<String> },
}

#[derive(Deserialize)]
struct Remote {
    location: String,
    sha1: Option<String>,
}

/// How often it is looked whether the disk takes more.
const LOOK: u64 = 64 << 20;

/// Takes the whole body: a client whose upload breaks off sends it again.
pub(super) async fn take(director: &Director, request: Request, what: &str) -> Result<Upload, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind.split(';').next().unwrap_or_default().trim() {
        "application/x-compressed" => Ok(Upload::Tarball(receive(director, request, what).await?)),
        "application/json" => {
            let body = axum::body::to_bytes(request.into_body(), LARGEST_DOCUMENT).await;
            let body = body.map_err(|_| ApiError::bad_request(50000, "the request is too large or broke off"))?;
            let Remote { location, sha1 } = serde_json::from_slice(&body)
                .map_err(|error| ApiError::bad_request(40000, format!("the body's JSON: {error}")))?;
            if !location.starts_with("http://") && !location.starts_with("https://") {
                let reason = format!("'{location}' is no URL that begins with https:// or http://");
                return Err(ApiError::bad_request(50000, reason));
            }
            Ok(Upload::Remote { location, sha1 })
        }
        other => {
            let reason =
                format!("a {what} comes as application/x-compressed, or as JSON with its location, not as '{other}'");
            Err(ApiError::bad_request(50000, reason))
        }
    }
}

/// Streams the body to a file of ours.
async fn receive(director: &Director, request: Request, what: &str) -> Result<PathBuf, ApiError> {
    let announced = length(request.headers());
    if what == "release" {
        director.blobs.must_fit(announced).await.map_err(refused)?;
    }
    let path = director.folders.temporary().join(format!("upload-{}", uuid::Uuid::new_v4()));
    let result = async {
        let mut file = tokio::fs::File::create_new(&path).await?;
        must_have_room(director, announced)?;
        let mut body = request.into_body().into_data_stream();
        let mut unseen = 0;
        while let Some(chunk) = body.next().await {
            let chunk = chunk.map_err(|_| ApiError::bad_request(50000, "the upload broke off"))?;
            file.write_all(&chunk).await?;
            unseen += chunk.len() as u64;
            if unseen > LOOK {
                unseen = 0;
                must_have_room(director, 0)?;
            }
        }
        // What is written last is refused here.
        Ok(file.sync_all().await?)
    }
    .await;
    if result.is_err() {
        let _ = tokio::fs::remove_file(&path).await;
    }
    result.map(|()| path)
}

fn length(headers: &HeaderMap) -> u64 {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or_default()
}

/// A disk is never filled: what else the director writes needs some of it.
fn must_have_room(director: &Director, size: u64) -> Result<(), ApiError> {
    let left = Limits::of_space(&director.folders.temporary())?.bytes;
    if size < left {
        return Ok(());
    }
    let (size, left) = (size.div_ceil(1 << 20), left >> 20);
    let description = format!(
        "the upload has {size} MiB, and {left} MiB are left for it on the director's disk; make room there, for example with \
         'clean-up --all'"
    );
    Err(ApiError::with_status(StatusCode::INSUFFICIENT_STORAGE, 100, description))
}

fn refused(error: BlobError) -> ApiError {
    match error {
        BlobError::Limit { .. } => ApiError::with_status(StatusCode::INSUFFICIENT_STORAGE, 100, error.to_string()),
        error => ApiError::internal(&error),
    }
}
