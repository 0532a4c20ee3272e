//! Starting and stopping a director.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windlass_blobs::BlobError;
use windlass_contract::{Secret, explain};
use windlass_cpi_client::CpiCommand;
use windlass_database::Lead;
use windlass_durable::file;
use windlass_durable::lock::FileLock;
use windlass_operations::agents::{Agents, Permission};
use windlass_operations::clouds::Clouds;
use windlass_pki::{Keychain, PkiError};
use windlass_variables::External;

use crate::built_in::BuiltInError;
use crate::driven_cpis::{self, Drivers};
use crate::leadership::{self, Leadership, LeadershipError};
use crate::limits::Limits;
use crate::local_dns::{self, LocalDns};
use crate::metrics::Metrics;
use crate::recovery::{self, RecoveryError};
use crate::resurrector::{self, HealthRecord};
use crate::server_tls::{self, LiveCertificate};
use crate::settings::Settings;
use crate::software::Library;
use crate::state_dir::StateDir;
use crate::store::{Event, Store, StoreError};
use crate::tasks::{Finished, Workers};
use crate::users::{Credentials, Users};
use crate::variables::vault::{self, VaultError};
use crate::variables::{ValuesOfInstances, Variables};
use crate::{Director, RefreshError, api, blobs, certificates, schedules, software, standby, webhook};

/// How a director is started.
#[derive(Debug, Clone)]
pub struct DirectorOptions {
    /// Where everything is kept.
    pub state_dir: PathBuf,
    /// What the operator set.
    pub settings: Settings,
    /// The command of the clouds that are built in, to which `local …` or `sim …` is added.
    pub own_cpi: CpiCommand,
}

/// Clients ask twice a second how their task is; after its end they ask for its output and its result.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a start waits for what an earlier run left open, before it says how to connect.
const SOON_SETTLED: Duration = Duration::from_secs(10);
const ADMIN: &str = "admin";

