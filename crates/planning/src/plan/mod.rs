//! The plan: what a deploy will do, each action with its reason in words.
//!
//! [`plan`] is a pure function of what is wanted and what is. A deploy shows its plan, stores it and carries out exactly
//! that. Planning a deployment that is where it should be gives an empty plan.
//!
//! - [`current`] and [`options`]: what is, and what the operator asks for beyond the manifest.
//! - [`compilation`]: which packages have to be compiled before, and where.
//! - [`link_contents`]: what jobs get of each other through links.
//! - [`next_states`]: what becomes of an instance that is stopped.
//! - [`placement`]: which instances stay, which go, and in which zones new ones are made.
//! - [`addresses`]: which addresses they get.
//! - [`changes`]: what has to be done to one instance, and why.
//! - [`software_change`]: why jobs are stopped and started again.
//! - [`limits`]: what of it the clouds cannot give.
//! - [`state_change`]: what the operator asks of single instances.
//! - [`instance_specs`]: what one instance is brought to.
//! - [`planner`]: all of them together, group by group.
//! - [`words`]: the plan as a text for people.

mod actions;
mod addresses;
mod changes;
mod compilation;
mod current;
mod instance_specs;
mod limits;
mod link_contents;
mod next_states;
mod options;
mod placement;
mod planner;
mod software_change;
mod state_change;
mod words;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_contract::{DiskCid, MiB, VmCid};

use crate::desired::{Lifecycle, VmStrategy, WatchTime};
use crate::links::PlannedLinks;
use crate::names::{CpiName, DeploymentName, DiskName, InstanceId, InstanceName};
use crate::records::{InstanceRecord, InstanceState};
use crate::software::Software;
pub use crate::spec::{DiskSpec, InstanceSpec, reserved_addresses};

#[cfg(test)]
mod tests;

pub use actions::Actions;
pub use compilation::{CompilationPlan, PackageToCompile, is_compilation_group};
pub use current::{Calculated, Current, CurrentInstance};
pub use instance_specs::with_addresses;
pub use limits::{impossible_for, needs, refuse_impossible};
pub use next_states::NextStates;
pub use options::{PlanOptions, WhatWasThere};
pub use planner::{plan, plan_compilation, plan_deletion};
pub use state_change::{ASKED_FOR, Selection, SkipDrain, StateChange, Wish, plan_state_change};

/// What a deploy will do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub deployment: DeploymentName,
    /// What the operator should look at; nothing that stops the deploy.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What is compiled, and where; none if everything is compiled already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compilation: Option<CompilationPlan>,
    /// Instances that go away, first.
    pub removed: Vec<InstancePlan>,
    /// Instances that are wanted, by group in the order of the manifest.
    pub groups: Vec<GroupPlan>,
    /// What will run on the groups. Kept apart from the plan.
    #[serde(skip)]
    pub software: Vec<Software>,
    /// What is noted about links; none if they stay as they are. Kept apart from the plan.
    #[serde(skip)]
    pub links: Option<PlannedLinks>,
}

/// What happens to a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupPlan {
    pub name: String,
    /// How many are tried first.
    pub canaries: usize,
    /// How many at a time.
    pub max_in_flight: usize,
    /// Whether it is updated by itself, rather than at the same time as its neighbours.
    #[serde(default = "yes")]
    pub serial: bool,
    /// Whether all zones are updated at once, rather than one after the other.
    #[serde(default)]
    pub zones_at_once: bool,
    /// How long a canary is watched.
    #[serde(default)]
    pub canary_watch_time: Option<WatchTime>,
    /// How long every other instance is watched.
    #[serde(default)]
    pub update_watch_time: Option<WatchTime>,
    /// Whether it has VMs all the time.
    #[serde(default)]
    pub lifecycle: Lifecycle,
    /// How VMs are replaced.
    #[serde(default)]
    pub strategy: VmStrategy,
    /// Its instances in the order of their update.
    pub instances: Vec<InstancePlan>,
}

fn yes() -> bool {
    true
}

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstancePlan {
    pub id: InstanceId,
    pub group: String,
    /// Counted from 0.
    pub index: i64,
    pub az: Option<String>,
    /// Whether it is updated first.
    pub bootstrap: bool,
    /// Whether it is to run.
    #[serde(default)]
    pub state: InstanceState,
    /// What it is to become; none for one that goes away.
    pub spec: Option<InstanceSpec>,
    /// In their order; none when nothing is to be done.
    pub actions: Actions,
}

