//! The HTTPS server: connections here, who gets in in [`entrance`], what they may ask for in [`routes`], blobs in [`blobs`],
//! certificates in [`tls`].
//!
//! Anybody on the network can connect, so whoever has not shown the password yet gets little: a handshake and a request's
//! head within bounds of time and size, and no lasting place when others want in.

pub(crate) mod blobs;
pub(crate) mod entrance;
mod routes;
pub(crate) mod tls;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::agent::Agent;
use crate::boot::Ending;

/// How many connections are served at once.
const CONNECTIONS: usize = 128;
/// How long a handshake may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a request's head may take; an idle connection waits no longer for the next one either.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// The size of a request's head.
const HEAD_LIMIT: usize = 64 * 1024;
/// How long answers under way may take when the agent ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be accepted, for want of file descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection, and whether its caller has shown the password.
struct Guest {
    task: AbortHandle,
    trusted: Arc<AtomicBool>,
}

/// Serves until `end`; then finishes the answers under way.
pub(crate) async fn serve(listener: TcpListener, agent: Arc<Agent>, end: impl Future<Output = Ending>) -> Ending {
    let (closing, closed) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut guests: VecDeque<Guest> = VecDeque::new();
    let mut end = std::pin::pin!(end);
    let ending = loop {
        let accepted = tokio::select! {
            ending = &mut end => break ending,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        guests.retain(|guest| !guest.task.is_finished());
        if guests.len() >= CONNECTIONS && !make_room(&mut guests) {
            continue;
        }
        let trusted = Arc::new(AtomicBool::new(false));
        let acceptor = TlsAcceptor::from(agent.gate.current().tls.clone());
        let routes = routes::Routes { agent: agent.clone(), trusted: trusted.clone() };
        let task = connections.spawn(serve_connection(stream, acceptor, routes, closed.clone()));
        guests.push_back(Guest { task, trusted });
    };
    drop(listener);
    drop(closing);
    if ending != Ending::Signal {
        let _ = tokio::time::timeout(LAST_ANSWERS, async { while connections.join_next().await.is_some() {} }).await;
    }
    ending
}

/// Sends away the oldest connection whose caller has not shown the password.
fn make_room(guests: &mut VecDeque<Guest>) -> bool {
    match guests
        .iter()
        .position(|guest| !guest.trusted.load(Ordering::Relaxed))
        .and_then(|oldest| guests.remove(oldest))
    {
        Some(guest) => {
            guest.task.abort();
            true
        }
        None => false,
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    routes: routes::Routes,
    mut closed: watch::Receiver<()>,
) {
    // Answers are small and each is waited for.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!("TLS handshake failed: {error}"),
        Err(_) => return tracing::debug!("TLS handshake not finished in time"),
    };
    let service = service_fn(|request| async { Ok::<_, Infallible>(routes.answer(request).await) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = closed.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("connection broke: {error}");
    }
}
