//! What cloud-check finds, what it is called, and what can be done about it. Pure: the director's `scan` finds problems,
//! and a task carries out resolutions.

use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass_contract::director::{CloudProblem, ProblemResolution};
use windlass_contract::{DiskCid, VmCid};

use crate::names::InstanceId;
use crate::plan::{Current, CurrentInstance};
use crate::records::DiskRecord;

/// Something that is not as the records say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Problem {
    /// The cloud has no VM for an instance that should have one.
    MissingVm { instance: InstanceId },
    /// The cloud has the VM, but its agent does not answer.
    UnresponsiveAgent {
        instance: InstanceId,
        /// What the cloud says when it cannot reach the VM either: it may run on, and only somebody else knows whether it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unreachable: Option<String>,
    },
    /// The agent answers, and says that jobs which should run do not. BOSH leaves this to its health monitor.
    FailingJobs {
        instance: InstanceId,
        /// Their processes that do not run, as far as the agent names them.
        #[serde(default)]
        processes: Vec<String>,
    },
    /// The cloud does not have the disk.
    MissingDisk { disk: DiskCid },
    /// The disk was never mounted, or was about to be replaced.
    InactiveDisk { disk: DiskCid },
    /// The disk is mounted or attached elsewhere than the records say.
    MountInfoMismatch {
        disk: DiskCid,
        /// The VMs that mounted it.
        owner_vms: Vec<VmCid>,
        /// Set when the cloud was asked and says that the disk is not attached to the VM to which it belongs.
        #[serde(default)]
        is_detached: bool,
    },
}

/// A problem that nobody dealt with yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenProblem {
    /// Never used twice.
    pub id: i64,
    pub problem: Problem,
}

/// What can be done about a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    Ignore,
    /// Nothing, as there is no problem any more.
    Close,
    /// Restart the VM and wait for its agent.
    RebootVm,
    /// A new VM with the instance's disks.
    RecreateVmWithoutWait,
    /// The same, until it runs.
    RecreateVm,
    /// Stop the jobs and start them again, on the same VM.
    RestartJobs,
    /// Remove the VM.
    DeleteVm,
    /// Somebody knows that the VM is dead, though the cloud cannot say so: a new VM with the instance's disks. The old one is
    /// deleted as soon as the cloud can.
    DeclareVmDead,
    /// Forget the VM.
    DeleteVmReference,
    /// Forget the disk.
    DeleteDiskReference,
    /// Detach and orphan the disk.
    DeleteDisk,
    /// Take the disk for the instance's own.
    ActivateDisk,
    /// Attach and mount the disk again.
    ReattachDisk,
    /// The same, then restart the VM.
    ReattachDiskAndReboot,
}

impl Resolution {
    /// By the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        serde_json::from_value(word.into()).ok()
    }

    /// The word on the wire.
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
    }
}

/// Each with the words that people choose by.
type Resolutions = &'static [(Resolution, &'static str)];

const SKIP: (Resolution, &str) = (Resolution::Ignore, "Skip for now");
const RECREATE_WITHOUT_WAIT: (Resolution, &str) =
    (Resolution::RecreateVmWithoutWait, "Recreate VM without waiting for processes to start");
const RECREATE: (Resolution, &str) = (Resolution::RecreateVm, "Recreate VM and wait for processes to start");
const FORGET_UNRESPONSIVE: &str =
    "Delete VM reference (forceful; may need to manually delete VM from the Cloud to avoid IP conflicts)";

const MISSING_VM: Resolutions =
    &[SKIP, RECREATE_WITHOUT_WAIT, RECREATE, (Resolution::DeleteVmReference, "Delete VM reference")];
