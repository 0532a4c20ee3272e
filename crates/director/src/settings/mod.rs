//! `director.yml`: what an operator may set. Everything has a default, so that one machine needs no file at all; flags of
//! the command line win over the file.
//!
//! ```yaml
//! name: windlass
//! listen: 10.0.0.6:25555
//! advertise: [director.example.com]
//! db: postgres://director:secret@10.0.0.7/director
//! shared_dir: /mnt/windlass     # with db, several directors: one leads, the others stand by
//! cpi: local                    # or sim, or {exec: /opt/cpi/bin/cpi, config: cpi.json, arguments: []}
//! isolation: auto               # or container, process; of the embedded cloud
//! cpi_preferred_api_version: 2
//! cpi_deadline: 1h
//! agent_wait: 10m
//! agent: {env: {bosh: {ntp: [0.pool.example.com]}}}
//! enable_cpi_resize_disk: true  # both default to true for built-in clouds only
//! enable_snapshots: true
//! users: [{name: eve, password: secret, role: read-only}]
//! workers: 8
//! max_threads: 32
//! resurrector: {enabled: true, interval: 30s, agent_timeout: 60s, stateful: true,
//!               meltdown: {instances: 5, percent: 20, within: 10m}}
//! fencing: {command: [/usr/local/bin/fence], timeout: 1m}   # says whether a VM is dead that its cloud cannot reach
//! schedules: {delete_orphan_disks_after: 5d, delete_orphaned_vms_every: 5m, snapshot_every: 24h, keep_tasks: 2000}
//! certificates: {lifetime: 730d, ca_lifetime: 3650d}
//! tls: {certificate: tls.crt, private_key: tls.key, ca: tls-ca.pem}   # in place of the director's own
//! blobstore: {provider: s3, options: {bucket_name: blobs, region: eu-central-1, credentials_source: env_or_profile}}  # or gcs, local
//! blobs_limit: 50GiB
//! ruby: caged                   # or uncaged, none; for templates that are not native
//! webhook: {url: https://pager.example.com/hook, secret: {file: webhook.secret}, events: [deploy_failed]}
//! template_time: 5m
//! config_server: {url: https://config-server.example.com:8844/api, ca_cert: config-server.pem, uaa_url: https://uaa.example.com,
//!                 client: director, client_secret: {file: config-server.secret}}
//! local_dns: {enabled: true, include_index: false, use_dns_addresses: false}   # names of instances
//! team_limits: {deployments: 500, instances: 5000}   # of each team
//! variables: {key: {file: variables.key}}   # or {env: NAME}, {command: [PROGRAM, ARGUMENT]}; previous_key: the same, to change it
//! ```

mod read;
mod units;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_blobs::BlobstoreChoice;
use windlass_contract::{ApiVersion, Object, Secret};
pub use windlass_pki::Lifetimes;
use windlass_planning::desired::CONFIG_PATH;
pub use windlass_variables::{ExternalSettings, KeySource};

pub use crate::fencing::FencingSettings;
pub use crate::server_tls::GivenCertificate;
use crate::users::Account;
pub use crate::webhook::{NoticeKind, WebhookSettings};

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// For people and for the clouds.
    pub name: String,
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// Further names and addresses under which clients reach it; its certificate has them.
    pub advertise: Vec<String>,
    /// Another database than the embedded one.
    pub db: Option<Secret>,
    /// Where that is kept which several directors on one database need; none if there is one director.
    pub shared_dir: Option<PathBuf>,
    /// The default CPI.
    pub cpi: CpiChoice,
    /// How VMs of the embedded cloud are kept apart.
    pub isolation: Isolation,
    /// The highest version of the contract to speak.
    pub preferred_version: ApiVersion,
    /// How long a CPI may take.
    pub cpi_deadline: Duration,
    /// How long an agent may take until it answers.
    pub agent_wait: Duration,
    /// `env.bosh` of every VM, under what the manifest says and over what the director makes itself.
    pub agent_env: Object,
    /// Whether disks grow natively; by default where the cloud is built in.
    pub enable_cpi_resize_disk: Option<bool>,
    /// Whether snapshots are taken; by default where the cloud is built in.
    pub enable_snapshots: Option<bool>,
    /// Users beside the one that the first start makes.
    pub users: Vec<Account>,
    /// How many tasks are worked on at once.
    pub workers: usize,
    /// How many instances a task works on at once.
    pub max_threads: usize,
    pub resurrector: ResurrectorSettings,
    /// What makes sure that a VM is dead which its cloud cannot reach.
    pub fencing: Option<FencingSettings>,
    /// What is done from time to time.
    pub schedules: Schedules,
    /// How long certificates live; they are replaced when a third of it is left.
    pub certificates: Lifetimes,
    /// What clients are shown instead of a certificate of the director's own CA.
    pub tls: Option<GivenCertificate>,
    pub ruby: RubyUse,
    /// The server that is told what somebody should wake up for.
    pub webhook: Option<WebhookSettings>,
    /// How long the templates of a plan may take in sum.
    pub template_time: Duration,
    /// Where archives of releases and logs are kept.
    pub blobstore: BlobstoreChoice,
    /// How many bytes they may have together.
    pub blobs_limit: Option<u64>,
    /// What values of variables are encrypted with.
    pub variables: VariableSettings,
    /// Holds the values of variables instead of the director.
    pub config_server: Option<ExternalSettings>,
    /// Names of instances.
    pub local_dns: LocalDnsSettings,
    /// What each team may have.
    pub team_limits: TeamLimits,
}

