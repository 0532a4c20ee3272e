//! A handle on one agent: messages, replies, tasks.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use serde_json::Value;
use windlass_contract::agent::{DIRECTOR_PROTOCOL, Message, Reply, TaskHandle};
use windlass_contract::{AgentId, Secret, shortened};

use crate::connection::{Body, Connections};
use crate::error::{CallError, Stage, TransportError};
use crate::limits;
use crate::permission::Permission;
use crate::tls::{ClientTls, TlsError, client_config};

/// Talks to agents: one for many.
#[derive(Debug, Clone)]
pub struct AgentClient {
    tls: Arc<ClientConfig>,
    permission: Permission,
}

/// Where an agent is, and how to log in to it.
#[derive(Debug, Clone)]
pub struct AgentEndpoint {
    /// The agent; its certificate must name it.
    pub agent_id: AgentId,
    /// Tried in turn.
    pub addresses: Vec<IpAddr>,
    pub port: u16,
    /// The user of the mbus URL.
    pub user: String,
    /// The password of the mbus URL.
    pub password: Secret,
}

/// How long a caller waits.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For the answer to one message.
    pub message: Duration,
    /// For an agent that stopped answering in the middle of a task, as it does when it restarts.
    pub silence: Duration,
    /// For the end of a task.
    pub task: Duration,
}

impl Default for Deadlines {
    /// What directors use: 45 s for a message, five of these for a silent agent; a drain may take hours.
    fn default() -> Self {
        Self {
            message: Duration::from_secs(45),
            silence: Duration::from_secs(225),
            task: Duration::from_secs(4 * 60 * 60),
        }
    }
}

/// How long an agent may take to end a task that it was asked to end: scripts have 10 s for it.
const ENDING: Duration = Duration::from_secs(30);
const FIRST_POLL: Duration = Duration::from_millis(5);
const SLOWEST_POLL: Duration = Duration::from_secs(1);

/// One agent. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Agent {
    shared: Arc<Shared>,
    deadlines: Deadlines,
    cancellation: Cancellation,
}

/// Whether nobody wants the end of what an agent does any more. By default somebody always does.
#[derive(Clone, Default)]
pub struct Cancellation(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Cancellation {
    /// Looked at from time to time while an agent works.
    pub fn when(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_cancelled)))
    }

    fn has_come(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }
}

impl std::fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cancellation").field(&self.has_come()).finish()
    }
}

#[derive(Debug)]
struct Shared {
    id: AgentId,
    /// What was dialled, for people.
    address: String,
    host: HeaderValue,
    authorization: HeaderValue,
    connections: Arc<Connections>,
    permission: Permission,
}

impl AgentClient {
    /// Reads the caller's certificates.
    pub fn new(tls: ClientTls) -> Result<Self, TlsError> {
        Ok(Self { tls: client_config(&tls)?, permission: Permission::default() })
    }

    /// The same that asks before every message whether it may speak.
    pub fn asking_first(self, permission: Permission) -> Self {
        Self { permission, ..self }
    }

    /// A handle on one agent; nothing is dialled before the first message.
    pub fn agent(&self, endpoint: AgentEndpoint) -> Agent {
        let dns_name = endpoint.agent_id.dns_name();
        self.agent_named(endpoint, dns_name)
    }

    /// The same for an agent whose certificate was made by somebody else, for another name or an address.
    pub fn agent_named(&self, endpoint: AgentEndpoint, dns_name: String) -> Agent {
        let AgentEndpoint { agent_id, addresses, port, user, password } = endpoint;
        let addresses: Vec<SocketAddr> = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        let address = match addresses.as_slice() {
            [] => "no address".to_owned(),
            some => some.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", "),
        };
        let host = HeaderValue::try_from(&dns_name).unwrap_or_else(|_| HeaderValue::from_static("agent.bosh-internal"));
        let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{}", password.reveal()));
        let mut authorization =
            HeaderValue::try_from(format!("Basic {credentials}")).unwrap_or_else(|_| HeaderValue::from_static("Basic"));
        authorization.set_sensitive(true);
        let connections = Arc::new(Connections::new(addresses, ServerName::try_from(dns_name).ok(), self.tls.clone()));
        let permission = self.permission.clone();
        let shared = Shared { id: agent_id, address, host, authorization, connections, permission };
        Agent { shared: Arc::new(shared), deadlines: Deadlines::default(), cancellation: Cancellation::default() }
    }
}