impl InstancePlan {
    /// What happens to an instance on record, which stays what it is.
    pub fn of(record: &InstanceRecord, actions: Vec<Action>) -> Self {
        Self {
            id: record.id.clone(),
            group: record.group.clone(),
            index: record.index,
            az: record.az.clone(),
            bootstrap: record.bootstrap,
            state: record.state,
            spec: record.applied_spec().cloned(),
            actions: actions.into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Action {
    #[serde(flatten)]
    pub what: ActionKind,
    /// Why, for people.
    pub reason: String,
}

/// What is done to an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ActionKind {
    /// Install what it will run while the old version still runs.
    Prepare,
    /// Stop what runs on it.
    Stop {
        /// Whether its jobs are drained before.
        #[serde(default = "yes")]
        drain: bool,
    },
    /// Unmount and detach.
    DetachDisk { disk: DiskCid },
    /// Remove the VM; its disks survive.
    DeleteVm { vm: VmCid },
    /// Make a VM, or finish one whose agent never answered.
    CreateVm,
    /// Make a VM beside the one that is there.
    CreateSpareVm,
    /// The VM that was made beside this one takes its place; this one is given up.
    SwapVm {
        /// The old VM.
        from: VmCid,
    },
    /// Tell the cloud what the VM and its disks are called.
    SetMetadata,
    /// Make a disk.
    CreateDisk {
        #[serde(default)]
        name: DiskName,
        size: MiB,
    },
    /// Attach and mount `disk`, or the disk created by the preceding `CreateDisk`.
    AttachDisk {
        /// The disk, if it exists already.
        disk: Option<DiskCid>,
        #[serde(default)]
        name: DiskName,
    },
    /// Make an attached disk larger, in place if the cloud can.
    ResizeDisk { disk: DiskCid, name: DiskName, from: MiB, to: MiB },
    /// Put a new disk in the place of an attached one, with a copy of its data.
    MigrateDisk { disk: DiskCid, name: DiskName, from: MiB, to: MiB },
    /// Give a disk up, keeping its data.
    OrphanDisk { disk: DiskCid },
    /// Tell the agent what to run, and start it.
    Start,
    /// Forget the instance.
    RemoveInstance,
}

impl ActionKind {
    fn makes_vm(&self) -> bool {
        matches!(self, Self::CreateVm | Self::CreateSpareVm)
    }

    /// Whether the instance is not what it was afterwards, however its plan goes on. One that was only stopped, or lost its VM, can
    /// still be started as what it was.
    pub fn makes_another(&self) -> bool {
        let stays = matches!(
            self,
            Self::Prepare
                | Self::Stop { .. }
                | Self::DetachDisk { .. }
                | Self::DeleteVm { .. }
                | Self::CreateSpareVm
                | Self::SetMetadata
        );
        !stays
    }

    /// Whether it takes data away from what runs on the VM.
    pub(crate) fn touches_data(&self, present: &CurrentInstance) -> bool {
        match self {
            Self::ResizeDisk { .. } | Self::MigrateDisk { .. } => true,
            Self::DetachDisk { disk } => present.disks.iter().any(|found| found.cid == *disk && found.active),
            // Jobs that run now would go on writing beside it.
            Self::AttachDisk { .. } => present.record.spec.as_ref().is_some_and(|spec| spec.software.is_some()),
            _ => false,
        }
    }
}

impl InstancePlan {
    pub fn name(&self) -> InstanceName {
        InstanceName::of(&self.group, &self.id)
    }

    /// `group/uuid (index)`, as tasks name it.
    pub fn label(&self) -> String {
        format!("{} ({})", self.name(), self.index)
    }
}

impl Plan {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty()
            && self.compilation.is_none()
            && self.instances().all(|instance| instance.actions.is_empty())
    }

    /// All wanted instances.
    pub fn instances(&self) -> impl Iterator<Item = &InstancePlan> {
        self.groups.iter().flat_map(|group| &group.instances)
    }

    /// Leaves out the hashes of rendered files and of values in env. Readers choose what they plan, and could try values of variables
    /// on them.
    pub fn hide_hashes(&mut self) {
        let instances = self.groups.iter_mut().flat_map(|group| &mut group.instances).chain(&mut self.removed);
        for spec in instances.filter_map(|instance| instance.spec.as_mut()) {
            spec.env_values = None;
            spec.software.iter_mut().for_each(|software| software.configuration_hash.clear());
        }
    }

    /// Groups that get new VMs with `nesting: true` among their cloud properties, each with its CPI.
    pub fn groups_that_nest(&self) -> BTreeSet<(&str, &CpiName)> {
        let made = self.instances().filter(|instance| instance.actions.iter().any(|action| action.what.makes_vm()));
        let workers = self.compilation.iter().flat_map(|compilation| &compilation.workers);
        let specs = made.chain(workers).filter_map(|instance| Some((instance, instance.spec.as_ref()?)));
        specs
            .filter(|(_, spec)| spec.cloud_properties.get("nesting") == Some(&Value::Bool(true)))
            .map(|(instance, spec)| (instance.group.as_str(), &spec.cpi))
            .collect()
    }

    /// Groups that are updated one after the other; those that stand together here are updated at the same time.
    pub fn batches(&self) -> Vec<&[GroupPlan]> {
        self.groups.chunk_by(|one, next| !one.serial && !next.serial).collect()
    }
}

impl GroupPlan {
    /// Instances that are not yet what they are to be, zone by zone in the order of their update.
    pub fn changed_by_zone(&self) -> Vec<Vec<&InstancePlan>> {
        let changed: Vec<_> = self.instances.iter().filter(|instance| !instance.actions.is_empty()).collect();
        if self.zones_at_once {
            return vec![changed];
        }
        changed.chunk_by(|one, next| one.az == next.az).map(<[_]>::to_vec).collect()
    }
}
