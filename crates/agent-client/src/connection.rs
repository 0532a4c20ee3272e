//! Connections to one agent: dialled when needed, reused while warm, closed when idle.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use windlass_durable::kill_point;

use crate::error::{Stage, TransportError};
use crate::head::{HeadLimited, Room};
use crate::limits::{self, Turn};

/// How long one address may take to accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// How long the handshake may take.
const TLS_PATIENCE: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: long enough for the polls of a task, shorter than servers keep it.
const IDLE: Duration = Duration::from_secs(10);

/// What a request carries: a message, or a blob from a file.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Sends requests over one connection.
#[derive(Debug)]
struct Sender {
    requests: SendRequest<Body>,
    room: Room,
}

impl Sender {
    /// Sends a request and waits for the head of its answer.
    async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        self.room.expect_head();
        let answer = self.requests.try_send_request(request).await?;
        self.room.has_head();
        Ok(answer)
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub(crate) struct Opened {
    sender: Sender,
    pub(crate) response: Response<Incoming>,
}

/// An answer that was read. Large ones wait for each other for as long as they are kept.
#[derive(Debug)]
pub(crate) struct WholeAnswer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    _turn: Option<Turn>,
}

/// The connections of one agent.
#[derive(Debug)]
pub(crate) struct Connections {
    addresses: Vec<SocketAddr>,
    /// None if the agent's id cannot stand in a DNS name.
    server_name: Option<ServerName<'static>>,
    tls: Arc<ClientConfig>,
    idle: Mutex<Vec<Idle>>,
    /// The stage that the latest exchange reached, for a caller whose patience ends in the middle of it.
    stage: AtomicU8,
}

#[derive(Debug)]
struct Idle {
    sender: Sender,
    since: Instant,
}

/// Why an exchange failed, and after which stage.
pub(crate) type Failed = (Stage, TransportError);

impl Connections {
    pub(crate) fn new(
        addresses: Vec<SocketAddr>,
        server_name: Option<ServerName<'static>>,
        tls: Arc<ClientConfig>,
    ) -> Self {
        Self { addresses, server_name, tls, idle: Mutex::default(), stage: AtomicU8::new(Stage::VmCreated as u8) }
    }

    /// The stage that the latest exchange reached.
    pub(crate) fn stage(&self) -> Stage {
        let stage = self.stage.load(Ordering::Relaxed);
        let all = [Stage::VmCreated, Stage::AddressAnswers, Stage::Tls, Stage::Authenticated, Stage::Pong];
        all.into_iter().find(|known| *known as u8 == stage).unwrap_or(Stage::VmCreated)
    }

