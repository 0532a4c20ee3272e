//! Blobs at URLs that say by themselves what their holder may do, for a while. So they are secrets, and no error shows one
//! beyond its host.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use windlass_contract::Secret;
use windlass_durable::kill_point;

use crate::server::blobs::FileBody;

/// How often a blob is asked for.
const TRIES: u32 = 3;
/// How long to wait before it is asked for again.
const PAUSE: Duration = Duration::from_secs(5);
/// How long the store may take to answer, and for each part of a blob.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to receive a blob.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(60 * 60);

/// A URL with what must be said beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SignedUrl {
    #[serde(alias = "package_get_signed_url", deserialize_with = "or_none")]
    signed_url: Secret,
    blobstore_headers: Option<BTreeMap<String, Secret>>,
}

fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    Ok(Option::<Secret>::deserialize(deserializer)?.unwrap_or_default())
}

/// why a blob at a signed URL cannot be had or kept
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignedUrlError {
    /// the URL is none
    #[error("the signed URL is not valid; it must start with http:// or https:// and name a host")]
    Url,
    /// a header is none
    #[error("'{0}' cannot be a header of a request")]
    Header(String),
    /// the CA of the store is none
    #[error("the blob store's options.tls.cert.ca is no certificate; it must be PEM")]
    Ca,
    /// the store does not answer
    #[error("cannot exchange the blob with {host}")]
    Io {
        host: String,
        #[source]
        source: io::Error,
    },
    /// the store says no
    #[error("Error executing {method}, response was {status} from {host}; the signature may be no longer valid")]
    Status { method: Method, host: String, status: u16 },
}

impl SignedUrl {
    /// Another URL of the same store.
    pub(crate) fn beside(&self, url: Secret) -> Self {
        Self { signed_url: url, blobstore_headers: self.blobstore_headers.clone() }
    }

    /// Whether there is a URL; without one, the blob is in the store of the settings.
    pub(crate) fn is_given(&self) -> bool {
        !self.signed_url.reveal().is_empty()
    }

    /// Fetches the blob into a new file, trusting the CA in `ca`, or those of the machine.
    pub(crate) fn get(&self, ca: Option<&str>, path: &Path) -> Result<(), SignedUrlError> {
        self.try_to_get(ca, path, PAUSE)
    }

    fn try_to_get(&self, ca: Option<&str>, path: &Path, pause: Duration) -> Result<(), SignedUrlError> {
        let target = self.target(ca)?;
        let mut tries = 1;
        block_on(async {
            loop {
                let got = target.get(self, path).await;
                if got.is_ok() || tries == TRIES {
                    return got;
                }
                tokio::time::sleep(pause).await;
                tries += 1;
            }
        })
        .map_err(|source| SignedUrlError::Io { host: target.host.clone(), source })?
    }

    /// Stores a file there.
    pub(crate) fn put(&self, ca: Option<&str>, path: &Path) -> Result<(), SignedUrlError> {
        let target = self.target(ca)?;
        block_on(target.put(self, path)).map_err(|source| SignedUrlError::Io { host: target.host.clone(), source })?
    }

    fn target(&self, ca: Option<&str>) -> Result<Target, SignedUrlError> {
        let uri: Uri = self.signed_url.reveal().parse().map_err(|_| SignedUrlError::Url)?;
        let authority = uri.authority().ok_or(SignedUrlError::Url)?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(client_config(ca)?), 443),
            _ => return Err(SignedUrlError::Url),
        };
        let name = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(Target { host: authority.host().to_owned(), name, port: authority.port_u16().unwrap_or(port), tls, uri })
    }
}

/// Settings are changed and blobs fetched on threads that may wait.
fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work))
}

type Body = Either<Empty<Bytes>, FileBody>;

/// Where a URL leads.
struct Target {
    /// For people.
    host: String,
    name: String,
    port: u16,
    tls: Option<Arc<rustls::ClientConfig>>,
    uri: Uri,
}

/// An answer, and the connection that it comes over.
struct Answer {
    response: Response<Incoming>,
    connection: JoinHandle<()>,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Target {
    #[expect(clippy::disallowed_methods, reason = "a temporary file of the caller, which another try empties")]
    async fn get(&self, url: &SignedUrl, path: &Path) -> Result<(), SignedUrlError> {
        let request = self.request(url, Method::GET, Either::Left(Empty::new()), None)?;
        let mut answer = self.send(Method::GET, request, PATIENCE).await?;
        let received = async {
            let mut file = tokio::fs::File::create(path).await?;
            while let Some(frame) = tokio::time::timeout(PATIENCE, answer.response.frame()).await? {
                if let Ok(part) = frame.map_err(io::Error::other)?.into_data() {
                    file.write_all(&part).await?;
                }
            }
            file.flush().await
        };
        received.await.map_err(|source| self.broken(source))
    }

    async fn put(&self, url: &SignedUrl, path: &Path) -> Result<(), SignedUrlError> {
        let body = FileBody::open(path).await.map_err(|source| self.broken(source))?;
        let length = body.left();
        let request = self.request(url, Method::PUT, Either::Right(body), Some(length))?;
        self.send(Method::PUT, request, UPLOAD_PATIENCE).await.map(drop)
    }

    fn request(
        &self,
        url: &SignedUrl,
        method: Method,
        body: Body,
        length: Option<u64>,
    ) -> Result<Request<Body>, SignedUrlError> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        // Credentials in a URL are not part of a host's name.
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        for (name, value) in url.blobstore_headers.iter().flatten() {
            let wrong = || SignedUrlError::Header(name.clone());
            let key: HeaderName = name.parse().map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value.reveal()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            request = request.header(key, value);
        }
        request.body(body).map_err(|_| SignedUrlError::Url)
    }

    async fn send(&self, method: Method, request: Request<Body>, patience: Duration) -> Result<Answer, SignedUrlError> {
        kill_point("before a signed URL is used");
        let connected = async {
            let stream = TcpStream::connect((self.name.as_str(), self.port)).await?;
            match &self.tls {
                None => start(stream, request).await,
                Some(tls) => {
                    let name = ServerName::try_from(self.name.clone()).map_err(io::Error::other)?;
                    let connector = tokio_rustls::TlsConnector::from(tls.clone());
                    start(connector.connect(name, stream).await?, request).await
                }
            }
        };
        let answered = tokio::time::timeout(patience, connected).await;
        let answer = answered.unwrap_or_else(|late| Err(late.into())).map_err(|source| self.broken(source))?;
        match answer.response.status() {
            status if status.is_success() => Ok(answer),
            status => Err(SignedUrlError::Status { method, host: self.host.clone(), status: status.as_u16() }),
        }
    }

    fn broken(&self, source: io::Error) -> SignedUrlError {
        SignedUrlError::Io { host: self.host.clone(), source }
    }
}

async fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> io::Result<Answer> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // The request that waits for the answer gets the error.
    let connection = tokio::spawn(async move { drop(connection.await) });
    match sender.send_request(request).await {
        Ok(response) => Ok(Answer { response, connection }),
        Err(error) => {
            connection.abort();
            Err(io::Error::other(error))
        }
    }
}

fn client_config(ca: Option<&str>) -> Result<Arc<rustls::ClientConfig>, SignedUrlError> {
    let mut roots = rustls::RootCertStore::empty();
    match ca {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| SignedUrlError::Ca)?;
                roots.add(certificate).map_err(|_| SignedUrlError::Ca)?;
            }
            if roots.is_empty() {
                return Err(SignedUrlError::Ca);
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| SignedUrlError::Ca)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
