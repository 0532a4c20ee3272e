//! What a task does, in words and as a record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use windlass_contract::{DiskCid, SnapshotCid, VmCid};
use windlass_planning::desired::Count;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Selection, SkipDrain, StateChange, WhatWasThere, Wish};

use super::{Choices, CleanUp, ErrandRequest, ExportRequest, LeakRequest, SshRequest, Suspects};
use crate::store::{LOOK_UP, StoredJob};

/// What a task does. Stored with it, so that any director on the same database can carry it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "snake_case")]
pub(crate) enum Job {
    /// Take a stemcell into the clouds.
    UpdateStemcell {
        /// The tarball; it goes when the task has ended.
        tarball: PathBuf,
        /// Create it again in the clouds even if it is there.
        fix: bool,
        /// The user may change what deployments of all teams use.
        #[serde(default)]
        replaces: bool,
    },
    /// Fetch a stemcell and take it into the clouds.
    DownloadStemcell {
        location: String,
        /// What its digest must be.
        sha1: Option<String>,
        /// Create it again in the clouds even if it is there.
        fix: bool,
        /// The user may change what deployments of all teams use.
        #[serde(default)]
        replaces: bool,
    },
    /// Remove a stemcell from the clouds.
    DeleteStemcell {
        name: String,
        version: String,
        /// Go on when a cloud fails to delete it.
        force: bool,
    },
    /// Take a release.
    UpdateRelease {
        /// The tarball; it goes when the task has ended.
        tarball: PathBuf,
        /// Store its archives again even if they are there.
        fix: bool,
        /// Give it the next version that is free.
        #[serde(default)]
        rebase: bool,
        /// The user may change what deployments of all teams use.
        #[serde(default)]
        replaces: bool,
    },
    /// Fetch a release and take it.
    DownloadRelease {
        location: String,
        /// What its digest must be.
        sha1: Option<String>,
        /// Store its archives again even if they are there.
        fix: bool,
        /// Give it the next version that is free.
        #[serde(default)]
        rebase: bool,
        /// The user may change what deployments of all teams use.
        #[serde(default)]
        replaces: bool,
    },
    /// Compile a release for a stemcell, and pack it for a client to fetch.
    ExportRelease(ExportRequest),
    /// Remove a release.
    DeleteRelease {
        name: String,
        /// Only this version.
        version: Option<String>,
    },
    /// Bring a deployment to what its manifest says.
    UpdateDeployment {
        deployment: DeploymentName,
        /// Verbatim.
        manifest: String,
        options: DeployOptions,
    },
    /// Start, stop, restart or recreate one instance from what is on record, without converging anything else.
    UpdateInstance {
        deployment: DeploymentName,
        /// What is asked for.
        #[serde(flatten)]
        change: InstanceChange,
    },
    /// Remove a deployment; its disks are orphaned.
    DeleteDeployment {
        deployment: DeploymentName,
        /// Go on after failures.
        force: bool,
    },
    RunErrand {
        deployment: DeploymentName,
        #[serde(flatten)]
        request: ErrandRequest,
    },
    /// Delete VMs whose places others took.
    DeleteOrphanedVms,
    /// Ask agents how they are.
    VmStats {
        deployment: DeploymentName,
        /// Instances, with or without VMs, rather than VMs.
        instances: bool,
    },
    /// Compare what agents and clouds say with the records.
    Scan { deployment: DeploymentName },
    /// Do what somebody chose to do about problems.
    ApplyResolutions {
        deployment: DeploymentName,
        /// What to do about each.
        choices: Choices,
        /// Instead of what the manifest says, by group.
        max_in_flight: BTreeMap<String, Count>,
    },
    /// Look at some instances, and give new VMs to those that lost theirs.
    ScanAndFix { deployment: DeploymentName, suspects: Suspects },
    /// Give agents other certificates.
    RenewCertificates { deployment: DeploymentName },
    /// Put a disk in the place of an instance's disk.
    AttachDisk {
        deployment: DeploymentName,
        instance: Selection,
        disk: DiskCid,
        /// Take size and properties of a disk that only the cloud knows from the one before.
        copy_properties: bool,
    },
    /// Take a disk away from its instance; its data is kept.
    OrphanDisk { disk: DiskCid },
    /// Delete orphaned disks with their data.
    DeleteOrphanDisks { disks: Vec<DiskCid> },
    /// Take snapshots of disks.
    TakeSnapshots {
        deployment: DeploymentName,
        /// Of these instances.
        instances: Selection,
    },
    DeleteSnapshots {
        deployment: DeploymentName,
        /// Only this one.
        snapshot: Option<SnapshotCid>,
    },
    /// Delete what nobody uses.
    CleanUp(CleanUp),
    /// Delete a VM, of any deployment or none.
    DeleteVm { vm: VmCid },
    /// Delete what a cloud has and nobody owns.
    DeleteLeak(LeakRequest),
    /// Fetch logs from agents.
    FetchLogs {
        deployment: DeploymentName,
        /// Of these instances.
        instances: Selection,
        /// `job`, `agent`, `system`, or several with commas between them.
        kind: String,
        /// Patterns of file names.
        filters: Vec<String>,
    },
    /// Let a person into VMs, or forget them again.
    Ssh {
        deployment: DeploymentName,
        /// Whom, and where.
        request: SshRequest,
    },
}

