//! A run: the manifest, the state, the CPI and the way to the agent, brought together for whatever is to be done.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use windlass_contract::cpi::methods::HasVm;
use windlass_contract::version::SettingsFrom;
use windlass_contract::{AgentId, ApiVersion, Networks, Object, Secret};
use windlass_cpi_client::{CallError, Configuration, Cpi, CpiCommand, CpiOptions, Environment};
use windlass_download::Patience;
use windlass_durable::file;
use windlass_installation::{InstallError, SecretFolder};
use windlass_manifest::{Document, Findings, ParseError};
use windlass_operations::agents::{Agents, GivenAgent};
use windlass_operations::clouds::{ChangeError, Clouds, OnBehalfOf};
use windlass_operations::ledger::{Change, Fact, LedgerError};
use windlass_operations::steps::{Context, InstanceIdentity, StepError, WorkError};
use windlass_pki::{Authority, PkiError};
use windlass_planning::names::{CpiName, DiskName};
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::{DiskRecord, StemcellOfVm, VmRecord};

use windlass_render::Backends;

use crate::cloud_provider::{CloudProvider, CpiForm, Mbus, OwnCpi};
use crate::cpi_release::{self, CpiSoftware};
use crate::ledger::EnvLedger;
use crate::manifest::Wanted;
use crate::registry::{EnvRegistry, RegistryError};
use crate::releases::EnvReleaseError;
use crate::report::{Report, Screen};
use crate::software::{EnvSoftware, JobsError};
use crate::state::{CA, REGISTRY, StateError, StateFile, StemcellEntry};
use crate::stemcell::StemcellError;

/// How long one CPI call may take.
const CPI_DEADLINE: Duration = Duration::from_secs(3600);
/// The id of the one instance.
pub(crate) const ONLY_INSTANCE: &str = "0";
/// How long an agent that should be there may take to answer.
pub(crate) const PING_PATIENCE: Duration = Duration::from_secs(10);

/// What a run is about.
#[derive(Debug, Clone)]
pub struct EnvOptions {
    /// Where the manifest is; paths in it start there.
    pub manifest_path: PathBuf,
    /// The manifest after operations and with all variables filled in.
    pub manifest: String,
    pub state_path: PathBuf,
    /// Where downloads are kept.
    pub downloads: PathBuf,
    /// Where CPIs of releases are installed, each environment's in a folder of its own.
    pub installations: PathBuf,
    /// Where packages of CPIs are installed instead.
    pub package_dir: Option<PathBuf>,
    /// Renders the templates of jobs.
    pub renderer: Arc<Backends>,
    /// How our own CPI is started.
    pub own_cpi: OwnCpi,
    /// Shows what happens.
    pub screen: Arc<dyn Screen>,
    /// How long servers of releases and stemcells are waited for.
    pub patience: Patience,
    /// Ends the run after the step at hand.
    pub stop: Arc<AtomicBool>,
}

