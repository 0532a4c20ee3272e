//! Connections: how many, how slow and how large they may be.
//!
//! Anybody on the network can connect, so whoever has not shown credentials yet gets little: a handshake and a request's
//! head within bounds of time and size, and no lasting place when others want in.

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
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// How many connections are served at once.
const CONNECTIONS: usize = 512;
/// How long a handshake may take.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// How long a request's head may take; an idle connection waits no longer for the next one either.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// The size of a request's head.
const HEAD_LIMIT: usize = 64 * 1024;
/// How long to wait when no connection can be accepted, for want of file descriptors say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers under way may take when the director ends.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Whoever is connected.
#[derive(Debug, Clone, Default)]
pub(super) struct Guest {
    trusted: Arc<AtomicBool>,
}

impl Guest {
    /// Credentials were shown.
    pub(super) fn trust(&self) {
        self.trusted.store(true, Ordering::Relaxed);
    }
}

/// A connection's place.
struct Place {
    task: AbortHandle,
    guest: Guest,
}

/// Serves until `stop` resolves, then finishes the answers under way.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    stop: impl Future<Output = ()> + Send,
) {
    let acceptor = TlsAcceptor::from(tls);
    let (closing, closed) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut places: VecDeque<Place> = VecDeque::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
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
        if places.len() >= CONNECTIONS {
            places.retain(|place| !place.task.is_finished());
        }
        if places.len() >= CONNECTIONS && !make_room(&mut places) {
            continue;
        }
        let guest = Guest::default();
        let connection = Connection { address, guest: guest.clone(), router: router.clone(), closed: closed.clone() };
        let task = connections.spawn(connection.serve(stream, acceptor.clone()));
        places.push_back(Place { task, guest });
    }
    drop(listener);
    drop(closing);
    // What has not ended by then is aborted with the set.
    let _ = tokio::time::timeout(LAST_ANSWERS, async { while connections.join_next().await.is_some() {} }).await;
}

/// Sends away the oldest connection on which nobody has shown credentials.
fn make_room(places: &mut VecDeque<Place>) -> bool {
    let stranger = places.iter().position(|place| !place.guest.trusted.load(Ordering::Relaxed));
    match stranger.and_then(|oldest| places.remove(oldest)) {
        Some(place) => {
            place.task.abort();
            true
        }
        None => false,
    }
}

struct Connection {
    address: SocketAddr,
    guest: Guest,
    router: Router,
    closed: watch::Receiver<()>,
}

impl Connection {
    async fn serve(mut self, stream: TcpStream, acceptor: TlsAcceptor) {
        let address = self.address;
        // Answers are small and each is waited for.
        let _ = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%error, %address, "no TLS handshake"),
            Err(_) => return tracing::debug!(%address, "the TLS handshake took too long"),
        };
        let routes = TowerToHyperService::new(self.router);
        let service = service_fn(|mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(self.guest.clone());
            routes.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_PATIENCE)
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
            tracing::debug!(%error, %address, "a connection broke");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::api::tests::Bench;

    /// A crowd that connects and says nothing must not keep the operator out.
    #[tokio::test(flavor = "multi_thread")]
    async fn connections_that_say_nothing_do_not_keep_the_operator_out() {
        let bench = Bench::new().await;
        let folder = tempfile::tempdir().unwrap();
        let authority = windlass_pki::Authority::open(folder.path()).unwrap();
        let identity = authority.director_server(folder.path(), &["127.0.0.1".to_owned()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = crate::api::tls::server_config(Arc::new(crate::api::tls::LiveCertificate::new(&identity).unwrap()))
            .unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, tls, crate::api::router(bench.director.clone()), async {
            let _ = stopped.await;
        }));
        let ca = authority.certificate().to_owned();
        let answer = tokio::task::spawn_blocking(move || {
            let silent: Vec<_> = (0..CONNECTIONS + 8).map(|_| TcpStream::connect(address).unwrap()).collect();
            let answer = get_info(address, &ca);
            drop(silent);
            answer
        });
        assert!(answer.await.unwrap().starts_with("HTTP/1.1 200 OK"));
        stop.send(()).unwrap();
        served.await.unwrap();
    }

    fn get_info(address: SocketAddr, ca: &str) -> String {
        use rustls_pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(rustls_pki_types::CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        stream.write_all(b"GET /info HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }
}
