//! From the command line to a listening agent, and to its end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use windlass_contract::explain;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::agent::Agent;
use crate::alerts::Severity;
use crate::command_line::AgentOptions;
use crate::config::{self, Config, ConfigError};
use crate::embedded::Simulation;
use crate::layout::Base;
use crate::mbus::{Mbus, MbusError};
use crate::platform::{self, FindError, Platform, PlatformError};
use crate::server::entrance::{Entrance, Gate};
use crate::server::tls::{self, TlsError};
use crate::settings::{self, SettingsError, SettingsStore};
use crate::spec::Spec;
use crate::supervisor::{Supervisor, SupervisorKind};
use crate::tasks::Tasks;
use crate::{disks, dns, server, software};

/// How long an agent waits for settings that may still come. Then it ends with the reason, and its supervisor starts it again.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(60);

/// How long an agent waits for the one before it to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// why the agent cannot start
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    /// agent.json cannot be used
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// there is no such platform
    #[error(transparent)]
    Platform(#[from] FindError),
    /// the machine cannot be set up
    #[error("{doing}")]
    Machine {
        doing: &'static str,
        #[source]
        source: PlatformError,
    },
    /// there are no settings
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// the mbus URL cannot be used
    #[error(transparent)]
    Mbus(#[from] MbusError),
    /// the server certificate cannot be used
    #[error("Loading configured tls certificate")]
    Tls(#[from] TlsError),
    /// the base directory cannot be used
    #[error("cannot use the base directory {path}")]
    Base {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// what it kept in memory is gone
    #[error(
        "Refusing to boot: the VM was rebooted, and what its settings want kept in memory alone is gone; recreate the VM"
    )]
    Rebooted,
    #[error("another agent uses the base directory {path}; end it first")]
    AnotherAgent { path: PathBuf },
    /// the address cannot be listened on
    #[error("cannot listen on {host}:{port}; check that the VM has this address and that nothing else listens there")]
    Listen {
        host: String,
        port: u16,
        #[source]
        source: io::Error,
    },
    /// threads or signals cannot be had
    #[error("cannot start")]
    Runtime(#[source] io::Error),
}

/// Why the agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// To come back at another address.
    Restart,
    /// Power the VM off.
    Shutdown,
    /// It was told to end.
    Signal,
}

/// An agent that is ready to listen.
#[derive(Debug)]
pub(crate) struct Booted {
    pub(crate) agent: Arc<Agent>,
    pub(crate) endings: UnboundedReceiver<Ending>,
    _lock: Option<FileLock>,
}

/// The agent that the command line describes, ready to listen.
pub(crate) fn boot(options: &AgentOptions) -> Result<Booted, BootError> {
    let config = config::read(options.config.as_deref())?;
    let failed = |source| BootError::Base { path: options.base.clone(), source };
    let base = Base::prepare(&options.base).map_err(failed)?;
    let platform = platform::find(&options.platform, &base, &config.linux)?;
    let lock = FileLock::acquire(&base.lock(), LOCK_PATIENCE).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => BootError::AnotherAgent { path: options.base.clone() },
        _ => failed(error),
    })?;
    let lock = Some(lock);
    let (supervisor, patience) = (options.supervisor, SETTINGS_PATIENCE);
    start(Parts { base, platform, supervisor, lock, patience, simulation: None }, config)
}

/// What an agent is made of beside its configuration.
pub(crate) struct Parts {
    pub(crate) base: Base,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) supervisor: SupervisorKind,
    /// Keeps other agents away from the base directory; none where one process has them all.
    pub(crate) lock: Option<FileLock>,
    /// How long settings that may still come are waited for.
    pub(crate) patience: Duration,
    pub(crate) simulation: Option<Arc<dyn Simulation>>,
}

/// Loads settings and mounts the disk that was mounted before.
pub(crate) fn start(parts: Parts, config: Config) -> Result<Booted, BootError> {
    let Parts { base, platform, supervisor, lock, patience, simulation } = parts;
    let settings = SettingsStore::open(base.clone(), platform.clone(), config.sources, config.registry, patience)?;
    let entrance = {
        let settings = settings.current();
        Entrance { mbus: Mbus::parse(settings.mbus_url())?, tls: tls::server_config(&settings, &base)? }
    };
    let supervisor = Supervisor::new(supervisor, &base, platform.runs_jobs(), &config.linux.service_manager);
    let tasks = Tasks::new(base.tasks());
    let resolver = dns::start::resolver(&settings.current(), &base, &*platform);
    let (ending, endings) = unbounded_channel();
    let agent = Arc::new(Agent {
        base,
        settings,
        platform,
        supervisor,
        takes_hints: config.takes_hints,
        tasks,
        gate: Gate::new(entrance),
        vitals: Default::default(),
        alerts: Default::default(),
        dns: Default::default(),
        resolver,
        visitors: Default::default(),
        ending,
        simulation,
    });
    authorize_keys(&agent)?;
    set_passwords(&agent)?;
    set_hostname(&agent)?;
    set_up(&agent)?;
    refuse_after_reboot(&agent)?;
    mount_last_disk(&agent);
    make_job_folders(&agent);
    if let Err(error) = agent.supervisor.resume() {
        agent.alerts.raise(Severity::Alert, "the jobs are not looked after".to_owned(), explain(&error));
    }
    agent.resume_tasks();
    Ok(Booted { agent, endings, _lock: lock })
}

