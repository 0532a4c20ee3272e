//! The state file as the ledger of the director's steps: intents go beside it before anything is tried, facts go into it
//! before the intent ends. Whoever is killed in between finds the intent again and repeats it, and recording a fact twice
//! is recording it once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use windlass_contract::{DiskCid, RequestId};
use windlass_durable::process::ProcessIdentity;
use windlass_operations::ledger::{Fact, Intent, IntentEnd, IntentOutcome, Ledger, LedgerError, NotOneIntent};
use windlass_planning::records::{DiskRecord, VmRecord};

use crate::state::{DiskEntry, StateError, StateFile, StemcellEntry};

/// The state of a run, shared by its steps.
#[derive(Debug, Clone)]
pub struct EnvLedger {
    file: Arc<Mutex<StateFile>>,
}

impl EnvLedger {
    /// The ledger in this state.
    pub fn new(file: StateFile) -> Self {
        Self { file: Arc::new(Mutex::new(file)) }
    }

    /// The state as it is now.
    pub fn look(&self) -> MutexGuard<'_, StateFile> {
        // A panic while it was held left what is on disk, which is always whole.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and makes it durable.
    pub fn change(&self, change: impl FnOnce(&mut StateFile)) -> Result<(), StateError> {
        let mut file = self.look();
        change(&mut file);
        file.save()
    }

    /// Fails unless exactly one intent has this id; then nothing is written.
    fn with_intent(
        &self,
        what: &'static str,
        id: &RequestId,
        change: impl FnOnce(&mut StateFile, usize) -> Result<(), StateError>,
    ) -> Result<(), LedgerError> {
        let mut file = self.look();
        let place = place(&file);
        let places: Vec<usize> =
            file.beside.intents.iter().enumerate().filter(|(_, known)| known.id == *id).map(|(at, _)| at).collect();
        let failed = |source| LedgerError { what, place: place.clone(), source };
        NotOneIntent::unless_one(id, places.len() as u64).map_err(|error| failed(error.into()))?;
        change(&mut file, places[0]).map_err(|error| failed(error.into()))
    }
}

fn place(file: &StateFile) -> String {
    format!("the state file '{}'", file.path().display())
}

#[async_trait]
impl Ledger for EnvLedger {
    async fn write_intent(&self, intent: &Intent) -> Result<(), LedgerError> {
        let mut file = self.look();
        file.beside.intents.push(intent.clone());
        let place = place(&file);
        file.save_beside().map_err(|error| LedgerError { what: "write an intent", place, source: error.into() })
    }

    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError> {
        self.with_intent("note the CPI's process", id, |file, at| {
            file.beside.intents[at].child = Some(child);
            file.save_beside()
        })
    }

    async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError> {
        match end.outcome() {
            IntentOutcome::Settled(fact) => self.with_intent("settle an intent", end.id(), |file, at| {
                apply(file, fact);
                // Before the intent goes: a run that is killed in between repeats it.
                file.save_state()?;
                file.beside.intents.remove(at);
                file.save_beside()
            }),
            IntentOutcome::Abandoned(_) => self.with_intent("end an intent", end.id(), |file, at| {
                file.beside.intents.remove(at);
                file.save_beside()
            }),
            IntentOutcome::Doubtful(why) => self.with_intent("note a doubt", end.id(), |file, at| {
                file.beside.intents[at].doubt = Some(why.to_owned());
                file.save_beside()
            }),
        }
    }

    async fn record(&self, fact: &Fact) -> Result<(), LedgerError> {
        let place = place(&self.look());
        let recorded = self.change(|file| apply(file, fact));
        recorded.map_err(|error| LedgerError { what: "record a fact", place, source: error.into() })
    }

    async fn intents(&self) -> Result<Vec<Intent>, LedgerError> {
        Ok(self.look().beside.intents.clone())
    }
}

