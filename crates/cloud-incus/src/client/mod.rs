//! A small typed client of the REST API that Incus and LXD share: one list of endpoints, one project, operations that are
//! awaited, conditional changes, and errors that say whether a request had its effect.
//!
//! - [`Client`]: sending a request. What was not sent goes to the next endpoint; what was sent and has no answer is
//!   [`ClientError::LostAnswer`], unless it only asks.
//! - `endpoint`, `tls`, `content`, `answer`, `operation`: how that travels.
//! - `server`, `instances`, `volumes`, `networks`, `images`, `files`, `cluster`, `rights`: one file per kind of object.
//!
//! Written on `hyper` alone, because a process lives for one call: a general client would build its pool and read the system's
//! certificates first.

mod answer;
mod cluster;
mod content;
mod endpoint;
mod error;
mod files;
mod images;
mod instances;
mod networks;
mod operation;
mod rights;
mod server;
mod tls;
mod volumes;

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HOST, IF_MATCH};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use windlass_durable::kill_point;

pub use answer::{Answer, Metadata};
pub use cluster::{Member, Resources, Total};
pub use endpoint::Endpoint;
pub use error::ClientError;
pub use files::{Kind, Pushed};
pub use images::Image;
pub use instances::{Devices, Instance, NewInstance, Power, Settings};
pub use networks::{Network, NewNetwork};
pub use rights::Trusted;
pub use server::Server;
pub use tls::{Fingerprint, Identity};
pub use volumes::{Copied, Offer, Origin, Pool, Volume};

pub(crate) use tls::hex;

use content::Content;
use endpoint::{Connection, Failed, Received};

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until any endpoint takes a connection; a daemon that is restarted needs some seconds.
    pub reach: Duration,
    /// Until the cluster has a leader again.
    pub quorum: Duration,
    /// For one answer. What a daemon wants to know of a member that is down takes it ten seconds.
    pub answer: Duration,
    /// For an operation.
    pub operation: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            reach: Duration::from_secs(15),
            quorum: Duration::from_secs(90),
            answer: Duration::from_secs(120),
            operation: Duration::from_secs(20 * 60),
        }
    }
}

/// A server or a cluster, seen from one project.
#[derive(Debug)]
pub struct Client {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<rustls::ClientConfig>>,
    pinned: Option<Fingerprint>,
    project: String,
    patience: Patience,
    /// The endpoint that answered last, and the connection to it.
    connection: RefCell<(usize, Option<Connection>)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    content: Content,
    /// What it is for, in words that follow "cannot".
    doing: String,
}

const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Request {
    /// Of `/1.0` and these parts.
    pub(crate) fn new(method: Method, parts: &[&str], doing: impl Into<String>) -> Self {
        let path = parts.iter().map(|part| format!("/{}", utf8_percent_encode(part, UNRESERVED))).collect::<String>();
        let path = format!("/1.0{path}");
        Self { method, path, query: Vec::new(), headers: Vec::new(), content: Content::Nothing, doing: doing.into() }
    }

    pub(crate) fn get(parts: &[&str], doing: impl Into<String>) -> Self {
        Self::new(Method::GET, parts, doing)
    }

    /// Of a path that a daemon gave.
    fn at(path: String, doing: &str) -> Self {
        Self { path, ..Self::get(&[], doing) }
    }

    pub(crate) fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    /// To the member that has the object, where that matters.
    pub(crate) fn target(self, member: Option<&str>) -> Self {
        match member {
            Some(member) => self.with("target", member),
            None => self,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Only if the object is still as it was read.
    pub(crate) fn if_match(self, etag: &str) -> Self {
        self.header("if-match", etag)
    }

    pub(crate) fn json(mut self, value: &Value) -> Self {
        self.content = Content::json(value);
        self
    }

    pub(crate) fn content(mut self, content: Content) -> Self {
        self.content = content;
        self
    }

    /// How many values its answer may have.
    fn most_values(&self) -> usize {
        let is_list = self.query.iter().any(|(key, _)| *key == "recursion");
        if is_list { answer::MOST_OF_LIST } else { answer::MOST_OF_ONE }
    }

    fn only_asks(&self) -> bool {
        self.method == Method::GET
    }

    fn uri(&self) -> String {
        let pairs: Vec<String> =
            self.query.iter().map(|(key, value)| format!("{key}={}", utf8_percent_encode(value, UNRESERVED))).collect();
        if pairs.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, pairs.join("&")) }
    }
}

