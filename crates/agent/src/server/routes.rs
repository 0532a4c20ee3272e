//! What can be asked for over HTTPS, and by whom.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;
use windlass_connections::{CutOff, Peer, Received, Responder};
use windlass_contract::explain;
use windlass_contract::way_in::AGENT_PATH;

use super::blobs::{self, FileBody};
use crate::agent::{Agent, Answer};
use crate::way_in::{self, Conversation};

/// The size of a message; blobs have no limit but the disk.
const MESSAGE_LIMIT: usize = 64 * 1024 * 1024;
/// How long a message may take to arrive.
const MESSAGE_PATIENCE: Duration = Duration::from_secs(60);

/// How long a wrong password waits for its answer, one after the other: where no client certificate is asked for, strangers could
/// guess thousands in a second. The right one never waits.
const GUESS: Duration = Duration::from_millis(100);
static GUESSES: Mutex<()> = Mutex::const_new(());

/// The body of an answer.
pub(super) type Body = Either<Full<Bytes>, Either<FileBody, Conversation>>;

#[derive(Clone)]
pub(super) struct Routes {
    pub(super) agent: Arc<Agent>,
}

impl Responder for Routes {
    type Body = Body;

    /// Another entrance may have taken the place of the first.
    fn tls(&self) -> Option<TlsAcceptor> {
        Some(TlsAcceptor::from(self.agent.gate.current().tls.clone()))
    }

    /// Unknown paths are not found, also without a password; everything else wants the password first.
    async fn answer(&self, peer: &Peer, request: Request<Received>) -> Response<Body> {
        let path = request.uri().path();
        if path == "/blobs" {
            let mut answer = empty(StatusCode::TEMPORARY_REDIRECT);
            answer.headers_mut().insert(LOCATION, HeaderValue::from_static("/blobs/"));
            return answer;
        }
        let blob = path.strip_prefix("/blobs/");
        let is_way_in = path == AGENT_PATH;
        if path != "/agent" && blob.is_none() && !is_way_in {
            return empty(StatusCode::NOT_FOUND);
        }
        if !self.is_authorized(&request) {
            if request.headers().contains_key(AUTHORIZATION) {
                let _turn = GUESSES.lock().await;
                tokio::time::sleep(GUESS).await;
            }
            let mut answer = empty(StatusCode::UNAUTHORIZED);
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"\""));
            return answer;
        }
        peer.trust();
        if is_way_in {
            return match request.method() {
                &Method::POST => self.way_in(request).await,
                _ => empty(StatusCode::NOT_FOUND),
            };
        }
        let folder = self.agent.base.blobs();
        match (blob.map(blobs::id), request.method()) {
            (None, &Method::POST) => self.message(request).await,
            (Some(Some(id)), &Method::GET) => blobs::get(&folder.join(id)).await,
            (Some(Some(id)), &Method::PUT) => blobs::put(&folder.join(id), request.into_body()).await,
            (Some(None), &Method::PUT) => text(StatusCode::INTERNAL_SERVER_ERROR, "the path ends in no blob id"),
            _ => empty(StatusCode::NOT_FOUND),
        }
    }
}

impl Routes {
    fn is_authorized(&self, request: &Request<Received>) -> bool {
        let entrance = self.agent.gate.current();
        let expected = entrance.mbus.authorization.reveal().as_bytes();
        request.headers().get(AUTHORIZATION).is_some_and(|given| given.as_bytes().ct_eq(expected).into())
    }

    async fn way_in(&self, request: Request<Received>) -> Response<Body> {
        match way_in::open(&self.agent, request.into_body()).await {
            Ok(conversation) => Response::new(Either::Right(Either::Right(conversation))),
            Err(error) => text(StatusCode::UNPROCESSABLE_ENTITY, explain(&error)),
        }
    }

    async fn message(&self, request: Request<Received>) -> Response<Body> {
        let read = Limited::new(request.into_body(), MESSAGE_LIMIT).collect();
        let body = match tokio::time::timeout(MESSAGE_PATIENCE, read).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => return empty(StatusCode::BAD_REQUEST),
        };
        let reply = match self.agent.answer(&body).await {
            Answer::Reply(reply) => reply,
            Answer::NoMessage => return empty(StatusCode::INTERNAL_SERVER_ERROR),
            Answer::CutOff => {
                let mut answer = empty(StatusCode::OK);
                answer.extensions_mut().insert(CutOff);
                return answer;
            }
        };
        match serde_json::to_vec(&reply) {
            Ok(reply) => {
                let mut answer = Response::new(Either::Left(Full::new(Bytes::from(reply))));
                answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                answer
            }
            Err(_) => empty(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// An answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    text(status, "")
}

/// An answer for people.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut answer = Response::new(Either::Left(Full::new(Bytes::from(text.into()))));
    *answer.status_mut() = status;
    answer
}
