//! Who asks.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::ApiError;
use crate::{Credentials, Director};

/// A user who showed the right credentials.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    /// From the header `X-Bosh-Context-Id`.
    pub(crate) context_id: String,
}

const LONGEST_CONTEXT_ID: usize = 64;

/// Lets a request pass only with the right credentials.
pub(super) async fn require(State(director): State<Arc<Director>>, mut request: Request, next: Next) -> Response {
    let Some(name) = user(&director.admin, request.headers()) else {
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"BOSH Director\"")];
        let refusal = format!("Not authorized: '{}'\n", request.uri().path());
        return (StatusCode::UNAUTHORIZED, challenge, refusal).into_response();
    };
    let context_id = request.headers().get("x-bosh-context-id").and_then(|value| value.to_str().ok()).unwrap_or("");
    if context_id.len() > LONGEST_CONTEXT_ID {
        return ApiError::bad_request(70010, "X-Bosh-Context-Id cannot be more than 64 characters long")
            .into_response();
    }
    let user = User { name, context_id: context_id.to_owned() };
    request.extensions_mut().insert(user);
    next.run(request).await
}

/// The user whose credentials a request shows.
pub(super) fn user(known: &Credentials, headers: &HeaderMap) -> Option<String> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credentials) = header.split_once(' ')?;
    let decoded = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    // Both are compared in constant time, so that an answer's delay says nothing about either.
    let right =
        name.as_bytes().ct_eq(known.user.as_bytes()) & password.as_bytes().ct_eq(known.password.reveal().as_bytes());
    (scheme.eq_ignore_ascii_case("basic") && bool::from(right)).then(|| name.to_owned())
}
