//! A real registry that tells who came.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use windlass_contract::{AgentId, Secret};
use windlass_registry::server::{Config, Registry};
use windlass_registry::{Client, Credentials};

use crate::profile::Profile;
use crate::run::CertifyError;

/// Where the registry listens, and how CPI and VMs know.
#[derive(Debug, Clone)]
pub struct RegistryPlace {
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// The address by which VMs reach it; where it listens, if absent.
    pub host: Option<IpAddr>,
    /// Of the CPI, which writes.
    pub credentials: Credentials,
    /// The CPI has all of this in its own configuration; otherwise it is sent in the context of every call.
    pub is_configured: bool,
}

impl Default for RegistryPlace {
    /// On loopback, with a password of its own.
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            host: None,
            credentials: Credentials {
                user: "certify".into(),
                password: Secret::new(uuid::Uuid::new_v4().to_string()),
            },
            is_configured: false,
        }
    }
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RegistryTraffic {
    /// Settings were stored or removed.
    pub(super) writes: u64,
    /// Settings were asked for by the instance whose they are.
    pub(super) reads: u64,
    /// Settings were asked for with the credentials for writing, as some CPIs let their agents do.
    pub(super) lookups: u64,
}

pub(super) struct WatchedRegistry {
    registry: Registry,
    is_configured: bool,
    client: Client,
    properties: Value,
}

impl WatchedRegistry {
    /// Starts it, with its database in `folder`.
    pub(super) async fn start(place: &RegistryPlace, folder: &Path) -> Result<Self, CertifyError> {
        let database = Secret::new(format!("sqlite:{}", folder.join("registry.db").display()));
        let mut config = Config::new(place.listen, database, vec![place.credentials.clone()]);
        config.count_instances = true;
        let failed = |error: &(dyn std::error::Error + 'static)| CertifyError::Registry(error.to_string().into());
        let registry = Registry::start(config).await.map_err(|error| CertifyError::Registry(error.into()))?;
        let Credentials { user, password } = &place.credentials;
        let seen_by_vms = SocketAddr::new(place.host.unwrap_or(registry.address().ip()), registry.address().port());
        // Whatever address it listens on, it is reached from here.
        let near = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), registry.address().port());
        let near = if registry.address().ip().is_unspecified() { near } else { registry.address() };
        let client = Client::new(&Secret::new(format!("http://{near}"))).map_err(|error| failed(&error))?;
        Ok(Self {
            client: client.with_credentials(user.clone(), password.clone()),
            properties: json!({"endpoint": format!("http://{seen_by_vms}"), "user": user, "password": password.reveal()}),
            registry,
            is_configured: place.is_configured,
        })
    }

    /// The profile for a CPI that must know of it.
    pub(super) fn told_in(&self, profile: &Profile) -> Profile {
        let mut profile = profile.clone();
        if !self.is_configured {
            profile.context.insert("registry".into(), self.properties.clone());
        }
        profile
    }

    pub(super) fn seen(&self) -> RegistryTraffic {
        self.registry.instances().into_iter().fold(RegistryTraffic::default(), |sum, (_, counts)| RegistryTraffic {
            writes: sum.writes + counts.writes + counts.deletions,
            reads: sum.reads + counts.reads,
            lookups: sum.lookups + counts.lookups,
        })
    }

    /// The settings of this agent, whatever name the CPI gave to its VM.
    pub(super) async fn record_of(&self, agent: &AgentId) -> Option<Value> {
        for (id, _) in self.registry.instances() {
            if let Ok(Some(settings)) = self.client.get(&id).await
                && settings.agent_id == *agent
            {
                return serde_json::to_value(settings).ok();
            }
        }
        None
    }
}

/// A registry with threads of its own, for as long as it is held.
pub(crate) struct RunningRegistry {
    registry: WatchedRegistry,
    _runtime: Runtime,
}

impl RunningRegistry {
    pub(crate) fn start(place: &RegistryPlace, folder: &Path) -> Result<Self, CertifyError> {
        let runtime = runtime()?;
        let registry = runtime.block_on(WatchedRegistry::start(place, folder))?;
        Ok(Self { registry, _runtime: runtime })
    }

    /// The profile for a CPI that must know of it.
    pub(crate) fn told_in(&self, profile: &Profile) -> Profile {
        self.registry.told_in(profile)
    }
}

/// Threads for agents and registry.
pub(super) fn runtime() -> Result<Runtime, CertifyError> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(CertifyError::Runtime)
}
