//! Errors of the API: a status, a code of the original's, and words.

use std::io::ErrorKind;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use windlass_contract::explain;

use super::Json;
use crate::store::StoreError;

/// An answer that says no.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: u32,
    description: String,
    disk_is_full: bool,
}

/// What an answer says beside its status when something did not fit on the disk, or the database's: a limit of ours is not meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskIsFull;

impl ApiError {
    pub(crate) fn bad_request(code: u32, description: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code, description: description.into(), disk_is_full: false }
    }

    pub(crate) fn not_found(code: u32, description: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, code, description: description.into(), disk_is_full: false }
    }

    pub(crate) fn unauthorized(code: u32, description: impl Into<String>) -> Self {
        Self { status: StatusCode::UNAUTHORIZED, code, description: description.into(), disk_is_full: false }
    }

    pub(crate) fn with_status(status: StatusCode, code: u32, description: impl Into<String>) -> Self {
        Self { status, code, description: description.into(), disk_is_full: false }
    }

    /// There is no room; clients are told, because nobody but an operator can help.
    fn full(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = explain(error), "the disk is full");
        let description = "the director's disk is full, and nothing was changed; make room and try again".to_owned();
        Self { status: StatusCode::INSUFFICIENT_STORAGE, code: 100, description, disk_is_full: true }
    }

    /// The director's own fault: the cause goes to its log, not to the client.
    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = explain(error), "a request failed");
        let description = "the director failed; its log says why".to_owned();
        Self::with_status(StatusCode::INTERNAL_SERVER_ERROR, 100, description)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            error if error.is_full() => Self::full(&error),
            error if error.is_away() => {
                tracing::error!(error = explain(&error), "the database is away");
                let description = "the director's database does not answer; try again";
                Self::with_status(StatusCode::SERVICE_UNAVAILABLE, 100, description)
            }
            error if error.is_overtaken() => {
                let description = "another director took over, and nothing was changed; ask that one";
                Self::with_status(StatusCode::SERVICE_UNAVAILABLE, 100, description)
            }
            // The uploader can mend it; the director works as it should.
            error @ (StoreError::TooManySpecs(_) | StoreError::TooLargeLinks(_)) => {
                Self::bad_request(40000, error.to_string())
            }
            error => Self::internal(&error),
        }
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::full(&error),
            _ => Self::internal(&error),
        }
    }
}

impl IntoResponse for ApiError {
    /// Compact, because a client looks for `"code":440012` byte by byte.
    fn into_response(self) -> Response {
        let body = serde_json::json!({"code": self.code, "description": self.description});
        let mut response = (self.status, Json(body)).into_response();
        if self.disk_is_full {
            response.extensions_mut().insert(DiskIsFull);
        }
        response
    }
}