/// why a run failed
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// the manifest is no YAML
    #[error("'{}' is not valid", path.display())]
    Yaml {
        path: PathBuf,
        #[source]
        source: ParseError,
    },
    /// the manifest is wrong
    #[error("'{}' cannot be used:\n{findings}", path.display())]
    Manifest {
        path: PathBuf,
        /// All that is wrong with it.
        findings: Findings,
    },
    /// the state cannot be used
    #[error(transparent)]
    State(#[from] StateError),
    #[error("there is no state file '{}', so nothing is known that could be {done}; name the right one with --state", path.display())]
    NoState {
        path: PathBuf,
        /// Such as `deleted`.
        done: &'static str,
    },
    #[error("'{}' knows of no VM; run create-env first", path.display())]
    NoVm {
        /// The state file.
        path: PathBuf,
    },
    /// the stemcell cannot be had
    #[error(transparent)]
    Stemcell(#[from] StemcellError),
    /// a release cannot be used
    #[error(transparent)]
    Release(#[from] EnvReleaseError),
    /// the CPI cannot be installed
    #[error(transparent)]
    Install(#[from] InstallError),
    /// the jobs cannot be used
    #[error(transparent)]
    Jobs(#[from] JobsError),
    /// the CPI cannot be asked
    #[error("the CPI cannot be used")]
    Cpi(#[from] CallError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Work(#[from] WorkError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// there is no registry
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// the way to the agent cannot be found
    #[error("{0}")]
    Access(String),
    /// certificates cannot be made
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// the agent's CA cannot be used
    #[error("the CA of the agent cannot be used; look at cloud_provider.cert.ca")]
    Tls(#[from] windlass_agent_client::TlsError),
    /// the agent does not answer
    #[error(transparent)]
    NotReady(#[from] windlass_agent_client::NotReady),
    #[error(transparent)]
    Agent(#[from] windlass_agent_client::CallError),
    /// a file cannot be used
    #[error("cannot use '{}'", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// somebody wanted it to stop
    #[error("stopped; what was done is on record, and the same command goes on from there")]
    Stopped,
}

impl EnvError {
    /// What operations call cancelled was stopped by the one who runs this.
    pub(crate) fn or_stopped(self) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(&self);
        while let Some(error) = cause {
            let is_step = matches!(error.downcast_ref(), Some(StepError::Cancelled));
            let is_call = matches!(error.downcast_ref(), Some(windlass_agent_client::CallError::Cancelled { .. }));
            if is_step || is_call {
                return Self::Stopped;
            }
            cause = error.source();
        }
        self
    }
}

impl EnvOptions {
    pub(crate) fn report(&self) -> Report {
        let report = Report::new(self.screen.clone(), self.stop.clone());
        report.line(&format!("Deployment manifest: '{}'", self.manifest_path.display()));
        report.line(&format!("Deployment state: '{}'", self.state_path.display()));
        report
    }

    pub(crate) fn folder(&self) -> &Path {
        match self.manifest_path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Reads the manifest; all that is wrong with it is told at once.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Document, &mut Findings) -> Option<T>) -> Result<T, EnvError> {
        let path = &self.manifest_path;
        let document =
            Document::parse(&self.manifest).map_err(|source| EnvError::Yaml { path: path.clone(), source })?;
        let mut findings = Findings::new();
        match read(&document, &mut findings) {
            Some(read) if findings.is_clean() => Ok(read),
            _ => Err(EnvError::Manifest { path: path.clone(), findings }),
        }
    }

    /// The state, which must be there.
    pub(crate) fn known_state(&self, done: &'static str) -> Result<EnvLedger, EnvError> {
        if !self.state_path.exists() {
            return Err(EnvError::NoState { path: self.state_path.clone(), done });
        }
        Ok(EnvLedger::new(StateFile::open(&self.state_path)?))
    }
}

/// A CPI that is ready to be called, and the registry that it needs.
pub(crate) struct Cloud {
    pub(crate) clouds: Clouds,
    pub(crate) ledger: EnvLedger,
    registry: Option<EnvRegistry>,
    /// Where VMs have their folders, if it is the embedded cloud.
    pub(crate) vms: Option<PathBuf>,
    /// Holds the CPI's configuration, which has secrets in it.
    _folder: SecretFolder,
}

impl Cloud {
    /// Prepares the CPI, which is `software` where it comes from releases. `stemcells` are the versions of those that VMs of this
    /// run are made from.
    pub(crate) async fn open(
        options: &EnvOptions,
        ledger: &EnvLedger,
        provider: &CloudProvider,
        software: Option<&CpiSoftware>,
        networks: &Networks,
        stemcells: &[ApiVersion],
    ) -> Result<Self, EnvError> {
        let (cloud_folder, director_uuid, installation) = {
            let file = ledger.state_file();
            (file.path_with_suffix(".cloud"), file.state.director_id.clone(), file.state.installation_id.clone())
        };
        let path = match software {
            Some(_) => cpi_release::folder(options, &installation).join("run"),
            None => std::env::temp_dir().join(format!("windlass-cpi-{}", uuid::Uuid::new_v4().simple())),
        };
        let folder = SecretFolder::new(&path).map_err(|source| EnvError::File { path, source })?;
        let config = folder.path().join(if software.is_some() { "cpi" } else { "cpi.json" });
        let (executable, arguments) = provider.command(&options.own_cpi, &config);
        let command = CpiCommand { executable, arguments, environment: Environment::CommandLine };
        let cpi_options = CpiOptions {
            director_uuid,
            properties: Object::new(),
            preferred_version: ApiVersion::HIGHEST,
            deadline: CPI_DEADLINE,
        };
        let write = |content: &serde_json::Value| match software {
            Some(software) => {
                let properties = content["cloud"]["properties"].as_object().cloned().unwrap_or_default();
                software.render(options, &properties, folder.path()).map(drop)
            }
            None => file::write_json(&config, content, file::PRIVATE)
                .map_err(|source| EnvError::File { path: config.clone(), source }),
        };
        let content = provider.config(&cloud_folder, None);
        write(&content)?;
        let cpi = Cpi::new(command, cpi_options).configured_with(Configuration::Given(provider.properties.clone()));
        let version = cpi.negotiated().await?.version;
        let needs_registry =
            stemcells.iter().any(|stemcell| SettingsFrom::decide(version, *stemcell) == SettingsFrom::Registry);
        let mut registry = None;
        if needs_registry {
            let (folder, tunnel) = (ledger.state_file().path_with_suffix(REGISTRY), provider.ssh_tunnel.as_ref());
            let started = EnvRegistry::start(&folder, &provider.registry, tunnel, networks, options.folder()).await?;
            write(&provider.config(&cloud_folder, Some(&started.properties)))?;
            registry = Some(started);
        }
        let vms = (provider.cpi == CpiForm::Local)
            .then(|| {
                content["cloud"]["properties"]["local"]["state_dir"].as_str().map(|state| Path::new(state).join("vms"))
            })
            .flatten();
        Ok(Self { clouds: Clouds::only(cpi, true), ledger: ledger.clone(), registry, vms, _folder: folder })
    }

    /// Whether the registry runs.
    pub(crate) fn has_registry(&self) -> bool {
        self.registry.is_some()
    }

    /// Whether the cloud has a VM.
    async fn has_vm(&self, vm: &VmRecord) -> Result<bool, EnvError> {
        let cpi = self.clouds.cpi(&CpiName::Default)?;
        let method = HasVm { vm_cid: vm.cid.clone() };
        Ok(cpi.call(&method, vm.stemcell.api_version).await?)
    }

    /// Asks the cloud and the agent how a VM on record is.
    pub(crate) async fn inspect_vm(
        &self,
        report: &Report,
        agents: &Agents,
        vm: &VmRecord,
        disks: &[DiskRecord],
    ) -> Result<Seen, EnvError> {
        if !self.has_vm(vm).await? {
            return Ok(Seen::default());
        }
        let agent = agents.of(vm);
        let title = format!("Waiting for the agent on VM '{}'", vm.cid);
        if report.step(&title, agent.wait_until_ready(PING_PATIENCE)).await.is_err() {
            return Ok(Seen { exists: true, ..Seen::default() });
        }
        let listed = agent.list_disk().await?;
        let mounted = disks.iter().filter(|disk| listed.contains(&disk.cid)).cloned().collect();
        Ok(Seen { exists: true, answers: true, mounted })
    }

    /// Makes a change outside of an operation.
    pub(crate) async fn perform(&self, stemcell: Option<ApiVersion>, change: Change) -> Result<Fact, EnvError> {
        let log = |line: &str| tracing::debug!(line, "cpi");
        let who = OnBehalfOf { ledger: &self.ledger, task: None, log: &log };
        Ok(self.clouds.perform(who, &CpiName::Default, stemcell, change).await?)
    }

    /// What the steps work with.
    pub(crate) fn context(&self, agents: Arc<Agents>, report: &Report, identity: &Identity<'_>) -> Context {
        context(self.clouds.clone(), &self.ledger, agents, report, identity)
    }

    /// Ends what runs only for this run.
    pub(crate) async fn close(self) {
        if let Some(registry) = self.registry {
            registry.stop().await;
        }
    }
}

/// What the steps work with.
pub(crate) fn context(
    clouds: Clouds,
    ledger: &EnvLedger,
    agents: Arc<Agents>,
    report: &Report,
    identity: &Identity<'_>,
) -> Context {
    let instance = InstanceIdentity {
        // What the original calls itself.
        director: "bosh-init".to_owned(),
        deployment: identity.deployment.into(),
        group: identity.group.to_owned(),
        index: 0,
        id: ONLY_INSTANCE.into(),
        az: None,
        tags: identity.tags.clone(),
    };
    Context {
        ledger: Arc::new(ledger.clone()),
        clouds,
        agents,
        progress: Arc::new(report.clone()),
        task: None,
        instance: Arc::new(instance),
        software: None,
    }
}

/// The spec of the instance, on a VM from this stemcell.
pub(crate) fn instance_spec(
    wanted: &Wanted,
    provider: &CloudProvider,
    stemcell: &StemcellEntry,
    software: Option<&EnvSoftware>,
) -> InstanceSpec {
    let listen = provider.mbus.as_ref().map(Mbus::listen_url);
    InstanceSpec {
        cpi: CpiName::Default,
        stemcell_cid: stemcell.cid.clone(),
        stemcell: StemcellOfVm {
            name: stemcell.name.clone(),
            version: stemcell.version.clone(),
            api_version: stemcell.api_version,
        },
        vm_type: None,
        cloud_properties: wanted.cloud_properties.clone(),
        networks: wanted.networks.clone(),
        disks: wanted.disk.iter().cloned().collect(),
        env: wanted.env_listening_at(listen.as_deref()),
        env_values: None,
        tags: wanted.tags.clone(),
        variables: None,
        dns_address: None,
        software: software.map(EnvSoftware::of_instance),
    }
}

/// How a VM is.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Whether the cloud has it.
    pub(crate) exists: bool,
    /// Whether its agent answers.
    pub(crate) answers: bool,
    /// Which disks its agent has mounted.
    pub(crate) mounted: Vec<DiskRecord>,
}

/// How clouds and agents name the instance.
pub(crate) struct Identity<'a> {
    pub(crate) deployment: &'a str,
    pub(crate) group: &'a str,
    pub(crate) tags: Object,
}

impl<'a> Identity<'a> {
    pub(crate) fn of(wanted: &'a Wanted) -> Self {
        Self { deployment: &wanted.name, group: &wanted.group, tags: wanted.tags.clone() }
    }

    /// Of an instance that the manifest need not describe any more.
    pub(crate) fn unknown() -> Self {
        Self { deployment: "unknown", group: "unknown", tags: Object::new() }
    }
}

/// The way to the agent: as the manifest gives it, or with certificates of our own.
pub(crate) async fn agents(
    provider: &CloudProvider,
    env: &Object,
    ledger: &EnvLedger,
) -> Result<Arc<Agents>, EnvError> {
    let Some(mbus) = &provider.mbus else {
        let folder = ledger.state_file().path_with_suffix(CA);
        file::create_private_dir(&folder).map_err(|source| EnvError::File { path: folder.clone(), source })?;
        let authority = Authority::open(&folder)?;
        let client = authority.new_client()?;
        return Ok(Arc::new(Agents::new(authority, &client, Object::new())?));
    };
    let in_env = env.get("bosh").and_then(|bosh| bosh["mbus"]["cert"]["ca"].as_str());
    let ca = provider.ca.as_deref().or(in_env).filter(|ca| !ca.trim().is_empty()).ok_or_else(|| {
        EnvError::Access(
            "cloud_provider.cert.ca is missing, so nobody could tell the agent from an impostor; give the CA that issued the \
             certificate in env.bosh.mbus.cert, or leave cloud_provider.mbus out to have certificates made"
                .to_owned(),
        )
    })?;
    let addresses: Vec<IpAddr> = tokio::net::lookup_host((mbus.host.as_str(), mbus.port))
        .await
        .map_err(|error| {
            EnvError::Access(format!("the host of cloud_provider.mbus, '{}', is not known: {error}", mbus.host))
        })?
        .map(|address| address.ip())
        .collect();
    let given = GivenAgent {
        name: mbus.host.clone(),
        addresses,
        port: mbus.port,
        user: mbus.user.clone(),
        password: mbus.password.clone(),
    };
    Ok(Arc::new(Agents::given(ca, given)?))
}

/// The VM on record, completed by what the state file alone does not tell.
pub(crate) fn vm_on_record(ledger: &EnvLedger, networks: &Networks) -> Option<VmRecord> {
    let file = ledger.state_file();
    let cid = file.vm_cid()?;
    if let Some(vm) = file.own_state.vm.as_ref().filter(|vm| vm.cid == cid) {
        return Some(vm.clone());
    }
    let stemcell = match file.current_stemcell() {
        Some(known) => {
            StemcellOfVm { name: known.name.clone(), version: known.version.clone(), api_version: known.api_version }
        }
        None => StemcellOfVm { name: String::new(), version: String::new(), api_version: None },
    };
    Some(VmRecord {
        cid,
        agent_id: AgentId::random(),
        instance: ONLY_INSTANCE.into(),
        cpi: CpiName::Default,
        stemcell,
        networks: networks.clone(),
        cloud_properties: Object::new(),
        wanted_env: Object::new(),
        env_values: None,
        disks: None,
        mbus_user: String::new(),
        mbus_password: Secret::new(""),
        created_at: 0,
        ready: true,
        spare: false,
        certificate: None,
    })
}

/// The disks on record, completed by what the state file alone does not tell.
pub(crate) fn disks_on_record(ledger: &EnvLedger) -> Vec<DiskRecord> {
    let file = ledger.state_file();
    let current = file.state.current_disk_id.clone();
    let known =
        |entry: &crate::state::DiskEntry| file.own_state.disks.iter().find(|disk| disk.cid == entry.cid).cloned();
    let records = file.state.disks.iter().map(|entry| {
        let mut disk = known(entry).unwrap_or_else(|| DiskRecord {
            cid: entry.cid.clone(),
            instance: ONLY_INSTANCE.into(),
            name: DiskName::Managed,
            cpi: CpiName::Default,
            size: entry.size,
            cloud_properties: entry.cloud_properties.clone(),
            active: false,
            vm: None,
            mounted: false,
            hint: None,
        });
        // Another command line may have changed it since.
        (disk.size, disk.cloud_properties) = (entry.size, entry.cloud_properties.clone());
        disk.active = entry.id == current;
        disk
    });
    records.collect()
}
