//! Where a daemon listens, and a connection to it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::ClientError;
use super::content::Sent;

/// How long a daemon may take until a connection stands.
const CONNECT: Duration = Duration::from_secs(3);

/// Lists of thousands of instances are some megabytes.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// Where a daemon listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Its socket on this machine.
    Unix(PathBuf),
    Https {
        /// Name or address.
        host: String,
        port: u16,
    },
}

/// The port that servers have unless something else is said.
const PORT: u16 = 8443;

impl Endpoint {
    /// Reads `unix:/PATH` or `https://HOST:PORT`.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let wrong = || {
            ClientError::Configuration(format!(
                "'{text}' among 'endpoints' is not understood; write https://HOST:PORT or unix:/PATH"
            ))
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(wrong()) };
        }
        let authority = text.strip_prefix("https://").ok_or_else(wrong)?.trim_end_matches('/');
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Ok(PORT), str::parse).map_err(|_| wrong())?;
        if host.is_empty() || ServerName::try_from(host.to_owned()).is_err() {
            return Err(wrong());
        }
        Ok(Self::Https { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Https { host, port } if host.contains(':') => write!(f, "https://[{host}]:{port}"),
            Self::Https { host, port } => write!(f, "https://{host}:{port}"),
        }
    }
}

/// A connection that stands; it serves one request after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Sent>,
}

/// What came back, whole.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) etag: Option<String>,
    pub(crate) body: Bytes,
}

/// how a request failed
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was not sent.
    NotSent(io::Error),
    /// It was sent, in whole or in part, and no whole answer came.
    Lost(io::Error),
}

impl Connection {
    pub(crate) async fn open(endpoint: &Endpoint, tls: Option<&Arc<rustls::ClientConfig>>) -> io::Result<Self> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT:?}"));
        timeout(CONNECT, Self::connect(endpoint, tls)).await.map_err(late)?
    }

    async fn connect(endpoint: &Endpoint, tls: Option<&Arc<rustls::ClientConfig>>) -> io::Result<Self> {
        match (endpoint, tls) {
            (Endpoint::Unix(path), _) => Self::over(UnixStream::connect(path).await?).await,
            (Endpoint::Https { host, port }, Some(tls)) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let stream = tokio_rustls::TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
                Self::over(stream).await
            }
            (Endpoint::Https { .. }, None) => Err(io::Error::other("no client certificate is configured")),
        }
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> io::Result<Self> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // Its failures are those of the requests that it carries.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender })
    }

    /// Whether it can carry another request.
    pub(crate) async fn is_usable(&mut self) -> bool {
        !self.sender.is_closed() && self.sender.ready().await.is_ok()
    }

    pub(crate) async fn exchange(&mut self, request: hyper::Request<Sent>) -> Result<Received, Failed> {
        let answer = self.sender.send_request(request).await.map_err(|error| {
            // The connection was closed before a byte of the request went out.
            let is_unsent = error.is_canceled();
            let error = io::Error::other(error);
            if is_unsent { Failed::NotSent(error) } else { Failed::Lost(error) }
        })?;
        let status = answer.status().as_u16();
        let etag = answer.headers().get(hyper::header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| Failed::Lost(io::Error::other(error)))?.to_bytes();
        Ok(Received { status, etag, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        for (text, shown) in [
            ("unix:/run/incus/unix.socket", "unix:/run/incus/unix.socket"),
            ("unix:///run/x", "unix:/run/x"),
            ("https://10.0.0.1:8443", "https://10.0.0.1:8443"),
            ("https://n1.example/", "https://n1.example:8443"),
            ("https://[2001:db8::1]:9", "https://[2001:db8::1]:9"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), shown);
        }
        for wrong in ["", "http://10.0.0.1", "unix:relative", "https://:8443", "https://a:b:c", "https://x:99999"] {
            let error = Endpoint::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("https://HOST:PORT"), "{wrong}: {error}");
        }
    }
}
