//! What machines ask that watch the director: whether it is well, and what it counted.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{ApiError, Shared};
use crate::Director;

/// Without credentials, and without saying anything but whether.
pub(super) async fn health(State(director): Shared) -> Response {
    match director.store.answers().await {
        true => (StatusCode::OK, "ok\n").into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response(),
    }
}

pub(super) async fn metrics(State(director): Shared) -> Result<Response, ApiError> {
    let counts = director.store.counts().await?;
    let text = director.metrics.text(&counts, &director.health.all());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Counts every request with its answer.
pub(super) async fn count(State(director): State<Arc<Director>>, request: Request, next: Next) -> Response {
    let (method, begun) = (request.method().clone(), Instant::now());
    let response = next.run(request).await;
    director.metrics.answered(method.as_str(), response.status().as_u16(), begun.elapsed());
    response
}
