//! Accept loop with limits: number of connections, handshake and header timeouts, header size. When it is full, the oldest
//! unauthenticated connection is closed.
//!
//! Anybody on the network can connect, so a peer without credentials gets little: a handshake and a request's head within
//! bounds of time and size, and no lasting place when others want in. Director, registry and agents serve HTTP/1 through
//! this; what they answer, and to whom, is theirs.
//!
//! [`AcceptLoop::serve`] takes connections for a [`Responder`] until it is told to stop; [`AcceptLoop::close`] then finishes the answers
//! under way. The responder marks a connection that is to stay ([`Peer::trust`], [`Peer::working`]); when all places are taken, the
//! oldest of the others is closed. So no crowd of silent or slow strangers keeps anybody out, and no stranger keeps a
//! place that somebody with credentials wants. If all are to stay, or the others have just come, a user with more than their share loses
//! their oldest one ([`Peer::trust_user`]): a user who may only read does not keep all others out.
//!
//! - [`guesses`]: what slows down who tries passwords.
//! - [`held`]: the bodies of answers, for which something is held until they were sent.
//! - [`peer`]: who is connected, and whether they keep their place.
//! - [`received`]: the bodies of requests, which may be slow, but not for ever.

pub mod guesses;
pub mod held;
pub mod peer;
pub mod received;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub use guesses::Guesses;
pub use held::Held;
pub use peer::{Peer, Working};
pub use received::{ReceiveError, Received};

/// How much of a body that nobody wants is read, and for how long.
const MOST_UNREAD: u64 = 32 << 20;
const UNREAD_WITHIN: Duration = Duration::from_secs(5);
/// The part of all places that no user is sent away from: one in eight.
const SHARE: usize = 8;
/// How long newcomers have to show credentials before they go in favour of others rather than a user with more than a share.
const GRACE: Duration = Duration::from_secs(3);
/// How long to wait when no connection can be accepted, for want of file descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server puts up with.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many connections are served at once.
    pub connections: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// How long a request's head may take. An idle connection waits no longer for the next one, and a peer that does not take
    /// an answer is not waited for longer either.
    pub head: Duration,
    /// How large a request's head may be; a larger one is answered with `431`.
    pub head_size: usize,
    /// How long nothing may come of a request's body.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(30),
            head_size: 64 * 1024,
            pause: Duration::from_secs(60),
        }
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Open now.
    pub open: AtomicU64,
    /// Closed to make room for others, or not let in.
    pub crowded_out: AtomicU64,
}

/// Among the extensions of an answer: the connection ends in place of it, as if somebody had pulled the cable.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the connection is cut off")]
pub struct CutOff;

/// Answers the requests of a server.
pub trait Responder: Clone + Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;

    /// TLS for the next connection; none for a server without.
    fn tls(&self) -> Option<TlsAcceptor>;

    fn answer(&self, peer: &Peer, request: Request<Received>) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// A connection's place.
#[derive(Debug)]
struct Place {
    task: AbortHandle,
    peer: Peer,
    since: Instant,
}

/// Where connections come in.
#[derive(Debug)]
pub struct AcceptLoop {
    listener: TcpListener,
    limits: Limits,
    tally: Arc<Tally>,
    places: VecDeque<Place>,
    connections: JoinSet<()>,
    closing: watch::Sender<()>,
}

impl AcceptLoop {
    /// Accepts no connection before [`AcceptLoop::serve`]; `tally` counts them.
    pub fn new(listener: TcpListener, limits: Limits, tally: Arc<Tally>) -> Self {
        let (connections, closing) = (JoinSet::new(), watch::Sender::new(()));
        Self { listener, limits, tally, places: VecDeque::new(), connections, closing }
    }

