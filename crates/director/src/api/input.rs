//! What requests bring along: words of the query, JSON bodies.

use std::collections::BTreeMap;
use std::error::Error;

use axum::body::Bytes;
use axum::extract::{FromRequest, Query, Request};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use windlass_connections::ReceiveError;
use windlass_contract::{explain, has_more_values_than, zero_byte_in};
use windlass_operations::clock;

use super::{ApiError, LARGEST_DOCUMENT};

/// How many values and keys a body of JSON may have: an answer to every problem of 20,000 instances has fewer.
const MOST_VALUES: usize = 50_000;

/// Words of a query. An empty one counts as none: clients send `name=` when no name was given.
#[derive(Debug, Default)]
pub(super) struct Words(BTreeMap<String, String>);

pub(super) type Parameters = Query<Words>;

impl<'de> serde::Deserialize<'de> for Words {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self)
    }
}

impl Words {
    /// A word that was given.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|word| !word.is_empty())
    }

    /// Whether it is `true`.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.get(key) == Some("true")
    }

    /// A time, if given: seconds, or any of the ways in which clients write times.
    pub(super) fn time(&self, key: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text: &str| {
            text.parse().ok().or_else(|| clock::parse(text)).ok_or_else(|| {
                let reason = format!("'{key}' is '{text}', not a time such as 2024-01-31 12:00:00 UTC");
                ApiError::bad_request(40005, reason)
            })
        };
        self.get(key).map(parse).transpose()
    }

    /// A number, if given.
    pub(super) fn number(&self, key: &str, code: u32) -> Result<Option<i64>, ApiError> {
        let given = self.get(key).map(|word| word.parse::<i64>().ok().filter(|number| *number >= 0).ok_or(word));
        given
            .transpose()
            .map_err(|word| ApiError::bad_request(code, format!("'{key}' must be a number from 0 on, not '{word}'")))
    }
}

/// A body of JSON, whatever it says that it is. What is wrong with it is answered with its place.
#[derive(Debug)]
pub(super) struct JsonBody<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        must_be_small(&request)?;
        let body = Bytes::from_request(request, state)
            .await
            .map_err(|rejection| not_received(rejection.status(), 40000, &rejection))?;
        must_have_few_values(&body)?;
        must_have_no_zero_byte(&body)?;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| ApiError::with_status(StatusCode::BAD_REQUEST, 40000, format!("the body's JSON: {error}")))
    }
}

/// Two megabytes of JSON may be half a million values, which take a hundred times as much memory.
fn must_have_few_values(body: &[u8]) -> Result<(), ApiError> {
    if has_more_values_than(body, MOST_VALUES) {
        let reason = format!("the body has more than {MOST_VALUES} values and keys");
        return Err(ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, 40000, reason));
    }
    Ok(())
}

/// What no database takes is no name, and nothing else that is asked for.
fn must_have_no_zero_byte(body: &[u8]) -> Result<(), ApiError> {
    match zero_byte_in(body, 0).is_some() {
        true => Err(ApiError::bad_request(40000, "the body has a text with a zero byte; leave it out")),
        false => Ok(()),
    }
}

/// Refuses paths and queries with a zero byte.
pub(super) async fn refuse_zero_bytes(request: Request, next: Next) -> Response {
    match request.uri().path_and_query().is_some_and(|asked| asked.as_str().contains("%00")) {
        true => ApiError::bad_request(40000, "the path or the query has a zero byte").into_response(),
        false => next.run(request).await,
    }
}

/// A body of text, as large as a document may be.
#[derive(Debug)]
pub(super) struct TextBody(pub(super) String);

impl<S: Send + Sync> FromRequest<S> for TextBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        must_be_small(&request)?;
        let text = String::from_request(request, state).await;
        text.map(Self).map_err(|rejection| not_received(rejection.status(), 440001, &rejection))
    }
}

/// A request when all of its body has come.
pub(super) async fn whole(request: Request) -> Result<Request, ApiError> {
    must_be_small(&request)?;
    let (parts, body) = request.into_parts();
    let body = Bytes::from_request(Request::from_parts(parts.clone(), body), &())
        .await
        .map_err(|rejection| not_received(rejection.status(), 40000, &rejection))?;
    Ok(Request::from_parts(parts, body.into()))
}

/// What says that it is too large is refused before it comes.
fn must_be_small(request: &Request) -> Result<(), ApiError> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match length.and_then(|length| length.parse::<usize>().ok()) {
        Some(length) if length > LARGEST_DOCUMENT => {
            let reason = format!("the body has {length} bytes; {LARGEST_DOCUMENT} are the most");
            Err(ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, 40000, reason))
        }
        _ => Ok(()),
    }
}

/// A body that did not come in time has a status of its own.
fn not_received(status: StatusCode, code: u32, error: &(dyn Error + 'static)) -> ApiError {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let fell_silent = |error: &(dyn Error + 'static)| matches!(error.downcast_ref(), Some(ReceiveError::Silence(_)));
    let status = if causes.into_iter().any(fell_silent) { StatusCode::REQUEST_TIMEOUT } else { status };
    ApiError::with_status(status, code, format!("the body cannot be read: {}", explain(error)))
}