/// What one team may have, so that others have something, too. What is there already stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamLimits {
    pub deployments: usize,
    /// Of all its deployments together.
    pub instances: usize,
}

impl Default for TeamLimits {
    fn default() -> Self {
        Self { deployments: 500, instances: 5000 }
    }
}

/// Names of instances, under BOSH's names for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalDnsSettings {
    /// Whether agents are told them.
    pub enabled: bool,
    /// Whether instances have a name by their index as well.
    pub include_index: bool,
    /// Whether templates see names instead of addresses, where the manifest does not say.
    pub use_dns_addresses: bool,
}

/// The key of variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VariableSettings {
    /// None for a file that the first start makes.
    pub key: Option<KeySource>,
    /// The one before, which a start changes from.
    pub previous_key: Option<KeySource>,
}

/// A cloud that is built in, or a CPI of somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpiChoice {
    /// The embedded cloud.
    Local {
        /// Its `cpi.json`; what it leaves out is filled in.
        config: Option<PathBuf>,
    },
    /// An Incus or LXD server, or a cluster of them.
    Incus {
        /// Its `cpi.json`; what it leaves out is filled in.
        config: Option<PathBuf>,
    },
    /// The simulated cloud.
    Sim {
        /// Its `cpi.json`; what it leaves out is filled in.
        config: Option<PathBuf>,
    },
    /// A CPI of a release, installed on this machine.
    Installed { name: String },
    /// Any CPI.
    Executable {
        exec: PathBuf,
        /// What it is started with.
        arguments: Vec<String>,
    },
}

impl CpiChoice {
    /// `local`, `incus`, `sim` or the path of an executable, with a configuration or without one. CPIs take their configuration by
    /// flags of their own, so an argument says with `{config}` where its path goes; without that it follows `--config`.
    pub fn named(name: &str, config: Option<PathBuf>, mut arguments: Vec<String>) -> Self {
        match name {
            "local" => Self::Local { config },
            "incus" => Self::Incus { config },
            "sim" => Self::Sim { config },
            path => {
                let config = config.map(|config| config.display().to_string());
                match config {
                    Some(config) if arguments.iter().any(|argument| argument.contains(CONFIG_PATH)) => {
                        arguments.iter_mut().for_each(|argument| *argument = argument.replace(CONFIG_PATH, &config));
                    }
                    Some(config) => arguments.extend(["--config".to_owned(), config]),
                    None => {}
                }
                Self::Executable { exec: path.into(), arguments }
            }
        }
    }

    /// Whether it is one of ours.
    pub fn is_built_in(&self) -> bool {
        !matches!(self, Self::Executable { .. } | Self::Installed { .. })
    }
}

/// How VMs of the embedded cloud are kept apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The strongest that the machine allows.
    #[default]
    Auto,
    /// Containers, or an error.
    Container,
    /// A folder and an agent per VM.
    Process,
}

impl Isolation {
    /// Every word and what it means.
    pub const WORDS: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("container", Self::Container), ("process", Self::Process)];

    /// The word in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Container => "container",
            Self::Process => "process",
        }
    }
}

/// How templates are rendered that are not native.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RubyUse {
    /// The Ruby of this machine, which sees nothing but itself; refused where that cannot be.
    #[default]
    Caged,
    /// The Ruby of this machine, which can read what the director can read.
    Uncaged,
    /// Nobody: such jobs are refused.
    None,
}

impl RubyUse {
    /// Every word and what it means.
    pub const WORDS: [(&'static str, Self); 3] =
        [("caged", Self::Caged), ("uncaged", Self::Uncaged), ("none", Self::None)];
}

/// The resurrector: when an agent counts as lost, and when so many are that it is better to do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResurrectorSettings {
    /// Whether it does anything at all.
    pub enabled: bool,
    /// How often agents are asked.
    pub interval: Duration,
    /// How long an agent may be silent.
    pub agent_timeout: Duration,
    /// Whether instances with disks are resurrected as well.
    pub stateful: bool,
    /// When it stops.
    pub meltdown: Meltdown,
}

/// So many instances lost within so much time are no accident of single VMs: both limits must be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meltdown {
    /// At least so many.
    pub instances: usize,
    /// At least so many of a hundred.
    pub percent: u8,
    /// Within this time.
    pub within: Duration,
}

