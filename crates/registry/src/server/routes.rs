//! The original's routes and envelope, and two of our own: `/health` and `/metrics`.
//!
//! Credentials are looked at before anything else, so that a stranger learns nothing and costs nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use windlass_connections::{Held, Peer};
use windlass_contract::registry::RegistryEnvelope;
use windlass_contract::{Object, Secret};

use super::Server;
use super::access::{Caller, is_address_of, shown_name};
use super::store::{Found, StoreError};
use super::turns::Turn;

/// As long as an id may be in the original's database.
const LONGEST_ID: usize = 255;

type Shared = State<Arc<Server>>;

pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/instances/{id}/settings", get(read).put(write).delete(remove))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(async || Answer::NotFound)
        .method_not_allowed_fallback(async || Answer::NotFound)
        .with_state(server)
}

#[derive(Debug)]
enum Answer {
    Done,
    Settings(Secret),
    NotFound,
    Denied,
    /// The caller's mistake.
    Wrong(StatusCode, &'static str),
    /// Ours.
    Failed(StoreError),
}

impl From<StoreError> for Answer {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

fn in_json(status: StatusCode, body: serde_json::Result<Vec<u8>>) -> Response {
    match body {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let (status, body) = match self {
            Self::Done => (StatusCode::OK, json!({"status": "ok"})),
            Self::Settings(settings) => {
                let envelope = RegistryEnvelope { status: "ok".into(), settings };
                return in_json(StatusCode::OK, serde_json::to_vec(&envelope));
            }
            Self::NotFound => (StatusCode::NOT_FOUND, json!({"status": "not_found"})),
            Self::Denied => (StatusCode::UNAUTHORIZED, json!({"status": "access_denied"})),
            Self::Wrong(status, reason) => (status, json!({"status": "error", "message": reason})),
            Self::Failed(error) => {
                let status = match error {
                    StoreError::Refused => StatusCode::INTERNAL_SERVER_ERROR,
                    StoreError::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                };
                (status, json!({"status": "error", "message": error.to_string()}))
            }
        };
        let mut response = in_json(status, serde_json::to_vec(&body));
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            let challenge = header::HeaderValue::from_static("Basic realm=\"Bosh Registry\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        if status == StatusCode::REQUEST_TIMEOUT {
            headers.insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        }
        response
    }
}

/// The instance that a path names.
struct Instance(String);

impl<S: Send + Sync> FromRequestParts<S> for Instance {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Answer> {
        let wrong = Answer::Wrong(StatusCode::BAD_REQUEST, "the id must be 1 to 255 bytes of printable UTF-8");
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) if (1..=LONGEST_ID).contains(&id.len()) && !id.contains(char::is_control) => Ok(Self(id)),
            _ => Err(wrong),
        }
    }
}

/// Who asks. A client that often shows wrong credentials waits for the answer.
async fn caller(server: &Server, peer: &Peer, headers: &HeaderMap, id: &str) -> Caller {
    let caller = server.gate.caller(headers, id);
    if caller == Caller::Stranger {
        let wait = server.guesses.wrong(peer.address.ip(), &shown_name(headers), Instant::now());
        tokio::time::sleep(wait).await;
    }
    caller
}