fn failed_to(doing: &'static str) -> impl FnOnce(PlatformError) -> BootError {
    move |source| BootError::Machine { doing, source }
}

/// People whom the cloud or the settings name come in as the VM's own user. A source that says nothing changes nothing.
fn authorize_keys(agent: &Agent) -> Result<(), BootError> {
    let settings = agent.settings.current();
    let named = settings.agent.env.bosh.other.get("authorized_keys").and_then(Value::as_array);
    let named = named.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let keys: Vec<String> = named.chain(agent.settings.public_key()).filter(|key| !key.is_empty()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    agent.platform.authorize_keys("vcap", &keys).map_err(failed_to("Setting up ssh"))
}

fn set_hostname(agent: &Agent) -> Result<(), BootError> {
    let hostname = agent.settings.current().agent.agent_id.to_string();
    agent.platform.set_hostname(&hostname).map_err(failed_to("Setting up hostname"))
}

fn set_up(agent: &Agent) -> Result<(), BootError> {
    agent.platform.set_up(&agent.settings.current().agent).map_err(failed_to("Setting up the machine"))
}

/// What was in memory is gone with a reboot, so jobs would run without their files. A VM that keeps things there starts once.
fn refuse_after_reboot(agent: &Agent) -> Result<(), BootError> {
    let settings = &agent.settings.current().agent;
    if !settings::are_in_memory(settings) && !settings::has_jobs_in_memory(settings) {
        return Ok(());
    }
    let folder = agent.base.until_reboot();
    if !agent.platform.make_memory_folder(&folder).map_err(failed_to("Setting up canrestart dir"))? {
        return Ok(());
    }
    let (before, since) = (agent.base.has_started(), folder.join("bootonce"));
    if before.exists() && !since.exists() {
        return Err(BootError::Rebooted);
    }
    // In this order: a kill between the two is no reboot.
    for path in [since, before] {
        file::write(&path, b"", file::PRIVATE).map_err(|source| BootError::Base { path, source })?;
    }
    Ok(())
}

/// The password of the VM's users is in its settings; an empty one lets nobody in.
fn set_passwords(agent: &Agent) -> Result<(), BootError> {
    let settings = agent.settings.current();
    let bosh = &settings.agent.env.bosh.other;
    let hash = bosh.get("password").and_then(Value::as_str).unwrap_or_default();
    let keep_root = bosh.get("keep_root_password").and_then(Value::as_bool).unwrap_or_default();
    let users = if keep_root { &["vcap"][..] } else { &["root", "vcap"] };
    users
        .iter()
        .try_for_each(|user| agent.platform.set_password(user, hash))
        .map_err(failed_to("Settings user password"))
}

/// A disk that cannot be mounted does not keep the agent from starting: a caller can only help an agent that listens.
fn mount_last_disk(agent: &Agent) {
    let Ok(cid) = std::fs::read_to_string(agent.base.mounted_disk()) else { return };
    let cid = cid.trim();
    if cid.is_empty() {
        return;
    }
    let settings = agent.settings.current();
    let lost = |cause: &dyn std::error::Error| {
        let title = format!("disk {cid} was mounted before and is not mounted now");
        agent.alerts.raise(Severity::Alert, title, explain(cause));
    };
    let disk = match disks::find(&agent.base.disk_hints(), &settings.agent, cid) {
        Ok(disk) => disk,
        Err(error) => return lost(&error),
    };
    match agent.platform.mount_persistent_disk(&disk) {
        Ok(()) => tracing::info!("disk {cid} is mounted"),
        Err(error) => lost(&error),
    }
}

/// The supervisor brings back what ran before a reboot, and no script runs before that.
fn make_job_folders(agent: &Agent) {
    let failed = |error: &dyn std::error::Error| {
        agent.alerts.raise(Severity::Alert, "the jobs have no folders".to_owned(), explain(error));
    };
    match Spec::read(&agent.base.spec()) {
        Ok(spec) => {
            if let Err(error) = software::make_folders(agent, &spec) {
                failed(&error);
            }
        }
        Err(error) => failed(&error),
    }
}

/// Listens for messages until the end.
pub(crate) fn serve(booted: Booted) -> Result<Ending, BootError> {
    let Booted { agent, mut endings, _lock } = booted;
    let entrance = agent.gate.current();
    let mbus = &entrance.mbus;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(BootError::Runtime)?;
    let ending = runtime.block_on(async {
        let listener = listen(&mbus.host, mbus.port).await?;
        let mut terminate = signal(SignalKind::terminate()).map_err(BootError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(BootError::Runtime)?;
        tracing::info!("agent {} listens on {}:{}", agent.settings.current().agent.agent_id, mbus.host, mbus.port);
        let end = async {
            tokio::select! {
                Some(ending) = endings.recv() => ending,
                _ = terminate.recv() => Ending::Signal,
                _ = interrupt.recv() => Ending::Signal,
            }
        };
        Ok(server::serve(listener, agent.clone(), end).await)
    });
    // A thread may still write; what it writes is whole or not at all.
    runtime.shutdown_background();
    if let Ok(ending) = &ending {
        tracing::info!("ending: {ending:?}");
    }
    if let Ok(Ending::Shutdown) = &ending {
        agent.platform.power_off();
    }
    ending
}

/// Listens where the settings say.
pub(crate) async fn listen(host: &str, port: u16) -> Result<TcpListener, BootError> {
    let failed = |source| BootError::Listen { host: host.to_owned(), port, source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect();
    TcpListener::bind(addresses.as_slice()).await.map_err(failed)
}