/// What is asked for one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InstanceChange {
    pub instance: Selection,
    /// What becomes of it.
    pub wish: Wish,
    /// Do not drain it.
    pub skip_drain: bool,
    /// Do not ask its agent anything.
    pub ignore_unresponsive_agent: bool,
    /// What the deployment had when the task began, if something is to be recreated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<WhatWasThere>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeployOptions {
    /// Recreate all VMs.
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
    /// Which instances are stopped without being drained.
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
    /// Only the first instance of this group, which is an errand that is about to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errand: Option<String>,
    /// Newer versions of all variables, also of those that wait for newer stemcells.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force_latest_variables: bool,
    /// Whether the manifest is as its author wrote it, so that lines can be named.
    #[serde(default)]
    pub verbatim: bool,
    /// What the deployment had when the task began, if something is to be recreated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<WhatWasThere>,
    /// Whose the deployment is, unless it is on record already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// How many free addresses of each subnet are taken last, because others took those that an earlier plan of the task had.
    #[serde(skip)]
    pub left_to_others: usize,
}

impl DeployOptions {
    /// Whether newer stemcells, releases, links and values are taken. A restart, a recreation or an errand uses what was deployed.
    pub(crate) fn takes_newer(&self) -> bool {
        self.change_state.is_none() && self.errand.is_none()
    }
}

impl StoredJob for Job {
    fn kind(&self) -> &'static str {
        match self {
            Self::UpdateStemcell { .. } | Self::DownloadStemcell { .. } => "update_stemcell",
            Self::DeleteStemcell { .. } => "delete_stemcell",
            Self::UpdateRelease { .. } | Self::DownloadRelease { .. } => "update_release",
            Self::ExportRelease(_) => "export_release",
            Self::DeleteRelease { .. } => "delete_release",
            Self::UpdateDeployment { .. } => "update_deployment",
            Self::UpdateInstance { .. } => "update_instance",
            Self::DeleteDeployment { .. } => "delete_deployment",
            Self::RunErrand { .. } => "run_errand",
            Self::DeleteOrphanedVms => "delete_orphaned_vms",
            Self::VmStats { .. } => LOOK_UP,
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
            Self::DeleteLeak(_) => "delete_leak",
            Self::FetchLogs { .. } => "fetch_logs",
            Self::Ssh { .. } => "ssh",
        }
    }

    fn description(&self) -> String {
        match self {
            Self::UpdateStemcell { .. } | Self::DownloadStemcell { .. } => "create stemcell".to_owned(),
            Self::DeleteStemcell { name, version, .. } => format!("delete stemcell: {name}/{version}"),
            Self::UpdateRelease { .. } | Self::DownloadRelease { .. } => "create release".to_owned(),
            Self::ExportRelease(request) => {
                format!("export release: '{}' for '{}'", request.release(), request.stemcell())
            }
            Self::DeleteRelease { name, .. } => format!("delete release: {name}"),
            Self::UpdateDeployment { options, .. } if options.dry_run => "create deployment (dry run)".to_owned(),
            Self::UpdateDeployment { .. } => "create deployment".to_owned(),
            Self::UpdateInstance { change, .. } => format!("{} instance", change.wish.verb()),
            Self::DeleteDeployment { deployment, .. } => format!("delete deployment {deployment}"),
            Self::RunErrand { deployment, request } => {
                format!("run errand {} from deployment {deployment}", request.errand)
            }
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
            Self::DeleteLeak(leak) => format!("delete {}, which nobody owns", leak.subject()),
            Self::FetchLogs { .. } => "fetch logs".to_owned(),
            Self::Ssh { request, .. } => format!("ssh: {}: {}", request.command, request.target.describe()),
        }
    }

    fn deployment(&self) -> Option<&DeploymentName> {
        match self {
            Self::UpdateStemcell { .. }
            | Self::DownloadStemcell { .. }
            | Self::DeleteStemcell { .. }
            | Self::UpdateRelease { .. }
            | Self::DownloadRelease { .. }
            | Self::ExportRelease(_)
            | Self::DeleteRelease { .. }
            | Self::OrphanDisk { .. }
            | Self::DeleteOrphanDisks { .. }
            | Self::CleanUp(_)
            | Self::DeleteVm { .. }
            | Self::DeleteLeak(_)
            | Self::DeleteOrphanedVms => None,
            Self::UpdateDeployment { deployment, .. }
            | Self::UpdateInstance { deployment, .. }
            | Self::DeleteDeployment { deployment, .. }
            | Self::RunErrand { deployment, .. }
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
    /// The file that somebody sent for it.
    pub(crate) fn tarball(&self) -> Option<&std::path::Path> {
        match self {
            Self::UpdateStemcell { tarball, .. } | Self::UpdateRelease { tarball, .. } => Some(tarball),
            _ => None,
        }
    }

    /// What it does to which thing as a whole, for the list of events.
    pub(super) fn event(&self, is_new: bool) -> Option<(&'static str, &'static str, &str)> {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windlass_database::sqlx::{self, AnyConnection, AssertSqlSafe, Connection, Row};
    use windlass_rigs::earlier_states::{check, of_every_version};

    use super::*;

    #[tokio::test]
    async fn jobs_that_earlier_versions_stored_are_read_and_written_again_with_all_that_they_had() {
        sqlx::any::install_default_drivers();
        for kept in of_every_version("simulated").into_iter().chain(of_every_version("processes")) {
            let mut database = AnyConnection::connect("sqlite::memory:").await.unwrap();
            let statements = AssertSqlSafe(kept.statements("director", Path::new("/somewhere")));
            sqlx::raw_sql(statements).execute(&mut database).await.unwrap();
            let rows = sqlx::query("SELECT job FROM tasks WHERE job <> ''").fetch_all(&mut database).await.unwrap();
            assert!(!rows.is_empty());
            rows.iter().for_each(|row| check::<Job>("tasks.job", row.get(0)));
        }
    }
}