async fn read(
    State(server): Shared,
    Extension(peer): Extension<Peer>,
    Instance(id): Instance,
    headers: HeaderMap,
) -> Result<Response, Answer> {
    let caller = caller(&server, &peer, &headers, &id).await;
    let address = peer.address.ip();
    let trusted = match caller {
        Caller::Writer | Caller::Instance => true,
        Caller::Anonymous => server.trust_loopback && address.to_canonical().is_loopback(),
        Caller::Stranger => false,
    };
    let has_a_chance = trusted || caller == Caller::Anonymous && server.read_by_address;
    if !has_a_chance {
        return Err(Answer::Denied);
    }
    // Who waits for answers to other questions of the same VM keeps no place for that.
    let mut turn = match caller {
        Caller::Writer => None,
        Caller::Anonymous => Some(server.turns.of(&address.to_string()).await),
        _ => Some(server.turns.of(&id).await),
    };
    let found = match &turn {
        None => Found::Settings(stored(&server, &peer, &id).await?),
        Some(_) => {
            let _working = peer.working();
            server.store.get_short(&id).await?
        }
    };
    let settings = match found {
        Found::Settings(settings) => {
            turn = None;
            settings
        }
        // Those that wait for a place have none of it in memory.
        Found::Long { size } => {
            turn = server.turns.for_large(turn, size).await;
            stored(&server, &peer, &id).await?
        }
    };
    // Do not reveal to unauthenticated callers whether an instance exists.
    let settings = settings.filter(|settings| trusted || is_address_of(address, settings));
    match caller {
        Caller::Writer => server.metrics.count_for(&id, |counts| counts.lookups += 1),
        _ => server.metrics.count_for(&id, |counts| counts.reads += 1),
    }
    let answer = settings.map(Answer::Settings).ok_or(Answer::NotFound).into_response();
    // A large one is in memory until it was sent.
    Ok(match turn {
        None => answer,
        Some(turn) => answer.map(|body| held(&server, &peer, body, turn)),
    })
}

fn held(server: &Server, peer: &Peer, body: Body, turn: Turn) -> Body {
    let place = turn.place();
    let body = Held::new(body, turn);
    server.turns.watch(place, body.taken(), peer);
    Body::new(body)
}

async fn stored(server: &Server, peer: &Peer, id: &str) -> Result<Option<Secret>, StoreError> {
    let _working = peer.working();
    server.store.get(id).await
}

async fn write(
    State(server): Shared,
    Extension(peer): Extension<Peer>,
    Instance(id): Instance,
    headers: HeaderMap,
    body: Body,
) -> Result<Answer, Answer> {
    if caller(&server, &peer, &headers, &id).await != Caller::Writer {
        return Err(Answer::Denied);
    }
    let _working = peer.working();
    let settings = settings(&server, &headers, body).await?;
    server.store.set(&id, Some(settings)).await?;
    server.metrics.writes.fetch_add(1, Ordering::Relaxed);
    server.metrics.count_for(&id, |counts| counts.writes += 1);
    tracing::info!(instance = id, "stored settings");
    Ok(Answer::Done)
}

async fn remove(
    State(server): Shared,
    Extension(peer): Extension<Peer>,
    Instance(id): Instance,
    headers: HeaderMap,
) -> Result<Answer, Answer> {
    if caller(&server, &peer, &headers, &id).await != Caller::Writer {
        return Err(Answer::Denied);
    }
    let _working = peer.working();
    server.store.set(&id, None).await?;
    server.metrics.writes.fetch_add(1, Ordering::Relaxed);
    server.metrics.count_for(&id, |counts| counts.deletions += 1);
    tracing::info!(instance = id, "removed settings");
    Ok(Answer::Done)
}

/// Reads settings whole or not at all. They are kept as they came, but what no agent could boot from is refused now.
async fn settings(server: &Server, headers: &HeaderMap, body: Body) -> Result<Secret, Answer> {
    let limits = &server.limits;
    let too_large = Answer::Wrong(StatusCode::PAYLOAD_TOO_LARGE, "the settings are too large");
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limits.body) {
        return Err(too_large);
    }
    let bytes = match tokio::time::timeout(limits.body_patience, axum::body::to_bytes(body, limits.body)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) if length.is_none() => return Err(too_large),
        Ok(Err(_)) => return Err(Answer::Wrong(StatusCode::BAD_REQUEST, "the settings did not arrive whole")),
        Err(_) => return Err(Answer::Wrong(StatusCode::REQUEST_TIMEOUT, "the settings did not arrive in time")),
    };
    let no_settings = Answer::Wrong(StatusCode::BAD_REQUEST, "settings are a JSON object");
    match String::from_utf8(bytes.into()) {
        Ok(text) if serde_json::from_str::<Object>(&text).is_ok() => Ok(Secret::new(text)),
        _ => Err(no_settings),
    }
}

async fn health(State(server): Shared) -> Result<Answer, Answer> {
    // No instance has this id, but the database has to say so.
    server.store.get("").await?;
    Ok(Answer::Done)
}

async fn metrics(State(server): Shared) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], server.metrics.text()).into_response()
}