/// A value with what is needed to change it only if nobody else did.
#[derive(Debug, Clone, PartialEq)]
pub struct Tagged<T> {
    /// As it was read.
    pub value: T,
    /// For `If-Match`.
    pub etag: String,
}

/// How one try at one endpoint ended.
enum Tried {
    Answered(Received),
    NotSent(ClientError),
    Lost(io::Error),
}

impl Client {
    /// The server or cluster at `endpoints`; `tls` is who we are and whom we expect, for endpoints that are no sockets.
    pub fn new(
        endpoints: Vec<Endpoint>,
        tls: Option<(&Identity, &Fingerprint)>,
        project: impl Into<String>,
        patience: Patience,
    ) -> Result<Self, ClientError> {
        if endpoints.is_empty() {
            return Err(ClientError::Configuration("'endpoints' has no entry".to_owned()));
        }
        let pinned = tls.map(|(_, pinned)| pinned.clone());
        let tls = tls.map(|(identity, pinned)| tls::config(identity, pinned)).transpose()?;
        let connection = RefCell::new((0, None));
        Ok(Self { endpoints, tls, pinned, project: project.into(), patience, connection })
    }

    /// The project that everything is in.
    pub fn project(&self) -> &str {
        &self.project
    }

    /// The endpoint that answered last.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoints[self.connection.borrow().0]
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer, ClientError> {
        let request = request.with("project", self.project.clone());
        if request.only_asks() {
            return self.send_within_patience(&request).await;
        }
        kill_point("before a cluster is asked to change something");
        let answer = self.send_within_patience(&request).await;
        kill_point("after a cluster was asked to change something");
        answer
    }

