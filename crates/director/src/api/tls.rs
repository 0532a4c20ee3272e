//! TLS in front of the API.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use windlass_pki::Identity;

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many handshakes may be under way or waiting to be served.
const BACKLOG: usize = 256;

/// why the server's certificate cannot be used
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerTlsError {
    /// the PEM text cannot be read
    #[error("the server's certificate is not valid PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// certificate and key do not fit
    #[error("the server's certificate does not fit its key")]
    Certificate(#[from] rustls::Error),
}

/// TLS 1.2 and 1.3 with the director's certificate.
pub(crate) fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>, ServerTlsError> {
    let certificates =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.private_key.reveal().as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    Ok(Arc::new(config))
}

/// Accepts connections and shakes hands beside the accept loop, so that a slow client holds up nobody.
#[derive(Debug)]
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, config: Arc<ServerConfig>) -> Self {
        let address = listener.local_addr();
        let (done, ready) = mpsc::channel(BACKLOG);
        tokio::spawn(accept(listener, TlsAcceptor::from(config), done));
        Self { ready, address }
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    loop {
        // A place is taken before the connection is: more than these never hold a descriptor without being served.
        let Ok(place) = done.clone().reserve_owned().await else { return };
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, most likely: wait for some to be closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = done.closed() => return,
        };
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => drop(place.send((stream, address))),
                Ok(Err(error)) => tracing::debug!(%error, %address, "no TLS handshake"),
                Err(_) => tracing::debug!(%address, "the TLS handshake took too long"),
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The accepting task ends only together with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.address.as_ref().copied().map_err(|error| io::Error::new(error.kind(), error.to_string()))
    }
}
