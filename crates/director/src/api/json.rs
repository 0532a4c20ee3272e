//! Answers in JSON.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::ApiError;

/// A value that becomes the body of an answer.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        written_json(serde_json::to_vec(&self.0)).unwrap_or_else(IntoResponse::into_response)
    }
}

/// An answer whose JSON was written already, because it may be large.
pub(super) fn written_json(written: serde_json::Result<Vec<u8>>) -> Result<Response, ApiError> {
    let written = written.map_err(|error| ApiError::internal(&error))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], written).into_response())
}
