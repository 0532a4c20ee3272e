//! Who asks, and whether they may.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::ApiError;
use super::input::whole;
use super::permissions::{self, Access, Permission};
use crate::Director;
use crate::users::{Scopes, Users};
use windlass_connections::Peer;

/// A user who showed the right credentials.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) scopes: Arc<Scopes>,
    /// From the header `X-Bosh-Context-Id`.
    pub(crate) context_id: String,
}

const LONGEST_CONTEXT_ID: usize = 64;
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"BOSH Director\"");

/// Lets requests through that have a permission.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) director: Arc<Director>,
    pub(super) permission: Permission,
}

/// Lets users pass who may do what the route needs.
pub(super) async fn admit(
    State(gate): State<Gate>,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let director = &gate.director;
    let is_download = request.uri().path().starts_with("/resources/");
    let peer = request.extensions().get::<Peer>().cloned();
    let mut response = match identify(director, peer.as_ref(), request.headers()).await {
        None => {
            let refusal = format!("Not authorized: '{}'\n", request.uri().path());
            (StatusCode::UNAUTHORIZED, refusal).into_response()
        }
        Some((name, scopes)) => {
            // From here on the connection is not closed in favour of others, unless this user has very many.
            if let Some(peer) = peer {
                peer.trust_user(&name);
            }
            let context_id = request.headers().get("x-bosh-context-id").and_then(|value| value.to_str().ok());
            let user = User { name, scopes, context_id: context_id.unwrap_or_default().to_owned() };
            let deployment = parameters.iter().find(|(key, _)| *key == "deployment").map(|(_, value)| value);
            match permissions::check(director, gate.permission, &user, deployment, request.uri()).await {
                Err(refusal) => refusal.into_response(),
                Ok(()) if user.context_id.len() > LONGEST_CONTEXT_ID => {
                    let reason = "X-Bosh-Context-Id cannot be more than 64 characters long";
                    ApiError::bad_request(70010, reason).into_response()
                }
                Ok(()) => {
                    request.extensions_mut().insert(user);
                    next.run(request).await
                }
            }
        }
    };
    // As BOSH: its web server sends files without asking the director about the rest.
    if !(is_download && response.status().is_success()) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
    }
    response
}

/// Looks again whether a user may, when it is their turn and the whole request is here, and after what they read was read: until then
/// the deployment may have been deleted, and made again by others.
pub(super) async fn admit_again(
    State(gate): State<Gate>,
    parameters: RawPathParams,
    request: Request,
    next: Next,
) -> Response {
    let Permission::Deployment(access) = gate.permission else { return next.run(request).await };
    let Some(user) = request.extensions().get::<User>().cloned() else { return next.run(request).await };
    // Nobody reads the body of who only looks, and others wait for their turn.
    let request = if only_looks(request.method()) { Ok(request) } else { whole(request).await };
    let request = match request {
        Ok(request) => request,
        Err(error) => return error.into_response(),
    };
    let deployment = parameters.iter().find(|(key, _)| *key == "deployment").map(|(_, value)| value);
    let uri = request.uri().clone();
    let look = async || permissions::check(&gate.director, gate.permission, &user, deployment, &uri).await;
    if let Err(refusal) = look().await {
        return refusal.into_response();
    }
    let answer = next.run(request).await;
    match access {
        // What was done was done.
        Access::Admin => answer,
        Access::Read | Access::Compare => match look().await {
            Ok(()) => answer,
            Err(refusal) => refusal.into_response(),
        },
    }
}

/// Refuses what a page of somebody else lets a browser send, with the credentials that the browser remembers. Programs send neither of the
/// two headers, and none of the kinds of bodies that forms have.
pub(super) async fn refuse_other_sites(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_from_elsewhere = site.is_some_and(|site| !matches!(site, b"none" | b"same-origin"));
    if is_from_elsewhere || !only_looks(request.method()) && headers.contains_key(header::ORIGIN) {
        let reason = "requests that pages in a browser make are refused; use a client of the director";
        return ApiError::with_status(StatusCode::FORBIDDEN, 600000, reason).into_response();
    }
    const OF_FORMS: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];
    let kinds = headers.get_all(header::CONTENT_TYPE).iter().map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let kinds = kinds.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let mut kinds = kinds.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let of_form = kinds.find(|kind| OF_FORMS.contains(kind));
    if let Some(kind) = of_form
        && !only_looks(request.method())
    {
        let reason =
            format!("a body of the type '{kind}' is not taken; say 'Content-Type: text/yaml' or 'application/json'");
        return ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, 600000, reason).into_response();
    }
    next.run(request).await
}

/// Whether a request changes nothing: `HEAD` is answered as `GET`, without the body.
pub(super) fn only_looks(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// The user whose credentials a request shows. A client that often shows wrong ones waits for the answer.
pub(super) async fn identify(
    director: &Director,
    peer: Option<&Peer>,
    headers: &HeaderMap,
) -> Option<(String, Arc<Scopes>)> {
    let shown = headers.get(header::AUTHORIZATION)?;
    let (name, scopes) = user(&director.users, shown);
    if let Some(scopes) = scopes {
        return Some((name, scopes));
    }
    if let Some(peer) = peer {
        let wait = director.limits.guesses.wrong(peer.address.ip(), &name, Instant::now());
        tokio::time::sleep(wait).await;
    }
    None
}

/// The name in a header with credentials, and what who shows it may do if they are right.
fn user(known: &Users, header: &HeaderValue) -> (String, Option<Arc<Scopes>>) {
    let pair = || {
        let (scheme, credentials) = header.to_str().ok()?.split_once(' ')?;
        let decoded = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
        scheme.eq_ignore_ascii_case("basic").then_some(decoded)
    };
    let decoded = pair().unwrap_or_default();
    let (name, password) = decoded.split_once(':').unwrap_or_default();
    (name.to_owned(), known.scopes_of(name, password).cloned())
}
