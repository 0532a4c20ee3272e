//! Connections: how many, how slow and how large they may be.
//!
//! Every VM can connect, and so can whoever else is on the network. When all places are taken, the oldest connection is
//! closed on which no work for somebody with credentials is under way, so that no crowd of silent ones keeps a VM out.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::Server;

/// The size of a request's head.
const HEAD_LIMIT: usize = 64 * 1024;
/// How long to wait when no connection can be accepted, for want of file descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers under way may take when the registry ends.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Whoever is connected.
#[derive(Debug, Clone)]
pub(super) struct Guest {
    pub(super) address: SocketAddr,
    working: Arc<AtomicBool>,
}

/// While this lives, the connection is not closed in favour of another.
#[derive(Debug)]
pub(super) struct Working<'a>(&'a AtomicBool);

impl Guest {
    /// Somebody with credentials is being served.
    pub(super) fn working(&self) -> Working<'_> {
        self.working.store(true, Ordering::Relaxed);
        Working(&self.working)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A connection's place.
struct Place {
    task: AbortHandle,
    working: Arc<AtomicBool>,
}

/// Serves until `stop` changes or its sender is gone; then finishes the answers under way.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    server: Arc<Server>,
    router: Router,
    mut stop: watch::Receiver<()>,
) {
    let (closing, closed) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut places: VecDeque<Place> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.changed() => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if places.len() >= server.limits.connections {
            places.retain(|place| !place.task.is_finished());
        }
        if places.len() >= server.limits.connections {
            server.metrics.crowded_out.fetch_add(1, Ordering::Relaxed);
            if !make_room(&mut places) {
                continue;
            }
        }
        let guest = Guest { address, working: Arc::default() };
        let working = guest.working.clone();
        let connection = Connection { guest, server: server.clone(), router: router.clone(), closed: closed.clone() };
        let task = connections.spawn(connection.serve(stream, tls.clone()));
        places.push_back(Place { task, working });
    }
    drop(listener);
    drop(closing);
    // What has not ended by then is aborted with the set.
    let _ = tokio::time::timeout(LAST_ANSWERS, async { while connections.join_next().await.is_some() {} }).await;
}

fn make_room(places: &mut VecDeque<Place>) -> bool {
    let idle = places.iter().position(|place| !place.working.load(Ordering::Relaxed));
    match idle.and_then(|oldest| places.remove(oldest)) {
        Some(place) => {
            place.task.abort();
            true
        }
        None => false,
    }
}

struct Connection {
    guest: Guest,
    server: Arc<Server>,
    router: Router,
    closed: watch::Receiver<()>,
}

/// Counts a connection as long as it lives, however it ends.
struct Open(Arc<Server>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        self.server.metrics.connections.fetch_add(1, Ordering::Relaxed);
        let _open = Open(self.server.clone());
        // Answers are small and each is waited for; whoever does not take one is not waited for.
        let _ = stream.set_nodelay(true);
        let patience = u32::try_from(self.server.limits.head_patience.as_millis()).unwrap_or(u32::MAX);
        let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, patience);
        let Some(tls) = tls else { return self.converse(stream).await };
        match tokio::time::timeout(self.server.limits.head_patience, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.converse(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, address = %self.guest.address, "no TLS handshake"),
            Err(_) => tracing::debug!(address = %self.guest.address, "the TLS handshake took too long"),
        }
    }

    async fn converse(mut self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let (guest, server) = (self.guest, self.server);
        let routes = TowerToHyperService::new(self.router);
        let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
            let method = request.method().clone();
            request.extensions_mut().insert(guest.clone());
            let answer = routes.call(request);
            let server = &server;
            async move {
                let answer = answer.await;
                if let Ok(answer) = &answer {
                    server.metrics.count_request(method.as_str(), answer.status().as_str());
                }
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(server.limits.head_patience)
            .max_buf_size(HEAD_LIMIT)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            _ = self.closed.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, address = %guest.address, "a connection broke");
        }
    }
}
