//! The plan: what a deploy will do, each action with its reason in words.
//!
//! [`plan`] is a pure function of what is wanted and what is. A deploy shows its plan, stores it and carries out exactly
//! that. Planning a deployment that is where it should be gives an empty plan.

mod addresses;
mod planner;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use windlass_contract::network::NetworkKind;
use windlass_contract::{DiskCid, Networks, Object, StemcellCid, VmCid};

use crate::ledger::{DiskRecord, StemcellOfVm};

#[cfg(test)]
mod tests;

pub use planner::{Current, CurrentInstance, PlanOptions, Recreate, plan, plan_deletion};

/// What a deploy will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The deployment.
    pub deployment: String,
    /// Instances that go away, first.
    pub removed: Vec<InstancePlan>,
    /// Instances that are wanted, by group in the order of the manifest.
    pub groups: Vec<GroupPlan>,
}

/// What happens to a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    /// Name.
    pub name: String,
    /// How many are tried first.
    pub canaries: usize,
    /// How many at a time.
    pub max_in_flight: usize,
    /// Its instances in the order of their update.
    pub instances: Vec<InstancePlan>,
}

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstancePlan {
    /// A UUID.
    pub id: String,
    /// Its group.
    pub group: String,
    /// Counted from 0.
    pub index: i64,
    /// Its zone.
    pub az: Option<String>,
    /// Whether it is updated first.
    pub bootstrap: bool,
    /// What it shall be; none for one that goes away.
    pub spec: Option<InstanceSpec>,
    /// In their order; none when it is what it shall be.
    pub actions: Vec<Action>,
}

/// One action and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// What.
    #[serde(flatten)]
    pub what: What,
    /// Why, for people.
    pub reason: String,
}

/// What is done to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// Drain and stop what runs on it.
    Stop,
    /// Unmount and detach.
    DetachDisk {
        /// The disk.
        disk: DiskCid,
    },
    /// Remove the VM; its disks survive.
    DeleteVm {
        /// The VM.
        vm: VmCid,
    },
    /// Make a VM, or finish one whose agent never answered.
    CreateVm,
    /// Make a disk.
    CreateDisk {
        /// In MiB.
        size: u64,
    },
    /// Attach and mount: the disk named, or the one just made.
    AttachDisk {
        /// The disk, if it exists already.
        disk: Option<DiskCid>,
    },
    /// Give a disk up, keeping its data.
    OrphanDisk {
        /// The disk.
        disk: DiskCid,
    },
    /// Tell the agent what it shall run, and start it.
    Start,
    /// Forget the instance.
    RemoveInstance,
}

impl What {
    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Self::Stop => "stop".to_owned(),
            Self::DetachDisk { disk } => format!("detach disk {disk}"),
            Self::DeleteVm { vm } => format!("delete VM {vm}"),
            Self::CreateVm => "create VM".to_owned(),
            Self::CreateDisk { size } => format!("create disk of {size} MiB"),
            Self::AttachDisk { disk: Some(disk) } => format!("attach disk {disk}"),
            Self::AttachDisk { disk: None } => "attach the new disk".to_owned(),
            Self::OrphanDisk { disk } => format!("orphan disk {disk} (data is kept)"),
            Self::Start => "start".to_owned(),
            Self::RemoveInstance => "remove instance".to_owned(),
        }
    }
}

/// What an instance shall be, completely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// The CPI that serves its zone.
    pub cpi: String,
    /// The stemcell in that cloud.
    pub stemcell_cid: StemcellCid,
    /// The stemcell.
    pub stemcell: StemcellOfVm,
    /// The name of the VM's type.
    pub vm_type: String,
    /// Zone, type and extensions together.
    pub cloud_properties: Object,
    /// With addresses, where the director chooses them.
    pub networks: Networks,
    /// Its persistent disk.
    pub disk: Option<DiskSpec>,
    /// For the agent, without what the director adds.
    pub env: Object,
    /// For the clouds.
    pub tags: Object,
}

/// What a disk shall be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskSpec {
    /// In MiB.
    pub size: u64,
    /// What only the cloud understands.
    pub cloud_properties: Object,
}

impl InstanceSpec {
    /// Addresses that the director chose, with their networks.
    pub fn reserved_addresses(&self) -> impl Iterator<Item = (&str, IpAddr)> {
        self.networks
            .iter()
            .filter(|(_, network)| network.kind != NetworkKind::Dynamic)
            .filter_map(|(name, network)| Some((name.as_str(), network.ip.as_ref()?.parse().ok()?)))
    }
}

impl InstancePlan {
    /// `group/uuid (index)`, as tasks name it.
    pub fn label(&self) -> String {
        format!("{}/{} ({})", self.group, self.id, self.index)
    }

    /// Whether its VM is made anew without one having been there.
    pub fn has_no_vm(&self) -> bool {
        self.actions.first().is_some_and(|action| action.what == What::CreateVm)
    }
}

impl Plan {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.instances().all(|instance| instance.actions.is_empty())
    }

    /// All wanted instances.
    pub fn instances(&self) -> impl Iterator<Item = &InstancePlan> {
        self.groups.iter().flat_map(|group| &group.instances)
    }

    /// For people: one line per instance, one per action below it.
    pub fn describe(&self) -> String {
        if self.is_empty() {
            return format!("{}: nothing to do\n", self.deployment);
        }
        let mut text = format!("{}\n", self.deployment);
        for instance in self.removed.iter().chain(self.instances()) {
            if instance.actions.is_empty() {
                continue;
            }
            text.push_str(&format!("  {}\n", instance.label()));
            for action in &instance.actions {
                text.push_str(&format!("    {}: {}\n", action.what.describe(), action.reason));
            }
        }
        text
    }
}

impl CurrentInstance {
    /// The disk of the instance: the one that was mounted, or else one that was made for it and matches.
    pub(crate) fn disk(&self, wanted: &DiskSpec) -> Option<&DiskRecord> {
        let matches = |disk: &&DiskRecord| disk.size == wanted.size && disk.cloud_properties == wanted.cloud_properties;
        self.disks.iter().find(|disk| disk.active).or_else(|| self.disks.iter().find(matches))
    }
}