/// Puts a fact into the state and into what is beside it.
fn apply(file: &mut StateFile, fact: &Fact) {
    let (state, beside) = (&mut file.state, &mut file.beside);
    match fact {
        Fact::StemcellCreated { stemcell, cid } => {
            if !state.stemcells.iter().any(|known| known.cid == *cid) {
                state.stemcells.push(StemcellEntry {
                    id: uuid::Uuid::new_v4().to_string(),
                    name: stemcell.name.clone(),
                    version: stemcell.version.clone(),
                    api_version: stemcell.api_version,
                    cid: cid.clone(),
                    other: Default::default(),
                });
            }
        }
        Fact::StemcellDeleted { cid, .. } => {
            let gone = state.stemcells.iter().find(|known| known.cid == *cid).map(|known| known.id.clone());
            if gone.is_some_and(|id| id == state.current_stemcell_id) {
                state.current_stemcell_id.clear();
            }
            state.stemcells.retain(|known| known.cid != *cid);
        }
        // One that stands beside the VM in use is not the current one until it takes its place.
        Fact::VmCreated { vm } if vm.spare => beside.spare = Some((**vm).clone()),
        Fact::VmCreated { vm } => {
            state.current_vm_cid = vm.cid.to_string();
            let made_from =
                |known: &&StemcellEntry| known.name == vm.stemcell.name && known.version == vm.stemcell.version;
            if let Some(stemcell) = state.stemcells.iter().find(made_from) {
                state.current_stemcell_id = stemcell.id.clone();
            }
            beside.vm = Some((**vm).clone());
        }
        Fact::VmReady { cid } => {
            let vms = beside.vm.iter_mut().chain(beside.spare.iter_mut());
            vms.filter(|vm| vm.cid == *cid).for_each(|vm| vm.ready = true);
        }
        Fact::VmSwapped { to, .. } => {
            state.current_vm_cid = to.to_string();
            if let Some(new) = beside.spare.take_if(|spare| spare.cid == *to) {
                beside.vm = Some(VmRecord { spare: false, ..new });
            }
        }
        Fact::VmDeleted { cid } => {
            if state.current_vm_cid == cid.as_str() {
                state.current_vm_cid.clear();
                state.current_stemcell_id.clear();
            }
            if beside.vm.as_ref().is_some_and(|vm| vm.cid == *cid) {
                beside.vm = None;
            }
            beside.spare.take_if(|spare| spare.cid == *cid);
            beside.disks.iter_mut().filter(|disk| disk.vm.as_ref() == Some(cid)).for_each(detached);
        }
        Fact::DiskCreated { disk } => {
            if !state.disks.iter().any(|known| known.cid == disk.cid) {
                state.disks.push(DiskEntry {
                    id: uuid::Uuid::new_v4().to_string(),
                    cid: disk.cid.clone(),
                    size: disk.size,
                    cloud_properties: disk.cloud_properties.clone(),
                    other: Default::default(),
                });
            }
            beside.disks.retain(|known| known.cid != disk.cid);
            beside.disks.push(disk.clone());
        }
        Fact::DiskAttached { disk, vm, hint } => with(&mut beside.disks, disk, |disk| {
            disk.vm = Some(vm.clone());
            disk.hint = hint.clone();
            disk.mounted = false;
        }),
        Fact::DiskMounted { disk } => {
            with(&mut beside.disks, disk, |disk| (disk.mounted, disk.active) = (true, true));
            make_current(state, disk);
        }
        Fact::DiskUnmounted { disk } => with(&mut beside.disks, disk, |disk| disk.mounted = false),
        Fact::DiskResized { disk, size } => {
            with(&mut beside.disks, disk, |disk| disk.size = *size);
            if let Some(known) = state.disks.iter_mut().find(|known| known.cid == *disk) {
                known.size = *size;
            }
        }
        Fact::DiskReplaced { old, new } => {
            with(&mut beside.disks, old, |disk| (disk.mounted, disk.active) = (false, false));
            with(&mut beside.disks, new, |disk| (disk.mounted, disk.active) = (true, true));
            make_current(state, new);
        }
        Fact::DiskDetached { disk } => with(&mut beside.disks, disk, detached),
        // It stays on record until it is deleted, or is the current one again.
        Fact::DiskOrphaned { disk } => with(&mut beside.disks, disk, |disk| disk.active = false),
        Fact::DiskDeleted { disk } => {
            let gone = state.disks.iter().find(|known| known.cid == *disk).map(|known| known.id.clone());
            if gone.is_some_and(|id| id == state.current_disk_id) {
                state.current_disk_id.clear();
            }
            state.disks.retain(|known| known.cid != *disk);
            beside.disks.retain(|known| known.cid != *disk);
        }
        // A run takes no snapshots and adopts no disks, and its one instance is the state file.
        Fact::SnapshotTaken { .. }
        | Fact::SnapshotDeleted { .. }
        | Fact::DiskAdopted { .. }
        | Fact::InstanceRemoved { .. }
        | Fact::Nothing => {}
    }
}

fn make_current(state: &mut crate::state::State, disk: &DiskCid) {
    if let Some(known) = state.disks.iter().find(|known| known.cid == *disk) {
        state.current_disk_id = known.id.clone();
    }
}

fn with(disks: &mut [DiskRecord], cid: &DiskCid, change: impl FnOnce(&mut DiskRecord)) {
    if let Some(disk) = disks.iter_mut().find(|disk| disk.cid == *cid) {
        change(disk);
    }
}

fn detached(disk: &mut DiskRecord) {
    disk.vm = None;
    disk.mounted = false;
    disk.hint = None;
}
