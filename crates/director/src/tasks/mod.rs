//! Tasks: what the API queues and workers carry out.
//!
//! A [`Job`] says what to do; [`Workers`] claim tasks from the store and run them; [`TaskLog`] writes what people read
//! while they wait. One file per kind of job.

mod apply_resolutions;
mod attach_disk;
mod clean_up;
mod delete_deployment;
mod delete_orphan_disks;
mod delete_orphaned_vms;
mod delete_stemcell;
mod delete_vm;
mod digest;
mod download;
mod execute;
mod fetch_logs;
mod instance_event;
mod log;
mod orphan_disk;
mod prepare;
mod renew_certificates;
mod scan;
mod scan_and_fix;
mod snapshots;
mod ssh;
mod update_deployment;
mod update_instance;
mod update_stemcell;
mod vm_stats;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_contract::{DiskCid, SnapshotCid, VmCid};

pub use apply_resolutions::Choices;
pub use clean_up::CleanUp;
pub(crate) use clean_up::{Rubbish, find as find_rubbish};
pub use digest::{DigestError, verify as verify_digest};
pub use download::{DownloadError, download};
pub use fetch_logs::LogsError;
pub use log::{EventStage, OutputKind, TaskLog};
pub(crate) use prepare::{prepare, reload, reload_one};
pub(crate) use scan::instances_with_vms;
pub use scan_and_fix::Suspects;
pub use ssh::{SshRequest, SshTarget};
pub use worker::{Finished, Workers};

use crate::Director;
use crate::desired::Count;
use crate::plan::{Selection, SkipDrain, StateChange, Wish};
use crate::store::LockError;

/// What a task does. Stored with it, so that any director on the same database can carry it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub enum Job {
    /// Take a stemcell into the clouds.
    UpdateStemcell {
        /// The tarball; the task removes it.
        tarball: PathBuf,
        /// Make it anew in the clouds even if it is there.
        fix: bool,
    },
    /// Fetch a stemcell and take it into the clouds.
    DownloadStemcell {
        /// Where from.
        location: String,
        /// What its digest must be.
        sha1: Option<String>,
        /// Make it anew in the clouds even if it is there.
        fix: bool,
    },
    /// Remove a stemcell from the clouds.
    DeleteStemcell {
        /// Name.
        name: String,
        /// Version.
        version: String,
        /// Whatever the clouds say.
        force: bool,
    },
    /// Bring a deployment to what its manifest says.
    UpdateDeployment {
        /// Its name.
        deployment: String,
        /// Verbatim.
        manifest: String,
        /// How.
        options: DeployOptions,
    },
    /// Start, stop, restart or recreate one instance from what is on record, without converging anything else.
    UpdateInstance {
        /// Its deployment.
        deployment: String,
        /// The one instance.
        instance: Selection,
        /// What is asked for.
        wish: Wish,
        /// Do not drain it.
        skip_drain: bool,
        /// Do not ask its agent anything.
        ignore_unresponsive_agent: bool,
    },
    /// Remove a deployment; its disks are orphaned.
    DeleteDeployment {
        /// Its name.
        deployment: String,
        /// Go on after failures.
        force: bool,
    },
    /// Delete VMs whose places others took.
    DeleteOrphanedVms,
    /// Ask agents how they are.
    VmStats {
        /// The deployment.
        deployment: String,
        /// Instances, with or without VMs, rather than VMs.
        instances: bool,
    },
    /// Compare what agents and clouds say with the records.
    Scan {
        /// The deployment.
        deployment: String,
    },
    /// Do what somebody chose to do about problems.
    ApplyResolutions {
        /// The deployment.
        deployment: String,
        /// What to do about each.
        choices: Choices,
        /// Instead of what the manifest says, by group.
        max_in_flight: BTreeMap<String, Count>,
    },
    /// Look at some instances, and give new VMs to those that lost theirs.
    ScanAndFix {
        /// The deployment.
        deployment: String,
        /// Which.
        suspects: Suspects,
    },
    /// Give agents other certificates.
    RenewCertificates {
        /// The deployment.
        deployment: String,
    },
    /// Put a disk in the place of an instance's disk.
    AttachDisk {
        /// The deployment.
        deployment: String,
        /// The one instance.
        instance: Selection,
        /// The disk.
        disk: DiskCid,
        /// Take size and properties of a disk that only the cloud knows from the one before.
        copy_properties: bool,
    },
    /// Take a disk away from its instance; its data is kept.
    OrphanDisk {
        /// The disk.
        disk: DiskCid,
    },
    /// Delete orphaned disks with their data.
    DeleteOrphanDisks {
        /// The disks.
        disks: Vec<DiskCid>,
    },
    /// Take snapshots of disks.
    TakeSnapshots {
        /// The deployment.
        deployment: String,
        /// Of these instances.
        instances: Selection,
    },
    /// Delete snapshots.
    DeleteSnapshots {
        /// The deployment.
        deployment: String,
        /// Only this one.
        snapshot: Option<SnapshotCid>,
    },
    /// Delete what nobody uses.
    CleanUp(CleanUp),
    /// Delete a VM, whoever it belongs to.
    DeleteVm {
        /// The VM.
        vm: VmCid,
    },
    /// Fetch logs from agents.
    FetchLogs {
        /// The deployment.
        deployment: String,
        /// Of these instances.
        instances: Selection,
        /// `job`, `agent`, `system`, or several with commas between them.
        kind: String,
        /// Patterns of file names.
        filters: Vec<String>,
    },
    /// Let a person into VMs, or forget them again.
    Ssh {
        /// The deployment.
        deployment: String,
        /// Whom, and where.
        request: SshRequest,
    },
}