    /// Serves until `stop` resolves, and gives what it resolved to.
    pub async fn serve<T>(&mut self, responder: impl Responder, stop: impl Future<Output = T>) -> T {
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                stopped = &mut stop => return stopped,
                accepted = self.listener.accept() => accepted,
                Some(_) = self.connections.join_next() => {
                    self.forget_ended();
                    continue;
                }
            };
            self.forget_ended();
            match accepted {
                Ok((stream, address)) if self.has_room() => {
                    let peer = Peer::new(address);
                    let connection = Connection {
                        responder: responder.clone(),
                        peer: peer.clone(),
                        limits: self.limits,
                        closing: self.closing.subscribe(),
                        _open: Open::new(self.tally.clone()),
                    };
                    let task = self.connections.spawn(connection.serve(stream));
                    self.places.push_back(Place { task, peer, since: Instant::now() });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Lets nobody in any more, and finishes the answers under way; what has not ended after `patience` is cut off.
    pub async fn close(self, patience: Duration) {
        let Self { listener, closing, mut connections, .. } = self;
        drop((listener, closing));
        let _ = tokio::time::timeout(patience, async { while connections.join_next().await.is_some() {} }).await;
    }

    /// Gives the memory of connections back that have ended: a task keeps its own until nobody knows it any more.
    fn forget_ended(&mut self) {
        while self.connections.try_join_next().is_some() {}
        self.places.retain(|place| !place.task.is_finished());
    }

    /// Whether there is a place, if need be that of the oldest connection that does not keep its own. Where a user has more than a share,
    /// newcomers do not send each other away before they could say who they are.
    fn has_room(&mut self) -> bool {
        if self.places.len() < self.limits.connections {
            return true;
        }
        self.tally.crowded_out.fetch_add(1, Ordering::Relaxed);
        let oldest = self.places.iter().position(|place| !place.peer.keeps_place());
        let is_new = |oldest: &usize| self.places.get(*oldest).is_some_and(|place| place.since.elapsed() < GRACE);
        let going = match oldest.filter(|oldest| !is_new(oldest)) {
            Some(oldest) => Some(oldest),
            None => self.oldest_beyond_a_share().or(oldest),
        };
        match going.and_then(|going| self.places.remove(going)) {
            Some(place) => {
                place.task.abort();
                true
            }
            None => false,
        }
    }

    /// The oldest connection of the user who has most, if that is more than a share.
    fn oldest_beyond_a_share(&self) -> Option<usize> {
        let mut taken: HashMap<u64, usize> = HashMap::new();
        for user in self.places.iter().filter_map(|place| place.peer.user()) {
            *taken.entry(user).or_default() += 1;
        }
        let (most, places) = taken.into_iter().max_by_key(|(_, places)| *places)?;
        let is_beyond = places > (self.limits.connections / SHARE).max(1);
        self.places.iter().position(|place| is_beyond && place.peer.user() == Some(most))
    }
}

/// Counts a connection as long as it lives, however it ends.
struct Open(Arc<Tally>);

impl Open {
    fn new(tally: Arc<Tally>) -> Self {
        tally.open.fetch_add(1, Ordering::Relaxed);
        Self(tally)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection<R> {
    responder: R,
    peer: Peer,
    limits: Limits,
    closing: watch::Receiver<()>,
    _open: Open,
}

impl<R: Responder> Connection<R> {
    async fn serve(self, stream: TcpStream) {
        // Answers are small and each is waited for; a peer that does not take one is not waited for.
        let _ = stream.set_nodelay(true);
        let patience = u32::try_from(self.limits.head.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, patience);
        let Some(tls) = self.responder.tls() else { return self.converse(stream).await };
        match tokio::time::timeout(self.limits.handshake, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, address = %self.peer.address, "no TLS handshake"),
            Err(_) => tracing::debug!(address = %self.peer.address, "the TLS handshake took too long"),
        }
    }

    async fn converse(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Self { responder, peer, limits, mut closing, _open } = self;
        let left_unread = Arc::<AtomicBool>::default();
        let service = service_fn(|request: Request<Incoming>| {
            let request = request.map(|body| Received::new(body, limits.pause, Arc::clone(&left_unread)));
            let answer = responder.answer(&peer, request);
            Box::pin(async {
                let answer = answer.await;
                if answer.extensions().get::<CutOff>().is_some() { Err(CutOff) } else { Ok(answer) }
            })
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(limits.head_size)
            // The buffer may grow beyond its size by what one read brings.
            .max_header_size(limits.head_size)
            .serve_connection(TokioIo::new(stream), service);
        let served = async {
            tokio::select! {
                ended = poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
                _ = closing.changed() => {
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                    poll_fn(|context| connection.poll_without_shutdown(context)).await
                }
            }
        };
        let ended = tokio::select! {
            ended = served => ended,
            () = peer.is_cut_off() => return,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, address = %peer.address, "a connection broke");
            return;
        }
        let mut stream = connection.into_parts().io.into_inner();
        let _ = stream.shutdown().await;
        if left_unread.load(Ordering::Relaxed) {
            read_on(stream).await;
        }
    }
}

/// A peer that still sends would not hear why nobody listens: what comes to a closed connection takes the answer with it. So the
/// rest is read for a while, and thrown away.
async fn read_on(stream: impl AsyncRead + Unpin) {
    let (mut rest, mut nowhere) = (stream.take(MOST_UNREAD), tokio::io::sink());
    let _ = tokio::time::timeout(UNREAD_WITHIN, tokio::io::copy(&mut rest, &mut nowhere)).await;
}
