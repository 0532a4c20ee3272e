//! A small client: one request per connection, retries that end, and errors that name the endpoint, never a password.
//!
//! Written on `hyper` alone, because the executables that use it live for one call: a general client would build its pool
//! and read the system's certificates first, also for a registry that needs neither.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use windlass_contract::Secret;
use windlass_contract::registry::RegistryEnvelope;
use windlass_contract::settings::AgentSettings;
use windlass_durable::kill_point;

use crate::credentials::{Credentials, reading_password};
use crate::endpoint::Endpoint;

/// How often a request is tried before the registry counts as unreachable.
const TRIES: u32 = 5;

/// How long one try may take.
const TRY: Duration = Duration::from_secs(10);

/// How long the second try waits; each later one waits twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Settings are small; more than this is not read.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;

/// why a registry could not be used
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// the endpoint is wrong
    #[error("the registry's endpoint cannot be used, because {reason}; it must look like http://host:port")]
    Endpoint {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// the certificate of its CA is wrong
    #[error("the CA certificate of the registry at {endpoint} cannot be used; it must be PEM")]
    Ca { endpoint: String },
    /// it does not answer
    #[error("cannot reach the registry at {endpoint}, tried {TRIES} times")]
    Unreachable {
        endpoint: String,
        /// The last failure.
        #[source]
        source: io::Error,
    },
    /// it does not know us
    #[error("the registry at {endpoint} refuses the credentials; check user and password")]
    Refused { endpoint: String },
    /// it answers something else
    #[error("the registry at {endpoint} answered {status} to {method} of the settings of '{id}'")]
    Status {
        endpoint: String,
        status: u16,
        /// What was asked.
        method: &'static str,
        /// Whose settings.
        id: String,
    },
    /// what it has are no settings; what they are is not said, because settings hold secrets
    #[error("the registry at {endpoint} has no usable settings for '{id}'; recreate the VM")]
    Settings {
        endpoint: String,
        /// Whose settings.
        id: String,
    },
}

impl RegistryError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Status { status: 500.., .. })
    }
}

#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    credentials: Option<Credentials>,
    ca: Option<String>,
}

impl Client {
    /// The registry at `endpoint`, with the credentials that are inside of it, if any.
    pub fn new(endpoint: &Secret) -> Result<Self, RegistryError> {
        let (endpoint, credentials) = Endpoint::parse(endpoint.reveal())?;
        Ok(Self { endpoint, credentials, ca: None })
    }

    /// With these credentials, if the endpoint has none.
    pub fn or_credentials(mut self, user: impl Into<String>, password: Secret) -> Self {
        self.credentials.get_or_insert_with(|| Credentials { user: user.into(), password });
        self
    }

    /// With these credentials instead of those inside the endpoint.
    pub fn with_credentials(mut self, user: impl Into<String>, password: Secret) -> Self {
        self.credentials = Some(Credentials { user: user.into(), password });
        self
    }