const UNRESPONSIVE_AGENT: Resolutions = &[
    SKIP,
    (Resolution::RebootVm, "Reboot VM"),
    RECREATE_WITHOUT_WAIT,
    RECREATE,
    (Resolution::DeleteVm, "Delete VM"),
    (Resolution::DeleteVmReference, FORGET_UNRESPONSIVE),
];
/// Without those of a VM: who has all lost VMs recreated by a script does not mean VMs that answer.
const FAILING_JOBS: Resolutions = &[SKIP, (Resolution::RestartJobs, "Restart jobs")];
/// As above, of a VM that the cloud cannot reach.
const UNREACHABLE_VM: Resolutions = &[
    SKIP,
    (Resolution::RebootVm, "Reboot VM"),
    RECREATE_WITHOUT_WAIT,
    RECREATE,
    (Resolution::DeleteVm, "Delete VM"),
    (Resolution::DeclareVmDead, "The old VM is dead: recreate VM (DANGEROUS if it still runs!)"),
    (Resolution::DeleteVmReference, FORGET_UNRESPONSIVE),
];
const MISSING_DISK: Resolutions = &[SKIP, (Resolution::DeleteDiskReference, "Delete disk reference (DANGEROUS!)")];
const INACTIVE_DISK: Resolutions =
    &[SKIP, (Resolution::DeleteDisk, "Delete disk"), (Resolution::ActivateDisk, "Activate disk")];
const MOUNT_INFO_MISMATCH: Resolutions = &[
    (Resolution::Ignore, "Ignore"),
    (Resolution::ReattachDisk, "Reattach disk to instance"),
    (Resolution::ReattachDiskAndReboot, "Reattach disk and reboot instance"),
];
const INVALID: Resolutions = &[(Resolution::Close, "Close problem")];

impl Problem {
    /// The word on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::MissingVm { .. } => "missing_vm",
            Self::UnresponsiveAgent { .. } => "unresponsive_agent",
            Self::FailingJobs { .. } => "failing_jobs",
            Self::MissingDisk { .. } => "missing_disk",
            Self::InactiveDisk { .. } => "inactive_disk",
            Self::MountInfoMismatch { .. } => "mount_info_mismatch",
        }
    }

    /// What it is about: an instance's or a disk's id.
    pub fn resource(&self) -> &str {
        match self {
            Self::MissingVm { instance }
            | Self::UnresponsiveAgent { instance, .. }
            | Self::FailingJobs { instance, .. } => instance,
            Self::MissingDisk { disk } | Self::InactiveDisk { disk } | Self::MountInfoMismatch { disk, .. } => {
                disk.as_str()
            }
        }
    }

    /// What can be done about it, in the order in which it is offered.
    pub fn resolutions(&self) -> Resolutions {
        match self {
            Self::MissingVm { .. } => MISSING_VM,
            Self::UnresponsiveAgent { unreachable: Some(_), .. } => UNREACHABLE_VM,
            Self::UnresponsiveAgent { .. } => UNRESPONSIVE_AGENT,
            Self::FailingJobs { .. } => FAILING_JOBS,
            Self::MissingDisk { .. } => MISSING_DISK,
            Self::InactiveDisk { .. } => INACTIVE_DISK,
            Self::MountInfoMismatch { .. } => MOUNT_INFO_MISMATCH,
        }
    }

    /// What is done about it when nobody chooses: only what can do no harm.
    pub fn automatic(&self) -> Resolution {
        match self {
            Self::MissingVm { .. } => Resolution::RecreateVmWithoutWait,
            _ => Resolution::Ignore,
        }
    }

    /// The instance that it is about, as long as there is one.
    pub fn instance<'a>(&self, current: &'a Current) -> Option<&'a CurrentInstance> {
        match self {
            Self::MissingVm { instance }
            | Self::UnresponsiveAgent { instance, .. }
            | Self::FailingJobs { instance, .. } => current.instances.iter().find(|found| found.record.id == *instance),
            Self::MissingDisk { disk } | Self::InactiveDisk { disk } | Self::MountInfoMismatch { disk, .. } => {
                current.instances.iter().find(|found| found.disks.iter().any(|other| other.cid == *disk))
            }
        }
    }

    /// Whether the instance's VM is lost, so that another one could help.
    pub fn is_lost_vm(&self) -> bool {
        matches!(self, Self::MissingVm { .. } | Self::UnresponsiveAgent { .. })
    }

    /// The disk that it is about.
    pub fn disk<'a>(&self, instance: &'a CurrentInstance) -> Option<&'a DiskRecord> {
        instance.disks.iter().find(|disk| disk.cid.as_str() == self.resource())
    }

    /// For people; none once what it is about is gone.
    pub fn describe(&self, current: &Current) -> Option<String> {
        let instance = self.instance(current)?;
        let record = &instance.record;
        let name = format!("{} ({})", record.name(), record.index);
        let labelled = |disk: &DiskCid| {
            let size = self.disk(instance).map_or(0, |disk| disk.size.0);
            format!("'{disk}' ({}, {size}M)", record.name())
        };
        Some(match (self, &instance.vm) {
            (Self::MissingVm { .. }, Some(vm)) => format!("VM for '{name}' with cloud ID '{}' missing.", vm.cid),
            (Self::MissingVm { .. }, None) => format!("VM for '{name}' missing."),
            (Self::UnresponsiveAgent { unreachable, .. }, Some(vm)) => {
                let why = unreachable.as_ref().map(|why| format!(" The cloud cannot reach it: {why}"));
                format!("VM for '{name}' with cloud ID '{}' is not responding.{}", vm.cid, why.unwrap_or_default())
            }
            (Self::UnresponsiveAgent { .. } | Self::FailingJobs { .. }, None) => return None,
            (Self::FailingJobs { processes, .. }, Some(_)) if processes.is_empty() => {
                format!("Jobs of '{name}' are failing.")
            }
            (Self::FailingJobs { processes, .. }, Some(_)) => {
                format!("Jobs of '{name}' are failing: {}.", processes.join(", "))
            }
            (Self::MissingDisk { disk }, _) => format!("Disk {} is missing", labelled(disk)),
            (Self::InactiveDisk { disk }, _) => format!("Disk {} is inactive", labelled(disk)),
            (Self::MountInfoMismatch { .. }, None) => return None,
            (Self::MountInfoMismatch { disk, owner_vms, is_detached }, Some(vm)) => {
                let owners: Vec<_> = owner_vms.iter().map(|owner| format!("\tMounted on {owner}")).collect();
                let mut seen = if owners.is_empty() { "\tNot mounted in any VM".to_owned() } else { owners.join("\n") };
                if *is_detached {
                    seen.push_str(&format!("\n\tNot attached to {} in the cloud", vm.cid));
                }
                format!(
                    "Inconsistent mount information:\nRecord shows that disk '{disk}' should be mounted on {}.\n\
                     However it is currently :\n{seen}",
                    vm.cid
                )
            }
        })
    }
}