/// How to deploy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployOptions {
    /// All VMs anew.
    pub recreate: bool,
    /// Of those, only VMs that were made before this time, in Unix seconds.
    #[serde(default)]
    pub recreate_created_before: Option<i64>,
    /// All persistent disks are copied to new ones.
    #[serde(default)]
    pub recreate_persistent_disks: bool,
    /// Something for some instances, on top of the manifest.
    #[serde(default)]
    pub change_state: Option<StateChange>,
    /// Who is stopped without being drained.
    #[serde(default)]
    pub skip_drain: SkipDrain,
    /// Do not mind agents that do not answer.
    pub fix: bool,
    /// Only show the plan.
    pub dry_run: bool,
    /// The cloud and runtime configs that the operator saw in the diff; none for the current ones.
    #[serde(alias = "cloud_configs")]
    pub configs: Option<Vec<i64>>,
    /// Instead of what the manifest says.
    #[serde(default)]
    pub canaries: Option<Count>,
    /// Instead of what the manifest says.
    #[serde(default)]
    pub max_in_flight: Option<Count>,
    /// Whether the manifest is as its author wrote it, so that lines can be named.
    #[serde(default)]
    pub verbatim: bool,
}

impl Job {
    /// The type, as lists of tasks filter by it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UpdateStemcell { .. } | Self::DownloadStemcell { .. } => "update_stemcell",
            Self::DeleteStemcell { .. } => "delete_stemcell",
            Self::UpdateDeployment { .. } => "update_deployment",
            Self::UpdateInstance { .. } => "update_instance",
            Self::DeleteDeployment { .. } => "delete_deployment",
            Self::DeleteOrphanedVms => "delete_orphaned_vms",
            Self::VmStats { .. } => "vms",
            Self::Scan { .. } => "cck_scan",
            Self::ApplyResolutions { .. } => "cck_apply",
            Self::ScanAndFix { .. } => "cck_scan_and_fix",
            Self::RenewCertificates { .. } => "renew_certificates",
            Self::AttachDisk { .. } => "attach_disk",
            Self::OrphanDisk { .. } => "orphan_disk",
            Self::DeleteOrphanDisks { .. } => "delete_orphan_disks",
            Self::TakeSnapshots { instances, .. } if *instances == Selection::default() => "snapshot_deployment",
            Self::TakeSnapshots { .. } => "create_snapshot",
            Self::DeleteSnapshots { .. } => "delete_snapshot",
            Self::CleanUp(_) => "cleanup_artifacts",
            Self::DeleteVm { .. } => "delete_vm",
            Self::FetchLogs { .. } => "fetch_logs",
            Self::Ssh { .. } => "ssh",
        }
    }

    /// For people, in the words that clients look for.
    pub fn description(&self) -> String {
        match self {
            Self::UpdateStemcell { .. } | Self::DownloadStemcell { .. } => "create stemcell".to_owned(),
            Self::DeleteStemcell { name, version, .. } => format!("delete stemcell: {name}/{version}"),
            Self::UpdateDeployment { options, .. } if options.dry_run => "create deployment (dry run)".to_owned(),
            Self::UpdateDeployment { .. } => "create deployment".to_owned(),
            Self::UpdateInstance { wish, .. } => format!("{} instance", wish.verb()),
            Self::DeleteDeployment { deployment, .. } => format!("delete deployment {deployment}"),
            Self::DeleteOrphanedVms => "delete orphaned vms".to_owned(),
            Self::VmStats { .. } => "retrieve vm-stats".to_owned(),
            Self::Scan { .. } => "scan cloud".to_owned(),
            Self::ApplyResolutions { .. } => "apply resolutions".to_owned(),
            Self::ScanAndFix { .. } => "scan and fix".to_owned(),
            Self::RenewCertificates { .. } => "renew certificates".to_owned(),
            Self::AttachDisk { instance, disk, .. } => {
                let (group, id) = (instance.group.as_deref(), instance.instance.as_deref());
                format!("attach disk '{disk}' to '{}/{}'", group.unwrap_or("*"), id.unwrap_or("*"))
            }
            Self::OrphanDisk { .. } => "orphan disk".to_owned(),
            Self::DeleteOrphanDisks { .. } => "delete orphan disks".to_owned(),
            Self::TakeSnapshots { instances, .. } if *instances == Selection::default() => {
                "snapshot deployment".to_owned()
            }
            Self::TakeSnapshots { .. } => "create snapshot".to_owned(),
            Self::DeleteSnapshots { snapshot: Some(_), .. } => "delete snapshot".to_owned(),
            Self::DeleteSnapshots { snapshot: None, .. } => "delete deployment snapshots".to_owned(),
            Self::CleanUp(CleanUp { remove_all: true, .. }) => "clean up all".to_owned(),
            Self::CleanUp(_) => "clean up".to_owned(),
            Self::DeleteVm { vm } => format!("delete vm {vm}"),
            Self::FetchLogs { .. } => "fetch logs".to_owned(),
            Self::Ssh { request, .. } => format!("ssh: {}: {}", request.command, request.target.describe()),
        }
    }

    /// The deployment that it is about.
    pub fn deployment(&self) -> Option<&str> {
        match self {
            Self::UpdateStemcell { .. }
            | Self::DownloadStemcell { .. }
            | Self::DeleteStemcell { .. }
            | Self::OrphanDisk { .. }
            | Self::DeleteOrphanDisks { .. }
            | Self::CleanUp(_)
            | Self::DeleteVm { .. }
            | Self::DeleteOrphanedVms => None,
            Self::UpdateDeployment { deployment, .. }
            | Self::UpdateInstance { deployment, .. }
            | Self::DeleteDeployment { deployment, .. }
            | Self::Scan { deployment }
            | Self::ApplyResolutions { deployment, .. }
            | Self::ScanAndFix { deployment, .. }
            | Self::RenewCertificates { deployment }
            | Self::VmStats { deployment, .. }
            | Self::AttachDisk { deployment, .. }
            | Self::TakeSnapshots { deployment, .. }
            | Self::DeleteSnapshots { deployment, .. }
            | Self::FetchLogs { deployment, .. }
            | Self::Ssh { deployment, .. } => Some(deployment),
        }
    }
}