    pub(crate) fn reached(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Sends a request and waits for the head of its answer. A connection that was kept may have died unnoticed; then the
    /// request is made and sent again over a new one, if it did not leave or if doing it twice does what doing it once does.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        request: &(dyn Fn() -> Request<Body> + Send + Sync),
        repeatable: bool,
    ) -> Result<Opened, Failed> {
        kill_point("before agent call");
        while let Some(mut sender) = self.take_idle() {
            self.reached(Stage::Tls);
            match sender.send(request()).await {
                Ok(response) => return Ok(self.opened(sender, response)),
                Err(mut failed) => {
                    if !repeatable && failed.take_message().is_none() {
                        return Err(broken(failed.into_error()));
                    }
                }
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send(request()).await.map_err(|failed| broken(failed.into_error()))?;
        Ok(self.opened(sender, response))
    }

    /// Sends a request whose body can be sent only once, over a connection of its own.
    pub(crate) async fn exchange_once(self: &Arc<Self>, request: Request<Body>) -> Result<Opened, Failed> {
        kill_point("before agent call");
        let mut sender = self.connect().await?;
        let response = sender.send(request).await.map_err(|failed| broken(failed.into_error()))?;
        Ok(self.opened(sender, response))
    }

    /// Reads the whole answer to such a request, which may have so many bytes; the connection ends with it.
    pub(crate) async fn read_once(&self, mut opened: Opened, most: usize) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(part) = self.part(&mut opened).await? {
            if body.len() + part.len() > most {
                return Err((Stage::Authenticated, TransportError::TooLarge(most)));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    fn opened(&self, sender: Sender, response: Response<Incoming>) -> Opened {
        kill_point("after agent call");
        if response.status() != StatusCode::UNAUTHORIZED {
            self.reached(Stage::Authenticated);
        }
        Opened { sender, response }
    }

    /// Reads the whole answer, which may have so many bytes.
    pub(crate) async fn read(&self, mut opened: Opened, most: usize) -> Result<WholeAnswer, Failed> {
        let status = opened.response.status();
        let (mut body, mut turn) = (BytesMut::new(), None);
        while let Some(part) = self.part(&mut opened).await? {
            let length = body.len() + part.len();
            if length > most {
                return Err((Stage::Authenticated, TransportError::TooLarge(most)));
            }
            if length > limits::SMALL && turn.is_none() {
                turn = Some(Turn::of(self.addresses.first().copied()).await);
            }
            body.extend_from_slice(&part);
        }
        if let Some(turn) = &mut turn {
            turn.is_read();
        }
        self.keep(opened.sender).await;
        Ok(WholeAnswer { status, body: body.freeze(), _turn: turn })
    }

    /// The next part of an answer; none at its end.
    pub(crate) async fn part(&self, opened: &mut Opened) -> Result<Option<Bytes>, Failed> {
        loop {
            match opened.response.frame().await {
                None => return Ok(None),
                // What is no data are trailers.
                Some(frame) => match frame.map_err(|error| broken_answer(error.into()))?.into_data() {
                    Ok(part) => return Ok(Some(part)),
                    Err(_) => continue,
                },
            }
        }
    }

    /// Keeps a connection for the next request, once its answer was read.
    pub(crate) async fn done(&self, opened: Opened) {
        self.keep(opened.sender).await;
    }

    async fn keep(&self, mut sender: Sender) {
        if sender.requests.ready().await.is_ok() {
            self.lock_idle().push(Idle { sender, since: Instant::now() });
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        let mut idle = self.lock_idle();
        while let Some(connection) = idle.pop() {
            if connection.sender.requests.is_ready() && connection.since.elapsed() < IDLE {
                return Some(connection.sender);
            }
        }
        None
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Dials the addresses in turn; of several failures the one that got furthest is told.
    async fn connect(self: &Arc<Self>) -> Result<Sender, Failed> {
        self.reached(Stage::VmCreated);
        let mut furthest = (Stage::VmCreated, TransportError::NoAddress);
        for address in &self.addresses {
            match self.connect_to(*address).await {
                Ok(sender) => return Ok(sender),
                Err(failed) if failed.0 >= furthest.0 => furthest = failed,
                Err(_) => {}
            }
        }
        Err(furthest)
    }

    async fn connect_to(self: &Arc<Self>, address: SocketAddr) -> Result<Sender, Failed> {
        let server_name = self.server_name.clone().ok_or((Stage::VmCreated, TransportError::NoName))?;
        let stream = match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err((Stage::VmCreated, TransportError::Connect(error))),
            Err(_) => return Err((Stage::VmCreated, TransportError::ConnectTimedOut(CONNECT_PATIENCE))),
        };
        self.reached(Stage::AddressAnswers);
        // Messages are small and each waits for its answer.
        let _ = stream.set_nodelay(true);
        let handshake = TlsConnector::from(self.tls.clone()).connect(server_name, stream);
        let stream = match tokio::time::timeout(TLS_PATIENCE, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err((Stage::AddressAnswers, TransportError::Tls(error))),
            Err(_) => return Err((Stage::AddressAnswers, TransportError::TlsTimedOut(TLS_PATIENCE))),
        };
        self.reached(Stage::Tls);
        let room = Room::default();
        let stream = TokioIo::new(HeadLimited::new(stream, room.clone()));
        let (requests, connection) = http1::handshake(stream).await.map_err(broken)?;
        let connections = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            loop {
                tokio::select! {
                    // A request that waits for an answer over it gets the error.
                    _ = &mut connection => return,
                    () = tokio::time::sleep(IDLE) => match connections.upgrade() {
                        Some(connections) => connections.lock_idle().retain(|idle| idle.since.elapsed() < IDLE),
                        None => return,
                    }
                }
            }
        });
        Ok(Sender { requests, room })
    }
}

fn broken_answer(error: Box<dyn std::error::Error + Send + Sync>) -> Failed {
    (Stage::Authenticated, TransportError::Broken(error))
}

/// With TLS 1.3 the agent's refusal of our certificate arrives only after our side of the handshake is done.
fn broken(error: hyper::Error) -> Failed {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(rustls_error @ rustls::Error::AlertReceived(_)) = current
            .downcast_ref::<std::io::Error>()
            .and_then(|io| io.get_ref())
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            return (Stage::AddressAnswers, TransportError::Tls(std::io::Error::other(rustls_error.clone())));
        }
        cause = current.source();
    }
    (Stage::Tls, TransportError::Broken(Box::new(error)))
}