impl OpenProblem {
    /// For clients. One whose subject is gone can only be closed.
    pub fn shown(&self, current: &Current) -> CloudProblem {
        let problem = &self.problem;
        let group = problem.instance(current).map(|instance| instance.record.group.as_str()).unwrap_or_default();
        let (kind, description, resolutions) = match problem.describe(current) {
            Some(description) => (problem.kind(), description, problem.resolutions()),
            None => {
                let gone =
                    format!("Problem ({} {}) is no longer valid: it is gone", problem.kind(), problem.resource());
                ("invalid_problem", gone, INVALID)
            }
        };
        let data = match problem {
            Problem::MountInfoMismatch { owner_vms, .. } => json!({"owner_vms": owner_vms}),
            _ => json!({}),
        };
        let resolution = |(resolution, plan): &(Resolution, &str)| ProblemResolution {
            name: Some(resolution.name().to_owned()),
            plan: (*plan).to_owned(),
        };
        CloudProblem {
            id: self.id.unsigned_abs(),
            kind: kind.to_owned(),
            data,
            description,
            resolutions: resolutions.iter().map(resolution).collect(),
            instance_group: group.to_owned(),
        }
    }

    /// What to do about it when a client chose `word`, or nothing; an error names what it could have chosen.
    pub fn chosen(&self, word: Option<&str>) -> Result<Resolution, String> {
        let Some(word) = word else { return Ok(self.problem.automatic()) };
        let offered = self.problem.resolutions().iter().map(|(resolution, _)| *resolution);
        let found = Resolution::parse(word)
            .filter(|chosen| *chosen == Resolution::Close || offered.clone().any(|it| it == *chosen));
        found.ok_or_else(|| {
            let names: Vec<_> = offered.map(Resolution::name).collect();
            format!(
                "problem {} ({}) has no resolution '{word}', only {}",
                self.id,
                self.problem.kind(),
                names.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests;