impl Agent {
    /// The same agent with other deadlines.
    pub fn with_deadlines(&self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self.clone() }
    }

    /// The same agent, which is told to end its tasks when they are cancelled. They fail with [`CallError::Cancelled`] then, also
    /// with agents that cannot end them.
    pub fn until(&self, cancellation: Cancellation) -> Self {
        Self { cancellation, ..self.clone() }
    }

    pub fn id(&self) -> &AgentId {
        &self.shared.id
    }

    /// What is dialled.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// Sends any message; when the agent made a task of it, waits for the task's end.
    pub async fn call(&self, method: &str, arguments: Vec<Value>) -> Result<Value, CallError> {
        match self.begin(method, arguments).await? {
            Begun::Done(value) => Ok(value),
            Begun::Task(task) => self.finish(&task).await,
        }
    }

    /// Sends any message, and does not wait for the end of a task that the agent made of it.
    pub async fn begin(&self, method: &str, arguments: Vec<Value>) -> Result<Begun, CallError> {
        Ok(match self.send(method, arguments, self.deadlines.message, limits::bytes_of(method)).await? {
            Answer::Done(value) => Begun::Done(value),
            Answer::Task(id) => Begun::Task(Task { id, method: method.to_owned() }),
        })
    }

    /// Waits for the end of a task, also through a restart of the agent.
    pub async fn finish(&self, Task { id: task, method }: &Task) -> Result<Value, CallError> {
        let started = Instant::now();
        let mut heard = started;
        let mut pause = FIRST_POLL;
        let mut told_to_end: Option<Instant> = None;
        let cancelled = || CallError::Cancelled { agent: self.shared.id.clone(), method: method.clone() };
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_POLL);
            match told_to_end {
                None if self.cancellation.has_come() => {
                    let ending = self.send(
                        "cancel_task",
                        vec![Value::from(task.as_str())],
                        self.deadlines.message,
                        limits::bytes_of("cancel_task"),
                    );
                    if let Err(error) = ending.await {
                        tracing::warn!(%error, "what the agent does was cancelled, and may go on");
                        return Err(cancelled());
                    }
                    (told_to_end, pause) = (Some(Instant::now()), FIRST_POLL);
                }
                Some(told) if told.elapsed() >= ENDING => return Err(cancelled()),
                _ => {}
            }
            // The last answer is the result of the action.
            let (arguments, most) = (vec![Value::from(task.as_str())], limits::bytes_of(method));
            match self.send("get_task", arguments, self.deadlines.message, most).await {
                Ok(Answer::Done(value)) => return Ok(value),
                Ok(Answer::Task(_)) => heard = Instant::now(),
                Err(error) if error.is_transient() && heard.elapsed() < self.deadlines.silence => {}
                Err(CallError::Exception { .. }) if told_to_end.is_some() => return Err(cancelled()),
                Err(CallError::Exception { agent, message, .. }) => {
                    let method = method.clone();
                    return Err(CallError::Exception { agent, method, message });
                }
                Err(error) => return Err(error),
            }
            if started.elapsed() >= self.deadlines.task {
                return Err(self.timed_out(method, self.deadlines.task));
            }
        }
    }

    /// Sends one message and takes its answer, of so many bytes at most, apart.
    pub(crate) async fn send(
        &self,
        method: &str,
        arguments: Vec<Value>,
        patience: Duration,
        most: usize,
    ) -> Result<Answer, CallError> {
        self.must_be_permitted(method).await?;
        tracing::debug!(agent = %self.shared.id, method, "asking the agent");
        let message = self.message(method, arguments)?;
        let request = || self.request(Method::POST, "/agent", message.clone());
        let exchange = async {
            let connections = &self.shared.connections;
            connections.read(connections.exchange(&request, is_repeatable(method)).await?, most).await
        };
        let answer = match tokio::time::timeout(patience, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err((_, TransportError::TooLarge(most)))) => {
                return Err(self.bad_reply(method, format!("more than {most} bytes")));
            }
            Ok(Err((stage, source))) => return Err(self.unreachable(stage, source)),
            Err(_) => return Err(self.timed_out(method, patience)),
        };
        match answer.status {
            StatusCode::OK => {}
            other => return Err(self.refused(method, other)),
        }
        if limits::has_too_many_values(&answer.body) {
            return Err(self.bad_reply(method, "more values than an answer has".to_owned()));
        }
        match serde_json::from_slice::<Reply>(&limits::without_zero_bytes(answer.body.into())) {
            Ok(Reply::Value { value }) => {
                self.shared.connections.reached(Stage::Pong);
                Ok(Answer::of(value))
            }
            Ok(Reply::Exception { exception }) => Err(CallError::Exception {
                agent: self.shared.id.clone(),
                method: method.to_owned(),
                message: shortened(exception.message, limits::LONGEST_WORDS),
            }),
            Err(_) => Err(self.bad_reply(method, "neither a value nor an exception".to_owned())),
        }
    }

    /// Whether the caller may still speak.
    pub(crate) async fn must_be_permitted(&self, method: &str) -> Result<(), CallError> {
        match self.shared.permission.is_given().await {
            true => Ok(()),
            false => Err(CallError::NotPermitted { agent: self.shared.id.clone(), method: method.to_owned() }),
        }
    }

    /// What a status means that is none of success.
    pub(crate) fn refused(&self, method: &str, status: StatusCode) -> CallError {
        if status == StatusCode::UNAUTHORIZED {
            let (agent, address) = (self.shared.id.clone(), self.shared.address.clone());
            return CallError::Unauthorized { agent, address };
        }
        self.bad_reply(method, format!("HTTP status {status}"))
    }

    fn message(&self, method: &str, arguments: Vec<Value>) -> Result<Bytes, CallError> {
        let message = Message {
            method: method.to_owned(),
            arguments,
            reply_to: format!("windlass.{}", uuid::Uuid::new_v4()),
            protocol: Some(DIRECTOR_PROTOCOL),
        };
        let unsendable =
            |error: serde_json::Error| self.unreachable(Stage::VmCreated, TransportError::Broken(error.into()));
        serde_json::to_vec(&message).map(Bytes::from).map_err(unsendable)
    }

    fn request(&self, method: Method, path: &'static str, body: Bytes) -> Request<Body> {
        let mut request = self.request_with(
            method,
            Uri::from_static(path),
            Full::new(body).map_err(|never| match never {}).boxed_unsync(),
        );
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    pub(crate) fn request_with(&self, method: Method, uri: Uri, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        request.headers_mut().insert(HOST, self.shared.host.clone());
        request.headers_mut().insert(AUTHORIZATION, self.shared.authorization.clone());
        request
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.shared.connections
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    pub(crate) fn unreachable(&self, stage: Stage, source: TransportError) -> CallError {
        CallError::Unreachable { agent: self.shared.id.clone(), address: self.shared.address.clone(), stage, source }
    }

    pub(crate) fn timed_out(&self, method: &str, after: Duration) -> CallError {
        CallError::TimedOut {
            agent: self.shared.id.clone(),
            address: self.shared.address.clone(),
            method: method.to_owned(),
            after,
            stage: self.shared.connections.stage(),
        }
    }

    pub(crate) fn bad_reply(&self, method: &str, problem: String) -> CallError {
        CallError::BadReply {
            agent: self.shared.id.clone(),
            address: self.shared.address.clone(),
            method: method.to_owned(),
            problem: shortened(problem, limits::LONGEST_WORDS),
        }
    }
}

/// Whether doing it twice does what doing it once does. Scripts of jobs may have effects, and are not repeated.
fn is_repeatable(method: &str) -> bool {
    !matches!(method, "run_script" | "run_errand" | "drain" | "shutdown")
        && !method.starts_with("compile_package")
        && !method.starts_with("fetch_logs")
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// It is done, with this result.
    Done(Value),
    /// It takes longer.
    Task(Task),
}

/// A task of an agent, for [`Agent::finish`] and [`Agent::cancel_task`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// What the agent calls it.
    pub id: String,
    /// The action that it is.
    pub method: String,
}

/// An answer taken apart.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Done(Value),
    /// The id of the task that will have it.
    Task(String),
}

impl Answer {
    /// The rules by which directors read any generation of agents: an object with `state` and `agent_task_id` is a task,
    /// one with `value` and no `state` wraps the result, everything else is the result.
    fn of(mut value: Value) -> Self {
        if let Some(object) = value.as_object_mut() {
            if object.contains_key("value") && !object.contains_key("state") {
                return Self::Done(object.remove("value").unwrap_or_default());
            }
            if let Ok(task) = TaskHandle::deserialize(&value) {
                return Self::Task(task.agent_task_id);
            }
        }
        Self::Done(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_and_tasks_of_any_generation_of_agents_are_told_apart() {
        assert_eq!(Answer::of(json!({"agent_task_id": "t", "state": "running"})), Answer::Task("t".into()));
        assert_eq!(Answer::of(json!({"value": 1})), Answer::Done(json!(1)));
        for result in [json!(null), json!("pong"), json!({}), json!({"state": "x"}), json!({"job_state": "running"})] {
            assert_eq!(Answer::of(result.clone()), Answer::Done(result));
        }
    }
}
