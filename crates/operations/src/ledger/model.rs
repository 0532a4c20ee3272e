//! What is on record after some facts, as a pure function. Every [`Ledger`](super::Ledger) is compared with it.

use windlass_contract::{DiskCid, VmCid};
use windlass_planning::names::InstanceId;
use windlass_planning::records::{DiskRecord, SnapshotRecord, StemcellRecord, VmRecord};

use super::Fact;

/// What is on record. Lists are in the order in which things appeared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model {
    /// Without an id of their own: a database gives them one.
    pub stemcells: Vec<StemcellRecord>,
    /// Of instances, also those that stand beside an instance's VM.
    pub vms: Vec<VmRecord>,
    /// VMs that others took the places of; they are still in the cloud.
    pub orphaned_vms: Vec<VmRecord>,
    /// Of instances.
    pub disks: Vec<DiskRecord>,
    /// Disks that belong to no instance; `instance` is whose they were.
    pub orphan_disks: Vec<DiskRecord>,
    pub snapshots: Vec<SnapshotRecord>,
    /// They are made by other means than facts.
    pub instances: Vec<InstanceId>,
}

impl Model {
    /// Nothing but these instances.
    pub fn of_instances<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        Self { instances: ids.into_iter().map(InstanceId::from).collect(), ..Self::default() }
    }

    /// Records a fact. Recorded twice in a row, it is recorded once.
    pub fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::StemcellCreated { stemcell, cid } => {
                let record = StemcellRecord {
                    id: 0,
                    name: stemcell.name.clone(),
                    version: stemcell.version.clone(),
                    operating_system: stemcell.operating_system.clone(),
                    cpi: stemcell.cpi.clone(),
                    cid: cid.clone(),
                    api_version: stemcell.api_version,
                    deployments: Vec::new(),
                };
                // One that is uploaded again to repair it has another cid, and is the same stemcell.
                let is_it = |known: &&mut StemcellRecord| {
                    (&known.name, &known.version, &known.cpi) == (&record.name, &record.version, &record.cpi)
                };
                match self.stemcells.iter_mut().find(is_it) {
                    Some(known) => *known = record,
                    None => self.stemcells.push(record),
                }
            }
            Fact::StemcellDeleted { cpi, cid } => {
                self.stemcells.retain(|known| (&known.cpi, &known.cid) != (cpi, cid));
            }
            Fact::VmCreated { vm } => {
                self.vms.retain(|known| known.cid != vm.cid);
                self.vms.push(VmRecord { ready: false, ..(**vm).clone() });
            }
            Fact::VmReady { cid } => {
                self.vms.iter_mut().filter(|vm| vm.cid == *cid).for_each(|vm| vm.ready = true);
            }
            Fact::VmSwapped { from, to } => {
                self.orphaned_vms.extend(self.vms.extract_if(.., |vm| vm.cid == *from));
                self.vms.iter_mut().filter(|vm| vm.cid == *to).for_each(|vm| vm.spare = false);
            }
            Fact::VmOrphaned { cid } => {
                self.orphaned_vms.extend(self.vms.extract_if(.., |vm| vm.cid == *cid));
            }
            Fact::VmDeleted { cid } => {
                self.vms.retain(|vm| vm.cid != *cid);
                self.orphaned_vms.retain(|vm| vm.cid != *cid);
                self.disks.iter_mut().filter(|disk| disk.vm.as_ref() == Some(cid)).for_each(detached);
            }
            Fact::DiskCreated { disk } => self.add_disk(disk, false),
            Fact::DiskAttached { disk, vm, hint } => self.with(disk, |disk| {
                disk.vm = Some(vm.clone());
                disk.hint = hint.clone();
                // Where a disk is attached again, nobody knows what its VM did meanwhile.
                disk.mounted = false;
            }),
            Fact::DiskMounted { disk } => self.with(disk, |disk| (disk.active, disk.mounted) = (true, true)),
            Fact::DiskUnmounted { disk } => self.with(disk, |disk| disk.mounted = false),
            Fact::DiskResized { disk, size } => self.with(disk, |disk| disk.size = *size),
            Fact::DiskReplaced { old, new } => {
                self.with(old, |disk| (disk.active, disk.mounted) = (false, false));
                self.with(new, |disk| (disk.active, disk.mounted) = (true, true));
            }
            Fact::DiskDetached { disk } => self.with(disk, detached),
            Fact::DiskOrphaned { disk } => {
                let orphaned = self.disks.extract_if(.., |known| known.cid == *disk);
                self.orphan_disks.extend(orphaned.map(|mut disk| {
                    disk.active = false;
                    detached(&mut disk);
                    disk
                }));
            }
            Fact::DiskDeleted { disk } => {
                self.disks.retain(|known| known.cid != *disk);
                self.orphan_disks.retain(|known| known.cid != *disk);
            }
            Fact::DiskAdopted { disk } => {
                self.orphan_disks.retain(|known| known.cid != disk.cid);
                self.add_disk(disk, true);
            }
            Fact::SnapshotTaken { snapshot } => {
                self.snapshots.retain(|known| known.cid != snapshot.cid);
                self.snapshots.push(snapshot.clone());
            }
            Fact::SnapshotDeleted { cid } => self.snapshots.retain(|known| known.cid != *cid),
            Fact::InstanceRemoved { instance } => self.instances.retain(|known| known != instance),
            Fact::Nothing => {}
        }
    }

    /// The VM that an instance works with, or the one beside it.
    pub fn vm_of(&self, instance: &InstanceId, spare: bool) -> Option<&VmRecord> {
        self.vms.iter().find(|vm| vm.instance == *instance && vm.spare == spare)
    }

    /// Whether a VM is on record, of an instance or orphaned.
    pub fn knows_vm(&self, cid: &VmCid) -> bool {
        self.vms.iter().chain(&self.orphaned_vms).any(|vm| vm.cid == *cid)
    }

    /// Whether a disk is on record, of an instance or orphaned.
    pub fn knows_disk(&self, cid: &DiskCid) -> bool {
        self.disks.iter().chain(&self.orphan_disks).any(|disk| disk.cid == *cid)
    }

    /// In the order of their names, for comparing.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.stemcells.sort_by(|one, other| one.cid.cmp(&other.cid));
        for vms in [&mut self.vms, &mut self.orphaned_vms] {
            vms.sort_by(|one, other| one.cid.cmp(&other.cid));
        }
        for disks in [&mut self.disks, &mut self.orphan_disks] {
            disks.sort_by(|one, other| one.cid.cmp(&other.cid));
        }
        self.snapshots.sort_by(|one, other| one.cid.cmp(&other.cid));
        self.instances.sort();
        self
    }

    /// A disk that is attached to nothing.
    fn add_disk(&mut self, disk: &DiskRecord, active: bool) {
        let mut disk = DiskRecord { active, ..disk.clone() };
        detached(&mut disk);
        self.disks.retain(|known| known.cid != disk.cid);
        self.disks.push(disk);
    }

    fn with(&mut self, cid: &DiskCid, change: impl FnOnce(&mut DiskRecord)) {
        if let Some(disk) = self.disks.iter_mut().find(|disk| disk.cid == *cid) {
            change(disk);
        }
    }
}

fn detached(disk: &mut DiskRecord) {
    disk.vm = None;
    disk.mounted = false;
    disk.hint = None;
}
