//! What the operator asks for beyond the manifest.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use windlass_contract::{DiskCid, VmCid};

use super::{CurrentInstance, SkipDrain, StateChange, Wish};
use crate::desired::Count;
use crate::records::{DiskRecord, InstanceRecord, VmRecord};

/// What the operator asked for beyond the manifest.
#[derive(Debug, Clone, Default)]
pub struct PlanOptions {
    /// All VMs are recreated.
    pub recreate: bool,
    /// Of those, only VMs that were made before this time, in Unix seconds.
    pub created_before: Option<i64>,
    /// All persistent disks are copied to new ones.
    pub recreate_disks: bool,
    /// Of those VMs and disks, only these.
    pub only: Option<WhatWasThere>,
    /// Something for some instances.
    pub change: Option<StateChange>,
    /// Which instances are stopped without being drained.
    pub skip_drain: SkipDrain,
    /// VMs whose agents do not answer are replaced, instead of being an obstacle.
    pub fix: bool,
    /// Instead of what the manifest says.
    pub canaries: Option<Count>,
    /// Instead of what the manifest says.
    pub max_in_flight: Option<Count>,
    /// An errand is about to run: the first instance of a group that is one gets its VM, and nothing else is planned for it.
    pub errand: bool,
    /// How many free addresses of each subnet are taken last, because others take them at the same time.
    pub left_to_others: usize,
}

/// VMs and disks that were there when somebody asked for new ones: what was made since then is new already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatWasThere {
    pub vms: BTreeSet<VmCid>,
    pub disks: BTreeSet<DiskCid>,
}

impl WhatWasThere {
    /// All that these instances have.
    pub fn of(instances: &[CurrentInstance]) -> Self {
        let vms = instances.iter().filter_map(|instance| instance.vm.as_ref()).map(|vm| vm.cid.clone());
        let disks = instances.iter().flat_map(|instance| &instance.disks).map(|disk| disk.cid.clone());
        Self { vms: vms.collect(), disks: disks.collect() }
    }
}

impl PlanOptions {
    pub(super) fn wish_for(&self, instance: &InstanceRecord) -> Option<Wish> {
        self.change.as_ref().filter(|change| change.selection.includes(instance)).map(|change| change.wish)
    }

    /// Whether the instance's VM is recreated without another reason.
    pub(super) fn recreates(&self, present: &CurrentInstance) -> bool {
        let is_old = |vm: &VmRecord| {
            self.created_before.is_none_or(|time| vm.created_at < time)
                && self.only.as_ref().is_none_or(|only| only.vms.contains(&vm.cid))
        };
        (self.recreate || self.wish_for(&present.record) == Some(Wish::Recreate))
            && present.vm.as_ref().is_none_or(is_old)
    }

    /// Whether the disk is to be copied to a new one without another reason.
    pub(super) fn renews(&self, disk: &DiskRecord) -> bool {
        self.recreate_disks && self.only.as_ref().is_none_or(|only| only.disks.contains(&disk.cid))
    }
}