/// why a director does not start
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// the state directory cannot be used
    #[error("cannot use the state directory {}", path.display())]
    StateDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the folder that directors share cannot be used
    #[error("cannot use the shared_dir {}; it must be there, and belong to the director's user", path.display())]
    SharedDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// another director uses it
    #[error("another director uses {}; stop it, or choose another --state-dir", path.display())]
    InUse { path: PathBuf },
    /// the database cannot be opened
    #[error("cannot open the director's database")]
    Database(#[from] windlass_database::OpenError),
    /// another director may use the database
    #[error(transparent)]
    Leadership(#[from] LeadershipError),
    /// the records cannot be read
    #[error(transparent)]
    Store(#[from] StoreError),
    /// certificates cannot be made
    #[error("cannot make the director's certificates")]
    Pki(#[from] PkiError),
    /// certificates cannot be used
    #[error("cannot use the director's certificates")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// the configuration of the default CPI cannot be used
    #[error(transparent)]
    BuiltIn(#[from] BuiltInError),
    /// the CPIs of the cpi config cannot be driven
    #[error(transparent)]
    Refresh(#[from] RefreshError),
    /// blobs cannot be kept where they should be
    #[error("the blobstore of director.yml cannot be used")]
    Blobs(#[source] Box<BlobError>),
    /// the values of variables cannot be read
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// the config server cannot be asked
    #[error(transparent)]
    ConfigServer(#[from] windlass_variables::ExternalError),
    /// the address cannot be listened on
    #[error("cannot listen on {address}; choose another --listen")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// an earlier run cannot be looked at
    #[error("cannot settle what an earlier run left open")]
    Recovery(#[from] RecoveryError),
}

/// A director that runs.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    env_sh: PathBuf,
    stop_workers: watch::Sender<bool>,
    workers: JoinHandle<Finished>,
    resurrector: JoinHandle<()>,
    renewal: JoinHandle<()>,
    schedules: JoinHandle<()>,
    webhook: JoinHandle<()>,
    dns: JoinHandle<()>,
    stop_server: watch::Sender<bool>,
    server: JoinHandle<()>,
    settling: JoinHandle<()>,
    director: Arc<Director>,
    leadership: Leadership,
    _lock: FileLock,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resolves when another director took over the database; this one should end at once then.
    pub fn is_deposed(&self) -> impl Future<Output = ()> + use<> {
        self.leadership.lost()
    }

    /// How to connect, for a shell.
    pub fn env_sh(&self) -> &std::path::Path {
        &self.env_sh
    }

    /// Stops cleanly: no new tasks are begun, running ones finish, and clients that follow them see their end. Once `hurry`
    /// resolves, tasks stop after the step that they are at; what is left of them is for the next try.
    pub async fn stop(self, hurry: impl Future<Output = ()>) {
        let _ = self.stop_workers.send(true);
        // What is not settled yet is for the next start.
        self.settling.abort();
        for watching in [self.resurrector, self.renewal, self.schedules, self.webhook, self.dns] {
            let _ = watching.await;
        }
        let mut workers = self.workers;
        let finished = tokio::select! {
            finished = &mut workers => finished,
            () = hurry => {
                self.director.workers.cancel_all();
                workers.await
            }
        };
        if let Ok(Finished::SomeTasks) = finished {
            tokio::time::sleep(FAREWELL).await;
        }
        let _ = self.stop_server.send(true);
        let _ = self.server.await;
        self.director.store.close().await;
    }
}

/// Starts a director: stands by as long as another one leads, then serves, and settles beside it what an earlier run left open.
/// Once `give_up` resolves it stands by no longer, and nothing is started.
pub async fn start(options: DirectorOptions, give_up: impl Future<Output = ()>) -> Result<Option<Running>, StartError> {
    let unusable = |source| StartError::StateDir { path: options.state_dir.clone(), source };
    let folders = StateDir::open(&options.state_dir).map_err(unusable)?;
    let lock = FileLock::acquire_unless_kept(&folders.lock())
        .map_err(unusable)?
        .ok_or_else(|| StartError::InUse { path: options.state_dir.clone() })?;
    let settings = options.settings;
    standby::check(&settings)?;
    let folders = match &settings.shared_dir {
        Some(shared) => {
            let unusable = |source| StartError::SharedDir { path: shared.clone(), source };
            folders.shared_in(shared).map_err(unusable)?
        }
        None => folders,
    };
    let embedded = || Secret::new(format!("sqlite:{}", folders.database().display()));
    let database = settings.db.clone().unwrap_or_else(embedded);
    let listen = settings.listen;
    let listening = |source| StartError::Listen { address: listen, source };
    let listener = std::net::TcpListener::bind(listen).map_err(listening)?;
    listener.set_nonblocking(true).map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    let leadership = match Leadership::take(database.reveal()).await? {
        Some(leadership) => leadership,
        None => tokio::select! {
            leadership = standby::stand_by(database.reveal(), &folders, &settings, &listener) => leadership?,
            () = give_up => return Ok(None),
        },
    };
    let store = Store::open(database.reveal()).await?;
    let store = store.led(leadership.lead(), &url(&settings, address), settings.cpi_deadline).await?;
    // The leader before may have taken folders of this run for those of an earlier one.
    folders.make_shared_folders().map_err(unusable)?;
    let uuid = store.attribute("uuid", || uuid::Uuid::new_v4().to_string()).await?;
    if settings.shared_dir.is_some() {
        standby::mark(&folders, &uuid)?;
    }
    let password = store.attribute("admin_password", || uuid::Uuid::new_v4().simple().to_string()).await?;
    let admin = Credentials { user: ADMIN.to_owned(), password: Secret::new(password) };

    let keychain = Keychain::new(&folders.pki(), server_names(&settings), settings.certificates);
    // Agents are asked only once the director runs, so nobody was heard yet.
    let keys = keychain.refresh(OffsetDateTime::now_utc(), false)?;
    leadership::must_be_trusted(&store, &keys.authority, &folders.pki()).await?;
    let given = settings.tls.as_ref();
    let trusted = server_tls::trusted(given, &keys.authority).map_err(|error| StartError::Tls(error.into()))?;
    file::write(&folders.ca_certificate(), trusted.as_bytes(), 0o644).map_err(unusable)?;
    let shown = server_tls::shown(given, keys.server).map_err(|error| StartError::Tls(error.into()))?;
    let live = Arc::new(LiveCertificate::new(&shown).map_err(|error| StartError::Tls(error.into()))?);
    let tls = server_tls::server_config(live.clone()).map_err(|error| StartError::Tls(error.into()))?;
    let may_speak = permission(leadership.lead());
    let agents = Agents::with_permission(keys.authority, &keys.client, settings.agent_env.clone(), may_speak)
        .map_err(|error| StartError::Tls(error.into()))?
        .with_wait(settings.agent_wait);

    let cipher = Arc::new(vault::open(&store, &settings.variables, &folders).await?);
    let variables = match &settings.config_server {
        Some(elsewhere) => Variables::elsewhere(store.clone(), cipher, External::new(elsewhere.clone())?),
        None => Variables::embedded(store.clone(), cipher),
    };
    let metrics = Arc::new(Metrics::default());
    let drivers = Drivers {
        own_cpi: options.own_cpi,
        settings: settings.clone(),
        folders: folders.clone(),
        director_uuid: uuid.clone(),
        metrics: metrics.clone(),
        variables: Some(variables.clone()),
        driven: Default::default(),
    };
    let blobs = Arc::new(open_blobs(&settings, &folders, &uuid).await?);
    let values = ValuesOfInstances { director: settings.name.clone(), variables: variables.clone() };
    let clouds = Clouds::with_default(drivers.default_cpi()?).filled_by(Arc::new(values));
    let renderer = software::renderer(settings.ruby).map_err(unusable)?;
    let agents = Arc::new(agents);
    let dns = Arc::new(LocalDns::new(settings.local_dns, store.clone(), agents.clone(), folders.temporary()));
    let director = Arc::new(Director {
        name: settings.name.clone(),
        users: Users::new(&uuid, admin, settings.users.clone()),
        uuid,
        store: store.clone(),
        clouds,
        drivers: Some(drivers),
        agents,
        dns,
        lead: leadership.lead().clone(),
        folders: folders.clone(),
        workers: Workers::default(),
        settings,
        health: HealthRecord::default(),
        metrics,
        limits: Limits::default(),
        library: Arc::new(Library::new(store.clone(), blobs.clone(), renderer)),
        variables,
        webhook: Default::default(),
        known_answers: Default::default(),
        blobs,
        release_files: Default::default(),
    });
    director.refresh_clouds().await?;
    let left_open = recovery::look(&director).await?;
    director.store.add_event(&Event::director_starts(&director.name)).await?;

    let listener = tokio::net::TcpListener::from_std(listener).map_err(listening)?;
    let (stop_workers, workers_stop) = watch::channel(false);
    let (stop_server, server_stops) = watch::channel(false);
    let workers = tokio::spawn(Workers::run(director.clone(), until(workers_stop)));
    let resurrector = tokio::spawn(resurrector::run(director.clone(), until(stop_workers.subscribe())));
    let renewal = certificates::run(director.clone(), keychain, live, until(stop_workers.subscribe()));
    let renewal = tokio::spawn(renewal);
    let schedules = tokio::spawn(schedules::run(director.clone(), until(stop_workers.subscribe())));
    let webhook = tokio::spawn(webhook::run(director.clone(), until(stop_workers.subscribe())));
    let dns = tokio::spawn(local_dns::run(director.dns.clone(), until(stop_workers.subscribe())));
    let server = tokio::spawn(api::serve(director.clone(), listener, tls, until(server_stops)));
    let greeting = director.clone();
    tokio::spawn(async move { driven_cpis::ask_all(&greeting.clouds).await });
    let mut settling = tokio::spawn({
        let director = director.clone();
        async move { recovery::settle_left_open(&director, left_open).await }
    });
    // Most of it takes a moment. When the file is there everything is settled; requests are served before that.
    let _ = tokio::time::timeout(SOON_SETTLED, &mut settling).await;
    write_env_sh(&director, address).map_err(unusable)?;
    Ok(Some(Running {
        address,
        env_sh: folders.env_sh(),
        stop_workers,
        workers,
        resurrector,
        renewal,
        schedules,
        webhook,
        dns,
        stop_server,
        server,
        settling,
        director,
        leadership,
        _lock: lock,
    }))
}

/// A store that cannot be reached may be there later; one of another director is refused.
async fn open_blobs(
    settings: &Settings,
    folders: &StateDir,
    uuid: &str,
) -> Result<windlass_blobs::Blobstore, StartError> {
    let refused = |error| StartError::Blobs(Box::new(error));
    let blobs = blobs::open(settings, folders, uuid).map_err(refused)?;
    match blobs.claim().await {
        Err(error @ (BlobError::Owned { .. } | BlobError::ReadOnly(_))) => Err(refused(error)),
        Err(error) => {
            tracing::error!(error = explain(&error), "blobs cannot be kept until their store answers");
            Ok(blobs)
        }
        Ok(()) => Ok(blobs),
    }
}

/// Agents are told nothing by a director that another one may have taken over from.
fn permission(lead: &Arc<Lead>) -> Permission {
    let lead = lead.clone();
    Permission::new(move || {
        let lead = lead.clone();
        Box::pin(async move { lead.certain().await })
    })
}

pub(crate) async fn until(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Under which names clients reach the director.
pub(crate) fn server_names(settings: &Settings) -> Vec<String> {
    let mut names = vec!["127.0.0.1".to_owned(), "::1".to_owned(), "localhost".to_owned()];
    names.extend(std::fs::read_to_string("/proc/sys/kernel/hostname").map(|name| name.trim().to_owned()));
    names.extend(settings.advertise.clone());
    if !settings.listen.ip().is_unspecified() {
        names.push(settings.listen.ip().to_string());
    }
    names.sort();
    names.dedup();
    names
}

/// Where clients reach the director.
fn url(settings: &Settings, address: SocketAddr) -> String {
    let bracketed = |address: IpAddr| match address {
        IpAddr::V6(v6) => format!("[{v6}]"),
        IpAddr::V4(v4) => v4.to_string(),
    };
    let host = match (address.ip(), settings.advertise.first()) {
        (unspecified, Some(name)) if unspecified.is_unspecified() => {
            name.parse().map_or_else(|_| name.clone(), bracketed)
        }
        (unspecified, None) if unspecified.is_unspecified() => "127.0.0.1".to_owned(),
        (address, _) => bracketed(address),
    };
    format!("https://{host}:{}", address.port())
}

/// For `bosh` and for `windlass`. Written last: when it is there, the director answers.
fn write_env_sh(director: &Director, address: SocketAddr) -> io::Result<()> {
    let quoted = |text: String| format!("'{}'", text.replace('\'', r"'\''"));
    let lines = [
        ("BOSH_ENVIRONMENT", url(&director.settings, address)),
        ("BOSH_CA_CERT", director.folders.ca_certificate().display().to_string()),
        ("BOSH_CLIENT", director.users.admin().user.clone()),
        ("BOSH_CLIENT_SECRET", director.users.admin().password.reveal().to_owned()),
    ];
    let text: String = lines.into_iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
    file::write(&director.folders.env_sh(), text.as_bytes(), file::PRIVATE)
}
