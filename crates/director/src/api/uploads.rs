//! Tarballs that clients send, or say where to fetch.

use std::path::{Path, PathBuf};

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

use windlass_archive::{Limits, Space};
use windlass_blobs::BlobError;
use windlass_durable::file;

use super::{ApiError, User, queue};
use crate::Director;
use crate::tasks::Job;

/// What an upload brings.
pub(super) enum Upload {
    /// A file of ours.
    Tarball(Received),
    /// Where the director fetches it itself.
    Remote { location: String, sha1: Option<String> },
}

/// A file that was received. It goes with this, unless a task has it: clients break off, and tasks are refused.
#[derive(Debug)]
pub(super) struct Received {
    path: PathBuf,
    is_kept: bool,
}

impl Received {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A task has it.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.is_kept {
            file::discard(&self.path);
        }
    }
}

#[derive(Deserialize)]
struct Remote {
    location: String,
    sha1: Option<String>,
}

/// How many bytes may say where to fetch a file. Nobody waits for a turn to send them, so each connection may bring so many.
const LARGEST_LOCATION: usize = 64 << 10;

/// Takes the whole body: a client whose upload breaks off sends it again.
pub(super) async fn take(director: &Director, request: Request, what: &str) -> Result<Upload, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind.split(';').next().unwrap_or_default().trim() {
        "application/x-compressed" => Ok(Upload::Tarball(receive(director, request, what).await?)),
        "application/json" => {
            let body = axum::body::to_bytes(request.into_body(), LARGEST_LOCATION).await;
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

/// Queues the task that has a file from then on.
pub(super) async fn queue_with(
    director: &Director,
    user: User,
    job: Job,
    received: Received,
) -> Result<Response, ApiError> {
    let queued = queue(director, user, job).await?;
    received.keep();
    Ok(queued)
}

/// Streams the body to a file of ours.
async fn receive(director: &Director, request: Request, what: &str) -> Result<Received, ApiError> {
    let announced = length(request.headers());
    if what == "release" {
        director.blobs.must_fit(announced).await.map_err(refused)?;
    }
    let path = director.folders.temporary().join(format!("upload-{}", uuid::Uuid::new_v4()));
    let mut file = tokio::fs::File::create_new(&path).await?;
    let received = Received { path, is_kept: false };
    must_have_room(director, announced)?;
    let mut body = request.into_body().into_data_stream();
    // Hundreds of clients may send at once, and were told the same.
    let mut space = Space::of(&director.folders.temporary());
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|_| ApiError::bad_request(50000, "the upload broke off"))?;
        if space.take(chunk.len() as u64).is_err() {
            must_have_room(director, chunk.len() as u64)?;
        }
        file.write_all(&chunk).await?;
    }
    // What is written last is refused here.
    file.sync_all().await?;
    Ok(received)
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

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;
    use crate::limits::TASKS_OF_A_USER;
    use crate::store::NewTask;
    use crate::testing::TestDirector;

    /// Nobody waits for a turn to send it, so each of all connections would bring megabytes.
    #[tokio::test]
    async fn where_to_fetch_a_file_is_said_in_few_words() {
        let test = TestDirector::new().await;
        let ask = async |path: &str, length: usize| {
            let body =
                serde_json::json!({"location": format!("https://127.0.0.1:1/{}", "x".repeat(length))}).to_string();
            let request = Request::builder().method("POST").uri(path).header("Authorization", test.basic("uploader"));
            let request = request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body));
            test.answer(request.unwrap()).await
        };
        for path in ["/releases", "/stemcells"] {
            let (status, told) = ask(path, LARGEST_LOCATION).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{told:.300}");
            assert!(told.contains("the request is too large"), "{told:.300}");
            assert_eq!(ask(path, 1000).await.0, StatusCode::FOUND);
        }
    }

    /// A user with the most tasks that one may have could fill the disk with uploads that are refused.
    #[tokio::test]
    async fn what_no_task_takes_leaves_no_file() {
        let test = TestDirector::new().await;
        for _ in 0..TASKS_OF_A_USER {
            let job = Job::DeleteRelease { name: "web".into(), version: None };
            let task = NewTask { job, user: "uploader".into(), context_id: String::new() };
            test.director.store.add_task(&task).await.unwrap();
        }
        for path in ["/releases", "/stemcells"] {
            let request = Request::builder().method("POST").uri(path).header("Authorization", test.basic("uploader"));
            let request = request.header(header::CONTENT_TYPE, "application/x-compressed").body(Body::from("tarball"));
            let (status, told) = test.answer(request.unwrap()).await;
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{told}");
        }
        let left = std::fs::read_dir(test.director.folders.temporary()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
