//! Who asks, and whether they may.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ApiError;
use crate::Director;
use crate::users::{Role, Users};
use windlass_connections::Guest;

/// A user who showed the right credentials.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// From the header `X-Bosh-Context-Id`.
    pub(crate) context_id: String,
}

const LONGEST_CONTEXT_ID: usize = 64;
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"BOSH Director\"");

/// Lets whoever has credentials look.
pub(super) async fn require_reader(State(director): State<Arc<Director>>, request: Request, next: Next) -> Response {
    admit(&director, Role::ReadOnly, request, next).await
}

/// Lets admins pass.
pub(super) async fn require_admin(State(director): State<Arc<Director>>, request: Request, next: Next) -> Response {
    admit(&director, Role::Admin, request, next).await
}

/// Refuses what a page of somebody else lets a browser send, with the credentials that the browser remembers. Programs send
/// neither of these headers.
pub(super) async fn refuse_other_sites(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_from_elsewhere = site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"));
    let only_looks = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_from_elsewhere || !only_looks && headers.contains_key(header::ORIGIN) {
        let reason = "requests that pages in a browser make are refused; use a client of the director";
        return ApiError::with_status(StatusCode::FORBIDDEN, 600000, reason).into_response();
    }
    next.run(request).await
}

async fn admit(director: &Director, needed: Role, mut request: Request, next: Next) -> Response {
    let guest = request.extensions().get::<Guest>().cloned();
    let mut response = match identify(director, guest.as_ref(), request.headers()).await {
        None => {
            let refusal = format!("Not authorized: '{}'\n", request.uri().path());
            (StatusCode::UNAUTHORIZED, refusal).into_response()
        }
        Some((_, role)) if role < needed => missing_scope(director).into_response(),
        Some((name, role)) => {
            // From here on the connection is not closed in favour of others.
            if let Some(guest) = guest {
                guest.trust();
            }
            let context_id = request.headers().get("x-bosh-context-id").and_then(|value| value.to_str().ok());
            let context_id = context_id.unwrap_or_default().to_owned();
            if context_id.len() > LONGEST_CONTEXT_ID {
                ApiError::bad_request(70010, "X-Bosh-Context-Id cannot be more than 64 characters long").into_response()
            } else {
                request.extensions_mut().insert(User { name, role, context_id });
                next.run(request).await
            }
        }
    };
    response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
    response
}

fn missing_scope(director: &Director) -> ApiError {
    let reason = format!("Require one of the scopes: bosh.admin, bosh.{}.admin", director.uuid);
    ApiError::unauthorized(600000, reason)
}

impl User {
    /// For what is decided only after looking at the request, such as which output of a task is asked for.
    pub(super) fn must_be_admin(&self, director: &Director) -> Result<(), ApiError> {
        if self.role == Role::Admin { Ok(()) } else { Err(missing_scope(director)) }
    }
}

/// The user whose credentials a request shows. Whoever shows wrong ones often waits for the answer.
pub(super) async fn identify(
    director: &Director,
    guest: Option<&Guest>,
    headers: &HeaderMap,
) -> Option<(String, Role)> {
    let shown = headers.get(header::AUTHORIZATION)?;
    let (name, role) = user(&director.users, shown);
    if let Some(role) = role {
        return Some((name, role));
    }
    if let Some(guest) = guest {
        let wait = director.limits.guesses.wrong(guest.address.ip(), &name, Instant::now());
        tokio::time::sleep(wait).await;
    }
    None
}

/// The name in a header with credentials, and what who shows it may do if they are right.
fn user(known: &Users, header: &HeaderValue) -> (String, Option<Role>) {
    let pair = || {
        let (scheme, credentials) = header.to_str().ok()?.split_once(' ')?;
        let decoded = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
        scheme.eq_ignore_ascii_case("basic").then_some(decoded)
    };
    let decoded = pair().unwrap_or_default();
    let (name, password) = decoded.split_once(':').unwrap_or_default();
    (name.to_owned(), known.role_of(name, password))
}