    /// Trusts the CAs in `pem` instead of the system's.
    pub fn with_ca(mut self, pem: impl Into<String>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// The credentials that let `id` read its own settings and no others.
    pub fn credentials_for(&self, id: &str) -> Credentials {
        let writing = self.credentials.as_ref().map(|credentials| credentials.password.clone()).unwrap_or_default();
        Credentials { user: id.to_owned(), password: reading_password(&writing, id) }
    }

    /// The endpoint with those credentials inside.
    pub fn endpoint_for(&self, id: &str) -> Secret {
        self.endpoint.with_credentials(&self.credentials_for(id))
    }

    /// The settings of `id`; none if the registry does not know it.
    pub async fn get(&self, id: &str) -> Result<Option<AgentSettings>, RegistryError> {
        let (status, body) = self.ask(Method::GET, id, Bytes::new()).await?;
        match status {
            StatusCode::OK => {
                let envelope = serde_json::from_slice::<RegistryEnvelope>(&body);
                envelope.and_then(|envelope| envelope.decode()).map(Some).map_err(|_| self.no_settings(id))
            }
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(self.unexpected(other, "GET", id)),
        }
    }

    /// Stores the settings of `id`.
    pub async fn put(&self, id: &str, settings: &AgentSettings) -> Result<(), RegistryError> {
        let body = serde_json::to_vec(settings).map_err(|_| self.no_settings(id))?;
        match self.ask(Method::PUT, id, body.into()).await?.0 {
            status if status.is_success() => Ok(()),
            other => Err(self.unexpected(other, "PUT", id)),
        }
    }

    /// Removes the settings of `id`; ones that are gone are a success.
    pub async fn delete(&self, id: &str) -> Result<(), RegistryError> {
        match self.ask(Method::DELETE, id, Bytes::new()).await?.0 {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            other => Err(self.unexpected(other, "DELETE", id)),
        }
    }

    fn no_settings(&self, id: &str) -> RegistryError {
        RegistryError::Settings { endpoint: self.endpoint.to_string(), id: id.to_owned() }
    }

    fn unexpected(&self, status: StatusCode, method: &'static str, id: &str) -> RegistryError {
        let endpoint = self.endpoint.to_string();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RegistryError::Refused { endpoint },
            _ => RegistryError::Status { endpoint, status: status.as_u16(), method, id: id.to_owned() },
        }
    }

    /// Every request means the same when it is repeated, so each is tried again after a failure that may pass.
    async fn ask(&self, method: Method, id: &str, body: Bytes) -> Result<(StatusCode, Bytes), RegistryError> {
        let tls = self.tls()?;
        let mut pause = PAUSE;
        let mut tries = 1;
        loop {
            kill_point("before a registry is asked");
            let once = self.once(tls.clone(), method.clone(), id, body.clone());
            let answer = match tokio::time::timeout(TRY, once).await {
                Ok(answer) => answer,
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {TRY:?}"))),
            };
            kill_point("after a registry was asked");
            match answer {
                Ok((status, _)) if status.is_server_error() && tries < TRIES => {}
                Ok(answer) => return Ok(answer),
                Err(_) if tries < TRIES => {}
                Err(source) => return Err(RegistryError::Unreachable { endpoint: self.endpoint.to_string(), source }),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            tries += 1;
        }
    }

    async fn once(
        &self,
        tls: Option<Arc<rustls::ClientConfig>>,
        method: Method,
        id: &str,
        body: Bytes,
    ) -> io::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.endpoint.settings(id))
            .header(HOST, self.endpoint.authority())
            .header(CONTENT_TYPE, "application/json");
        if let Some(Credentials { user, password }) = &self.credentials {
            let credentials = BASE64_STANDARD.encode(format!("{user}:{}", password.reveal()));
            request = request.header(AUTHORIZATION, format!("Basic {credentials}"));
        }
        let request = request.body(Full::new(body)).map_err(io::Error::other)?;
        let stream = TcpStream::connect((self.endpoint.host.as_str(), self.endpoint.port)).await?;
        match tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(self.endpoint.host.clone()).map_err(io::Error::other)?;
                exchange(tokio_rustls::TlsConnector::from(tls).connect(name, stream).await?, request).await
            }
        }
    }

    fn tls(&self) -> Result<Option<Arc<rustls::ClientConfig>>, RegistryError> {
        if !self.endpoint.tls {
            return Ok(None);
        }
        let wrong = || RegistryError::Ca { endpoint: self.endpoint.to_string() };
        let mut roots = rustls::RootCertStore::empty();
        match &self.ca {
            Some(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    roots.add(certificate.map_err(|_| wrong())?).map_err(|_| wrong())?;
                }
                if roots.is_empty() {
                    return Err(wrong());
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|_| wrong())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Some(Arc::new(config)))
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> io::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await.map_err(io::Error::other)?;
        Ok((status, body.to_bytes()))
    };
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        // Its end is either a failure or the end of an answer that was read.
        ended = connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(io::Error::other(error)),
        },
    }
}