/// What is done from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedules {
    /// Orphaned disks are deleted when they are as old as this; none keeps them for ever.
    pub delete_orphan_disks_after: Option<Duration>,
    /// How often VMs that were swapped for others are deleted.
    pub delete_orphaned_vms_every: Duration,
    /// How often all disks of all deployments are snapshotted; none for never.
    pub snapshot_every: Option<Duration>,
    /// How many tasks of each type are kept, with their logs.
    pub keep_tasks: usize,
}

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

impl Default for Meltdown {
    fn default() -> Self {
        Self { instances: 5, percent: 20, within: Duration::from_secs(10 * MINUTE) }
    }
}

impl Default for ResurrectorSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            interval: Duration::from_secs(30),
            agent_timeout: Duration::from_secs(MINUTE),
            stateful: true,
            meltdown: Meltdown::default(),
        }
    }
}

impl Default for Schedules {
    fn default() -> Self {
        Self {
            delete_orphan_disks_after: Some(Duration::from_secs(5 * DAY)),
            delete_orphaned_vms_every: Duration::from_secs(5 * MINUTE),
            snapshot_every: None,
            keep_tasks: 2000,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "windlass".to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 25555)),
            advertise: Vec::new(),
            db: None,
            shared_dir: None,
            cpi: CpiChoice::Local { config: None },
            isolation: Isolation::Auto,
            preferred_version: ApiVersion::HIGHEST,
            cpi_deadline: Duration::from_secs(60 * MINUTE),
            agent_wait: windlass_operations::agents::DEFAULT_WAIT,
            agent_env: Object::new(),
            enable_cpi_resize_disk: None,
            enable_snapshots: None,
            users: Vec::new(),
            workers: 8,
            max_threads: 32,
            resurrector: ResurrectorSettings::default(),
            schedules: Schedules::default(),
            certificates: Lifetimes::default(),
            tls: None,
            ruby: RubyUse::default(),
            fencing: None,
            webhook: None,
            template_time: Duration::from_secs(5 * MINUTE),
            blobstore: BlobstoreChoice::Local(None),
            blobs_limit: None,
            variables: VariableSettings::default(),
            config_server: None,
            local_dns: LocalDnsSettings::default(),
            team_limits: TeamLimits::default(),
        }
    }
}

impl Settings {
    /// Whether snapshots are taken.
    pub fn takes_snapshots(&self) -> bool {
        self.enable_snapshots.unwrap_or_else(|| self.cpi.is_built_in())
    }

    /// The file that is named, which must be there, or else `director.yml` of the state directory, which need not.
    pub fn load(named: Option<&Path>, state_dir: &Path) -> Result<Self, SettingsError> {
        let usual = state_dir.join("director.yml");
        let path = named.unwrap_or(&usual);
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(SettingsError::File { path: path.to_owned(), source }),
        };
        let wrong = |problems| SettingsError::Wrong { path: path.to_owned(), problems };
        // Paths in the file start where the file is.
        let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        let settings = read::settings(&text, &folder.unwrap_or_default()).map_err(wrong)?;
        if settings.has_secrets() && is_read_by_others(path) {
            tracing::warn!(file = %path.display(), "everybody on this machine can read the passwords in it; use chmod o-r");
        }
        Ok(settings)
    }

    fn has_secrets(&self) -> bool {
        !self.users.is_empty() || self.db.is_some() || self.webhook.is_some() || self.blobstore.has_secrets()
    }
}

fn is_read_by_others(path: &Path) -> bool {
    const READ_BY_OTHERS: u32 = 0o004;
    std::fs::metadata(path).is_ok_and(|found| found.mode() & READ_BY_OTHERS != 0)
}

/// why the settings cannot be used
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// the file cannot be read
    #[error("cannot read the director's settings in {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// the file is wrong
    #[error("the director's settings in {} cannot be used:\n{problems}", path.display())]
    Wrong {
        path: PathBuf,
        /// One per line, with path and line.
        problems: String,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_with_passwords_that_others_can_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("director.yml");
        std::fs::write(&path, "users: [{name: eve, password: secret, role: read-only}]\n").unwrap();
        for (mode, expected) in [(0o644, true), (0o640, false), (0o600, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(is_read_by_others(&path), expected, "{mode:o}");
        }
        assert!(Settings::load(None, folder.path()).unwrap().has_secrets());
        assert!(!Settings::default().has_secrets());
    }
}