    async fn send_within_patience(&self, request: &Request) -> Result<Answer, ClientError> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(100);
        loop {
            let failed = match self.round(request).await {
                Err(failed @ (ClientError::Unreachable { .. } | ClientError::NoQuorum { .. })) => failed,
                other => return other,
            };
            let patience = match failed {
                ClientError::NoQuorum { .. } => self.patience.quorum,
                _ => self.patience.reach,
            };
            if begun.elapsed() + pause > patience {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(3));
        }
    }

    /// Tries each endpoint once, the one that answered last first.
    async fn round(&self, request: &Request) -> Result<Answer, ClientError> {
        let first = self.connection.borrow().0;
        let mut reasons = Vec::new();
        let mut refusal = None;
        for index in (0..self.endpoints.len()).map(|step| (first + step) % self.endpoints.len()) {
            let endpoint = &self.endpoints[index];
            match self.try_at(index, request).await {
                Tried::Answered(Received { status, etag, body }) => {
                    match Answer::read(&request.doing, status, etag, body, request.most_values()) {
                        Err(no_quorum @ ClientError::NoQuorum { .. }) => refusal = Some(no_quorum),
                        Err(error @ ClientError::NotUnderstood { .. }) if request.only_asks() => {
                            reasons.push(format!("{endpoint}: {error}"));
                            refusal = Some(error);
                        }
                        answer => return answer,
                    }
                }
                Tried::NotSent(wrong @ ClientError::WrongServer { .. }) => refusal = Some(wrong),
                Tried::NotSent(ClientError::Unreachable { reasons: why, .. }) => reasons.extend(why),
                Tried::NotSent(other) => return Err(other),
                Tried::Lost(source) if request.only_asks() => reasons.push(format!("{endpoint}: {source}")),
                Tried::Lost(source) => return Err(ClientError::LostAnswer { doing: request.doing.clone(), source }),
            }
        }
        Err(refusal.unwrap_or_else(|| ClientError::Unreachable { doing: request.doing.clone(), reasons }))
    }

    async fn try_at(&self, index: usize, request: &Request) -> Tried {
        let endpoint = &self.endpoints[index];
        let doing = &request.doing;
        let not_sent = |error: &io::Error| {
            let reasons = vec![format!("{endpoint}: {error}")];
            Tried::NotSent(ClientError::Unreachable { doing: doing.clone(), reasons })
        };
        let (standing_at, mut connection) = self.connection.replace((index, None));
        if standing_at != index {
            connection = None;
        }
        let mut connection = match connection {
            Some(mut standing) => standing.is_usable().await.then_some(standing),
            None => None,
        };
        if connection.is_none() {
            match Connection::open(endpoint, self.tls.as_ref()).await {
                Ok(new) => connection = Some(new),
                Err(error) => {
                    return match tls::another_certificate(&error) {
                        Some(found) => Tried::NotSent(ClientError::WrongServer {
                            endpoint: endpoint.to_string(),
                            found,
                            pinned: self.pinned.as_ref().map(|pin| pin.as_str().to_owned()).unwrap_or_default(),
                        }),
                        None => not_sent(&error),
                    };
                }
            }
        }
        let Some(mut connection) = connection else { return not_sent(&io::Error::other("no connection")) };
        let http = match self.http(request) {
            Ok(http) => http,
            Err(error) => return Tried::NotSent(ClientError::Configuration(format!("cannot {doing}: {error}"))),
        };
        // An image takes as long as it takes to send.
        let patience = match request.content {
            Content::Image { .. } => self.patience.operation,
            _ => self.patience.answer,
        };
        match tokio::time::timeout(patience, connection.exchange(http)).await {
            Ok(Ok(received)) => {
                self.connection.replace((index, Some(connection)));
                Tried::Answered(received)
            }
            Ok(Err(Failed::NotSent(error))) => not_sent(&error),
            Ok(Err(Failed::Lost(error))) => Tried::Lost(error),
            Err(_) => Tried::Lost(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {patience:?}"))),
        }
    }

    fn http(&self, request: &Request) -> io::Result<hyper::Request<content::Sent>> {
        let mut http = hyper::Request::builder()
            .method(request.method.clone())
            .uri(request.uri())
            .header(HOST, "windlass")
            .header(hyper::header::USER_AGENT, "windlass");
        if let Some(kind) = request.content.kind() {
            http = http.header(CONTENT_TYPE, kind);
        }
        for (name, value) in &request.headers {
            let name = if *name == "if-match" { IF_MATCH.as_str() } else { *name };
            http = http.header(name, value);
        }
        http.body(request.content.to_send()?).map_err(io::Error::other)
    }

    /// What a request answers at once.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, request: Request) -> Result<T, ClientError> {
        let doing = request.doing.clone();
        self.ask_tagged(request, &doing).await.map(|tagged| tagged.value)
    }

    pub(crate) async fn ask_tagged<T: DeserializeOwned>(
        &self,
        request: Request,
        doing: &str,
    ) -> Result<Tagged<T>, ClientError> {
        let not_understood = |reason: String| ClientError::NotUnderstood { doing: doing.to_owned(), reason };
        match self.send(request).await? {
            Answer::Done { metadata, etag } => {
                let value = metadata.read().map_err(|error| not_understood(error.to_string()))?;
                Ok(Tagged { value, etag: etag.unwrap_or_default() })
            }
            Answer::Begun { .. } => Err(not_understood("an operation was begun, and none was expected".to_owned())),
        }
    }

    /// Sends a change and waits until it is done, whether the daemon does it at once or in an operation.
    pub(crate) async fn change(&self, request: Request) -> Result<(), ClientError> {
        let doing = request.doing.clone();
        match self.send(request).await? {
            Answer::Done { .. } => Ok(()),
            Answer::Begun { operation, .. } => self.wait(&operation, &doing).await,
        }
    }
}

#[cfg(test)]
mod tests;