impl Job {
    /// What it does to which thing as a whole, for the list of events.
    fn event(&self, is_new: bool) -> Option<(&'static str, &'static str, &str)> {
        match self {
            Self::UpdateDeployment { options, .. } if options.dry_run => None,
            Self::UpdateDeployment { deployment, .. } => {
                Some((if is_new { "create" } else { "update" }, "deployment", deployment))
            }
            Self::DeleteDeployment { deployment, .. } => Some(("delete", "deployment", deployment)),
            _ => None,
        }
    }
}

/// why a task failed
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// the documents are wrong
    #[error("{0}")]
    Input(String),
    /// the request cannot be met, for a reason that the original has a number for
    #[error("{message}")]
    Refused {
        /// The number.
        code: u32,
        /// The reason.
        message: String,
    },
    /// logs were not fetched
    #[error(transparent)]
    Logs(#[from] fetch_logs::LogsError),
    /// a file was not fetched
    #[error(transparent)]
    Download(#[from] download::DownloadError),
    /// a file is not what it should be
    #[error(transparent)]
    Digest(#[from] digest::DigestError),
    /// an operation failed
    #[error(transparent)]
    Operation(Box<crate::steps::OperationError>),
    /// a step outside of an operation failed
    #[error(transparent)]
    Step(#[from] crate::steps::StepError),
    /// a change in a cloud failed
    #[error(transparent)]
    Change(#[from] crate::clouds::ChangeError),
    /// the CPIs of the cpi config cannot be driven
    #[error(transparent)]
    Clouds(#[from] crate::RefreshError),
    /// the CPI failed
    #[error("the CPI '{cpi}' failed")]
    Cpi {
        /// Its name.
        cpi: String,
        /// Why.
        #[source]
        source: Box<windlass_cpi_client::CallError>,
    },
    /// the records failed
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// the records failed
    #[error(transparent)]
    Ledger(#[from] crate::ledger::LedgerError),
    /// a lock is held
    #[error(transparent)]
    Lock(#[from] crate::store::LockError),
    /// a stemcell cannot be read
    #[error("the stemcell cannot be used")]
    Stemcell(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// an instance could not be removed
    #[error("an instance could not be removed; delete-deployment --force goes on without its agent")]
    NotRemoved(#[source] Box<TaskError>),
    /// a problem is still there
    #[error("Error resolving problem '{problem}'")]
    NotResolved {
        /// Its number.
        problem: i64,
        /// Why.
        #[source]
        source: Box<TaskError>,
    },
    /// several instances failed
    #[error("{}", .0.iter().map(explain_error).collect::<Vec<_>>().join("\n"))]
    Several(Vec<TaskError>),
    /// the task was cancelled
    #[error("task cancelled")]
    Cancelled,
}

impl From<crate::steps::OperationError> for TaskError {
    fn from(error: crate::steps::OperationError) -> Self {
        Self::Operation(Box::new(error))
    }
}

impl From<crate::steps::WorkError> for TaskError {
    fn from(error: crate::steps::WorkError) -> Self {
        match error {
            crate::steps::WorkError::Operation(error) => Self::Operation(error),
            crate::steps::WorkError::Step(error) => Self::Step(error),
        }
    }
}

fn explain_error(error: &TaskError) -> String {
    explain(error)
}

impl TaskError {
    fn refused(code: u32, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into() }
    }

    /// The code that the original has for this kind of error.
    fn code(&self) -> u32 {
        match self {
            Self::Input(_) => 40000,
            Self::Refused { code, .. } => *code,
            Self::Download(_) => 100002,
            Self::Digest(_) => 50007,
            Self::Logs(_) => 450001,
            Self::Stemcell(_) => 50000,
            Self::Cancelled => 10001,
            _ => 100,
        }
    }

    fn is_cancellation(&self) -> bool {
        match self {
            Self::Cancelled | Self::Step(crate::steps::StepError::Cancelled) => true,
            Self::Operation(error) => matches!(error.cause, crate::steps::StepError::Cancelled),
            Self::NotRemoved(error) | Self::NotResolved { source: error, .. } => error.is_cancellation(),
            Self::Several(errors) => errors.iter().all(Self::is_cancellation),
            _ => false,
        }
    }
}

/// How long a task waits for a lock that another one holds, and how often it looks.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Takes the lock of a deployment, or fails at once: what is being changed cannot be looked at.
async fn lock_deployment_at_once(director: &Director, log: &TaskLog, deployment: &str) -> Result<(), TaskError> {
    Ok(director.store.take_lock(&format!("deployment:{deployment}"), log.task(), &director.uuid).await?)
}

/// Takes the lock of a deployment for as long as the task runs.
async fn lock_deployment(director: &Director, log: &TaskLog, deployment: &str) -> Result<(), TaskError> {
    let name = format!("deployment:{deployment}");
    let deadline = tokio::time::Instant::now() + LOCK_PATIENCE;
    loop {
        match director.store.take_lock(&name, log.task(), &director.uuid).await {
            Err(LockError::Held { .. }) if log.is_cancelled() => return Err(TaskError::Cancelled),
            Err(LockError::Held { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_LOOK_AGAIN).await;
            }
            taken => return Ok(taken?),
        }
    }
}

/// An error with all its causes, each said once.
pub fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let next = source.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = source.source();
    }
    text
}
