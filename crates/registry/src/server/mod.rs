//! A registry: the original's routes in front of a database, with credentials that let each VM read its own settings only.
//!
//! [`Registry::start`] runs one inside any program; `windlass registry` is little more than that.
//!
//! - [`routes`]: what is answered. [`access`]: to whom.
//! - [`store`]: the settings in SQLite or PostgreSQL.
//! - [`connections`]: what connections need of it.
//! - [`turns`]: how much is answered at once.
//! - [`metrics`]: what is counted.

mod access;
mod connections;
mod metrics;
mod routes;
mod store;
mod turns;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use windlass_connections::{AcceptLoop, Guesses, Tally};
use windlass_contract::Secret;
use windlass_database::OpenError;
pub use windlass_pki::Identity;

use crate::credentials::Credentials;
pub use metrics::Counts;

/// Descriptors that connections leave to the database and to whatever else the process does.
const SPARE_DESCRIPTORS: u64 = 64;

/// How large a request's head may be. There may be many connections of strangers, and each of them is given as much memory.
const HEAD: usize = 16 << 10;

/// How much of an answer the kernel keeps for a client, in bytes.
const KEPT_BY_KERNEL: usize = 64 << 10;

/// How long answers under way may take when the registry ends.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// How a registry is run.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// `sqlite:PATH` or `postgres://…`.
    pub database: Secret,
    /// Credentials for writing. Several, so that a password can be replaced while VMs still read with what was made from the old one.
    pub writers: Vec<Credentials>,
    /// With this certificate, it speaks TLS only.
    pub tls: Option<Identity>,
    /// Also answers requests without credentials that come from an address that stands in the settings it asks for: the
    /// original's check. Addresses can be forged where VMs share a network.
    pub read_by_address: bool,
    /// Also answers requests without credentials from this machine, as BOSH does.
    pub trust_loopback: bool,
    /// Whether [`Registry::counts`] knows anything.
    pub count_instances: bool,
    /// What it puts up with.
    pub limits: Limits,
}

impl Config {
    /// Safe for everything that is not said here.
    pub fn new(listen: SocketAddr, database: Secret, writers: Vec<Credentials>) -> Self {
        Self {
            listen,
            database,
            writers,
            tls: None,
            read_by_address: false,
            trust_loopback: false,
            count_instances: false,
            limits: Limits::default(),
        }
    }
}

/// What a registry puts up with.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How many connections at once; fewer where the process may not open as many files.
    pub connections: usize,
    /// How long a request's head, or a handshake, may take; an idle connection is kept no longer either.
    pub head_patience: Duration,
    /// How long settings may take to arrive.
    pub body_patience: Duration,
    /// How large settings may be, in bytes.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            head_patience: Duration::from_secs(30),
            body_patience: Duration::from_secs(10),
            body: 1 << 20,
        }
    }
}

impl Limits {
    fn of_connections(&self) -> windlass_connections::Limits {
        windlass_connections::Limits {
            connections: self.connections,
            handshake: self.head_patience,
            head: self.head_patience,
            head_size: HEAD,
            // Settings have to be there whole, by then or sooner.
            pause: 2 * self.body_patience,
        }
    }
}

/// why a registry does not start
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// nobody may write, or anybody
    #[error("a registry needs at least one user, and every user a name without a colon and a password")]
    Writers,
    /// the certificate cannot be used
    #[error("the registry's certificate or key cannot be used; both must be PEM and belong together")]
    Identity(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// the database cannot be opened
    #[error("cannot open the registry's database")]
    Database(#[from] OpenError),
    /// the address cannot be listened on
    #[error("cannot listen on {address}; choose another address or port")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// What all requests share.
#[derive(Debug)]
struct Server {
    gate: access::Gate,
    store: store::Store,
    metrics: metrics::Metrics,
    turns: turns::Turns,
    guesses: Guesses,
    limits: Limits,
    read_by_address: bool,
    trust_loopback: bool,
}

/// A registry that runs. Dropped, it ends without waiting for answers under way.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    tls: bool,
    server: Arc<Server>,
    stop: watch::Sender<()>,
    serving: JoinHandle<()>,
}

impl Registry {
    /// Starts a registry; it serves when this returns.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let incomplete =
            |it: &Credentials| it.user.is_empty() || it.user.contains(':') || it.password.reveal().is_empty();
        if config.writers.is_empty() || config.writers.iter().any(incomplete) {
            return Err(StartError::Writers);
        }
        let tls = config.tls.as_ref().map(acceptor).transpose()?;
        let store = store::Store::open(config.database.reveal()).await?;
        let listening = |source| StartError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        // Connections get it from here. A client that takes nothing has the kernel keep as much, otherwise megabytes.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&listener, KEPT_BY_KERNEL);
        let limits = Limits { connections: config.limits.connections.min(most_connections()), ..config.limits };
        let tally = Arc::<Tally>::default();
        let mut accept_loop = AcceptLoop::new(listener, limits.of_connections(), tally.clone());
        let server = Arc::new(Server {
            gate: access::Gate::new(config.writers),
            store,
            metrics: metrics::Metrics::new(tally, config.count_instances),
            turns: turns::Turns::default(),
            guesses: Guesses::default(),
            limits,
            read_by_address: config.read_by_address,
            trust_loopback: config.trust_loopback,
        });
        let (stop, mut stopped) = watch::channel(());
        let is_tls = tls.is_some();
        let responder =
            connections::RegistryResponder { tls, server: server.clone(), router: routes::router(server.clone()) };
        let serving = tokio::spawn(async move {
            let _ = accept_loop.serve(responder, stopped.changed()).await;
            accept_loop.close(LAST_ANSWERS).await;
        });
        Ok(Self { address, tls: is_tls, server, stop, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients find it: without credentials, so it can be shown.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.address)
    }

    /// How often settings were stored or removed.
    pub fn writes(&self) -> u64 {
        self.server.metrics.writes.load(Ordering::Relaxed)
    }

    /// Every instance that was ever asked about, sorted; see [`Config::count_instances`].
    pub fn instances(&self) -> Vec<(String, Counts)> {
        self.server.metrics.instances()
    }

    /// What the settings of `id` were asked for; see [`Config::count_instances`].
    pub fn counts(&self, id: &str) -> Counts {
        self.server.metrics.counts(id)
    }

    /// Finishes the answers under way, and ends.
    pub async fn stop(mut self) {
        let _ = self.stop.send(());
        let _ = (&mut self.serving).await;
        self.server.store.close().await;
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Does nothing after `stop`.
        self.serving.abort();
    }
}

/// As many as the process may open files, but a few.
fn most_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files.saturating_sub(SPARE_DESCRIPTORS).max(1)).unwrap_or(usize::MAX)
}

fn acceptor(identity: &Identity) -> Result<TlsAcceptor, StartError> {
    let unusable = |error: &dyn std::error::Error| StartError::Identity(error.to_string().into());
    let certificates = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unusable(&error))?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.private_key.reveal().as_bytes()).map_err(|error| unusable(&error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|error| unusable(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
