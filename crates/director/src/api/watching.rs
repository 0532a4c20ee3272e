//! What machines ask that watch the director: whether it is well, and what it counted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::DiskIsFull;
use super::{ApiError, Shared};
use crate::Director;
use crate::limits::DirectorHealth;
use crate::store::Store;
use crate::webhook;
use windlass_contract::explain;

/// How long the database may take to write a line before it counts as silent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Without credentials, and without saying anything but whether.
pub(super) async fn health(State(director): Shared) -> Response {
    match director.limits.health(look(&director.store)).await {
        DirectorHealth::Well => (StatusCode::OK, "ok\n").into_response(),
        DirectorHealth::Full => (StatusCode::INSUFFICIENT_STORAGE, "the director's disk is full\n").into_response(),
        DirectorHealth::Silent => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response(),
    }
}

async fn look(store: &Store) -> DirectorHealth {
    match tokio::time::timeout(PATIENCE, store.try_writing()).await {
        Ok(Ok(())) => DirectorHealth::Well,
        Ok(Err(error)) if error.is_full() => DirectorHealth::Full,
        _ => DirectorHealth::Silent,
    }
}

pub(super) async fn metrics(State(director): Shared) -> Result<Response, ApiError> {
    let counts = director.store.counts().await?;
    let text = director.metrics.text(&counts, &director.health.all());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Whether the webhook takes what it is sent.
pub(super) async fn test_webhook(State(director): Shared) -> Result<StatusCode, ApiError> {
    match webhook::test(&director).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(ApiError::bad_request(100, explain(&error))),
    }
}

/// Counts every request with its answer.
pub(super) async fn count(State(director): State<Arc<Director>>, request: Request, next: Next) -> Response {
    let (method, begun) = (request.method().clone(), Instant::now());
    let response = next.run(request).await;
    if response.extensions().get::<DiskIsFull>().is_some() {
        director.limits.note_full();
    }
    director.metrics.answered(method.as_str(), response.status().as_u16(), begun.elapsed());
    response
}
