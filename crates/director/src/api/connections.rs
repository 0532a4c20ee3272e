//! What connections need of the API: answers, and a certificate. A client that has shown credentials keeps its place.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;
use windlass_connections::{AcceptLoop, Peer, Received, Responder};

/// How long answers under way may take when the director ends.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The API, to its connections.
#[derive(Clone)]
struct ApiResponder {
    tls: TlsAcceptor,
    router: Router,
}

impl Responder for ApiResponder {
    type Body = axum::body::Body;

    fn tls(&self) -> Option<TlsAcceptor> {
        Some(self.tls.clone())
    }

    async fn answer(&self, peer: &Peer, mut request: Request<Received>) -> Response {
        request.extensions_mut().insert(peer.clone());
        let Ok(answer) = TowerToHyperService::new(self.router.clone()).call(request).await;
        answer
    }
}

/// Serves until `stop` resolves, then finishes the answers under way.
pub(super) async fn serve(
    mut accept_loop: AcceptLoop,
    tls: Arc<ServerConfig>,
    router: Router,
    stop: impl Future<Output = ()> + Send,
) {
    accept_loop.serve(ApiResponder { tls: TlsAcceptor::from(tls), router }, stop).await;
    accept_loop.close(LAST_ANSWERS).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    use tokio::net::TcpListener;
    use windlass_connections::Limits;

    use super::*;
    use crate::server_tls::{LiveCertificate, server_config};
    use crate::testing::TestDirector;

    const PLACES: usize = 32;
    const PAUSE: Duration = Duration::from_secs(1);
    const ADMIN: &str = "Authorization: Basic YWRtaW46YWRtaW4tcGFzc3dvcmQ=\r\n";

    /// A director's address, and whom its clients trust.
    #[derive(Clone)]
    struct Door {
        address: SocketAddr,
        tls: Arc<ClientConfig>,
    }

    type Client = StreamOwned<ClientConnection, TcpStream>;

    impl Door {
        fn knock(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream
        }

        /// Sends something over TLS, and waits for nothing.
        fn say(&self, words: &str) -> Client {
            let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
            let connection = ClientConnection::new(self.tls.clone(), name).unwrap();
            let mut client = StreamOwned::new(connection, self.knock());
            client.write_all(words.as_bytes()).unwrap();
            client.flush().unwrap();
            client
        }

        /// The first line of the answer to a whole request.
        fn ask(&self, words: &str) -> String {
            status_line(&mut self.say(words))
        }
    }

    fn status_line(client: &mut Client) -> String {
        let mut answer = Vec::new();
        let mut part = [0; 1024];
        while !answer.contains(&b'\n') {
            match client.read(&mut part).unwrap() {
                0 => break,
                read => answer.extend_from_slice(&part[..read]),
            }
        }
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }

    /// Runs `visit` against a director with few places.
    async fn with_door(visit: impl FnOnce(Door) + Send + 'static) {
        let bench = TestDirector::new().await;
        let folder = tempfile::tempdir().unwrap();
        let authority = windlass_pki::Authority::open(folder.path()).unwrap();
        let identity = authority.director_server(folder.path(), &["127.0.0.1".to_owned()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: PLACES, pause: PAUSE, ..Limits::default() };
        let accept_loop = AcceptLoop::new(listener, limits, bench.director.metrics.connections.clone());
        let tls = server_config(Arc::new(LiveCertificate::new(&identity).unwrap())).unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = tokio::spawn(serve(accept_loop, tls, crate::api::router(bench.director.clone()), async {
            let _ = stopped.await;
        }));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        tokio::task::spawn_blocking(move || visit(Door { address, tls })).await.unwrap();
        stop.send(()).unwrap();
        served.await.unwrap();
    }

    /// A crowd that says nothing, or never finishes what it says, must not keep the operator out.
    #[tokio::test(flavor = "multi_thread")]
    async fn slow_strangers_do_not_keep_the_operator_out() {
        with_door(|door| {
            let look = format!("GET /deployments HTTP/1.1\r\nHost: x\r\n{ADMIN}\r\n");
            let dripping = format!("POST /deployments HTTP/1.1\r\nHost: x\r\n{ADMIN}Content-Length: 1000\r\n\r\nname:");
            let mut operators: Vec<_> = (0..4).map(|_| door.say(&look)).collect();
            for operator in &mut operators {
                assert_eq!(status_line(operator), "HTTP/1.1 200 OK");
                operator.write_all(dripping.as_bytes()).unwrap();
            }
            let mut silent = Vec::new();
            for _ in 0..PLACES {
                silent.push(door.knock());
                let mut half_a_handshake = door.knock();
                half_a_handshake.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).unwrap();
                silent.push(half_a_handshake);
            }
            let strangers = [
                "GET /info HTTP/1.1\r\nHos",
                "POST /deployments HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nname:",
                "POST /stemcells HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nna",
            ];
            let unfinished: Vec<_> = strangers.iter().cycle().take(2 * PLACES).map(|words| door.say(words)).collect();
            assert_eq!(door.ask("GET /info HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 200 OK");
            assert_eq!(door.ask(&look), "HTTP/1.1 200 OK");
            drop((silent, unfinished));
            // Nobody is waited for without end, whatever they may do.
            for operator in &mut operators {
                assert_eq!(status_line(operator), "HTTP/1.1 408 Request Timeout");
            }
        })
        .await;
    }

    /// What is too large is refused with a status that says so, before it costs memory.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_too_large_is_refused_with_a_clear_status() {
        with_door(|door| {
            let request = |line: &str, headers: &str| format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
            let long_header = format!("X-Long: {}\r\n", "x".repeat(100_000));
            let many_headers: String = (0..500).map(|number| format!("X-{number}: y\r\n")).collect();
            for headers in [long_header, many_headers] {
                let status = door.ask(&request("GET /info", &headers));
                assert_eq!(status, "HTTP/1.1 431 Request Header Fields Too Large");
            }
            let long_path = format!("GET /{}", "x".repeat(100_000));
            assert!(door.ask(&request(&long_path, "")).starts_with("HTTP/1.1 4"), "a path of 100,000 characters");
            let huge = format!("{ADMIN}Content-Length: 99999999999\r\n");
            for line in ["POST /deployments", "POST /configs", "POST /cloud_configs", "PUT /resurrection"] {
                assert_eq!(door.ask(&request(line, &huge)), "HTTP/1.1 413 Payload Too Large", "{line}");
            }
        })
        .await;
    }
}
