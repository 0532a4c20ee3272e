//! A bare server: TLS and HTTP without anything behind them, which answers every request with the same body.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;
use windlass_pki::Authority;

/// The server, on threads of its own. Dropped, it ends.
pub(super) struct Floor {
    pub(super) address: SocketAddr,
    /// Whom its clients trust.
    pub(super) ca: String,
    runtime: Option<Runtime>,
}

impl Floor {
    /// As many threads as a director has.
    pub(super) async fn start(body: Vec<u8>) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::new().map_err(io::Error::other)?;
        let names = ["127.0.0.1".to_owned()];
        let identity = authority.director_server(folder.path(), &names).map_err(io::Error::other)?;
        let certificates = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(identity.private_key.reveal().as_bytes()).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(certificates.map_err(io::Error::other)?, key)
            .map_err(io::Error::other)?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Bytes::from(body)));
        Ok(Self { address, ca: authority.certificate().to_owned(), runtime: Some(runtime) })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: std::net::TcpListener, tls: TlsAcceptor, body: Bytes) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(converse(stream, tls.clone(), body.clone()));
    }
}

async fn converse(stream: TcpStream, tls: TlsAcceptor, body: Bytes) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else { return };
    let answer = async |_: Request<_>| Ok::<_, Infallible>(Response::new(Full::new(body.clone())));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}
