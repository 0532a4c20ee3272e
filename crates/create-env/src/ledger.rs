//! The state file as the ledger of the director's steps: intents go beside it before anything is tried, facts go into it
//! before the intent ends. A run that is killed in between finds the intent again and repeats it, and recording a fact twice
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
    pub fn state_file(&self) -> MutexGuard<'_, StateFile> {
        // A panic while it was held left what is on disk, which is always whole.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and makes it durable.
    pub fn change(&self, change: impl FnOnce(&mut StateFile)) -> Result<(), StateError> {
        unless_lost(&mut self.state_file(), |file| {
            change(file);
            file.save()
        })
    }

    /// Fails unless exactly one intent has this id; then nothing is written.
    fn with_intent(
        &self,
        what: &'static str,
        id: &RequestId,
        change: impl FnOnce(&mut StateFile, usize) -> Result<(), StateError>,
    ) -> Result<(), LedgerError> {
        let mut file = self.state_file();
        let place = place(&file);
        let places: Vec<usize> =
            file.own_state.intents.iter().enumerate().filter(|(_, known)| known.id == *id).map(|(at, _)| at).collect();
        let failed = |source| LedgerError { what, place: place.clone(), source };
        NotOneIntent::unless_one(id, places.len() as u64).map_err(|error| failed(error.into()))?;
        unless_lost(&mut file, |file| change(file, places[0])).map_err(|error| failed(error.into()))
    }
}

/// What could not be made durable is forgotten: an intent of which nobody heard must not be on disk with the next change.
fn unless_lost(
    file: &mut StateFile,
    change: impl FnOnce(&mut StateFile) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let before = (file.state.clone(), file.own_state.clone());
    let result = change(file);
    if result.is_err() {
        (file.state, file.own_state) = before;
    }
    result
}

fn place(file: &StateFile) -> String {
    format!("the state file '{}'", file.path().display())
}

#[async_trait]
impl Ledger for EnvLedger {
    async fn write_intent(&self, intent: &Intent) -> Result<(), LedgerError> {
        let mut file = self.state_file();
        let place = place(&file);
        let failed = |source| LedgerError { what: "write an intent", place, source };
        if file.own_state.intents.iter().any(|known| known.id == intent.id) {
            return Err(failed("another one has its id".into()));
        }
        let written = unless_lost(&mut file, |file| {
            file.own_state.intents.push(intent.clone());
            file.save_own_state()
        });
        written.map_err(|error| failed(error.into()))
    }

    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError> {
        self.with_intent("note the CPI's process", id, |file, at| {
            file.own_state.intents[at].child = Some(child);
            file.save_own_state()
        })
    }

    async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError> {
        match end.outcome() {
            IntentOutcome::Settled(fact) => self.with_intent("settle an intent", end.id(), |file, at| {
                apply(file, fact);
                // Before the intent goes: a run that is killed in between repeats it.
                file.save_state()?;
                file.own_state.intents.remove(at);
                file.save_own_state()
            }),
            IntentOutcome::Abandoned(_) => self.with_intent("end an intent", end.id(), |file, at| {
                file.own_state.intents.remove(at);
                file.save_own_state()
            }),
            IntentOutcome::Doubtful(why) => self.with_intent("note a doubt", end.id(), |file, at| {
                file.own_state.intents[at].doubt = Some(why.to_owned());
                file.save_own_state()
            }),
        }
    }

    async fn record(&self, fact: &Fact) -> Result<(), LedgerError> {
        let place = place(&self.state_file());
        let recorded = self.change(|file| apply(file, fact));
        recorded.map_err(|error| LedgerError { what: "record a fact", place, source: error.into() })
    }

    async fn intents(&self) -> Result<Vec<Intent>, LedgerError> {
        Ok(self.state_file().own_state.intents.clone())
    }
}

/// Puts a fact into the state and into what is beside it.
fn apply(file: &mut StateFile, fact: &Fact) {
    let (state, own) = (&mut file.state, &mut file.own_state);
    match fact {
        Fact::StemcellCreated { stemcell, cid } => {
            let is_it = |known: &&mut StemcellEntry| known.name == stemcell.name && known.version == stemcell.version;
            match state.stemcells.iter_mut().find(is_it) {
                // Made once more, it is the same stemcell with another cid.
                Some(known) => (known.cid, known.api_version) = (cid.clone(), stemcell.api_version),
                None => state.stemcells.push(StemcellEntry {
                    id: uuid::Uuid::new_v4().to_string(),
                    name: stemcell.name.clone(),
                    version: stemcell.version.clone(),
                    api_version: stemcell.api_version,
                    cid: cid.clone(),
                    other: Default::default(),
                }),
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
        Fact::VmCreated { vm } if vm.spare => own.spare = Some(VmRecord { ready: false, ..(**vm).clone() }),
        Fact::VmCreated { vm } => {
            make_vm_current(state, vm);
            own.vm = Some(VmRecord { ready: false, ..(**vm).clone() });
        }
        Fact::VmReady { cid } => {
            let vms = own.vm.iter_mut().chain(own.spare.iter_mut());
            vms.filter(|vm| vm.cid == *cid).for_each(|vm| vm.ready = true);
        }
        Fact::VmSwapped { to, .. } => {
            if let Some(new) = own.spare.take_if(|spare| spare.cid == *to) {
                make_vm_current(state, &new);
                own.vm = Some(VmRecord { spare: false, ..new });
            }
        }
        // Only directors have workers whose VMs they give up, and a state file has no place for such a VM.
        Fact::VmDeleted { cid } | Fact::VmOrphaned { cid } => {
            if state.current_vm_cid == cid.as_str() {
                state.current_vm_cid.clear();
                state.current_stemcell_id.clear();
            }
            if own.vm.as_ref().is_some_and(|vm| vm.cid == *cid) {
                own.vm = None;
            }
            own.spare.take_if(|spare| spare.cid == *cid);
            own.disks.iter_mut().filter(|disk| disk.vm.as_ref() == Some(cid)).for_each(detached);
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
            own.disks.retain(|known| known.cid != disk.cid);
            own.disks.push(disk.clone());
        }
        Fact::DiskAttached { disk, vm, hint } => with(&mut own.disks, disk, |disk| {
            disk.vm = Some(vm.clone());
            disk.hint = hint.clone();
            disk.mounted = false;
        }),
        Fact::DiskMounted { disk } => {
            with(&mut own.disks, disk, |disk| (disk.mounted, disk.active) = (true, true));
            make_current(state, disk);
        }
        Fact::DiskUnmounted { disk } => with(&mut own.disks, disk, |disk| disk.mounted = false),
        Fact::DiskResized { disk, size } => {
            with(&mut own.disks, disk, |disk| disk.size = *size);
            if let Some(known) = state.disks.iter_mut().find(|known| known.cid == *disk) {
                known.size = *size;
            }
        }
        Fact::DiskReplaced { old, new } => {
            with(&mut own.disks, old, |disk| (disk.mounted, disk.active) = (false, false));
            with(&mut own.disks, new, |disk| (disk.mounted, disk.active) = (true, true));
            make_current(state, new);
        }
        Fact::DiskDetached { disk } => with(&mut own.disks, disk, detached),
        // It stays on record until it is deleted, or is the current one again.
        Fact::DiskOrphaned { disk } => with(&mut own.disks, disk, |disk| disk.active = false),
        Fact::DiskDeleted { disk } => {
            let gone = state.disks.iter().find(|known| known.cid == *disk).map(|known| known.id.clone());
            if gone.is_some_and(|id| id == state.current_disk_id) {
                state.current_disk_id.clear();
            }
            state.disks.retain(|known| known.cid != *disk);
            own.disks.retain(|known| known.cid != *disk);
        }
        // A run takes no snapshots and adopts no disks, and its one instance is the state file.
        Fact::SnapshotTaken { .. }
        | Fact::SnapshotDeleted { .. }
        | Fact::DiskAdopted { .. }
        | Fact::InstanceRemoved { .. }
        | Fact::Nothing => {}
    }
}

fn make_vm_current(state: &mut crate::state::State, vm: &VmRecord) {
    state.current_vm_cid = vm.cid.to_string();
    let made_from = |known: &&StemcellEntry| known.name == vm.stemcell.name && known.version == vm.stemcell.version;
    if let Some(stemcell) = state.stemcells.iter().find(made_from) {
        state.current_stemcell_id = stemcell.id.clone();
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use windlass_operations::ledger::{Change, Model};
    use windlass_operations::testing::conformance::{INSTANCES, Subject};
    use windlass_planning::names::CpiName;
    use windlass_planning::records::StemcellRecord;

    use super::*;

    struct OnFile {
        ledger: EnvLedger,
        folder: tempfile::TempDir,
    }

    fn open(path: &Path) -> EnvLedger {
        EnvLedger::new(StateFile::open(path).unwrap())
    }

    fn path(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("state.json")
    }

    async fn on_file() -> OnFile {
        let folder = tempfile::tempdir().unwrap();
        OnFile { ledger: open(&path(&folder)), folder }
    }

    /// What everybody reads says the same as what only we know.
    fn assert_both_files_agree(file: &StateFile) {
        let StateFile { state, own_state: own, .. } = file;
        assert_eq!(state.current_vm_cid, own.vm.as_ref().map(|vm| vm.cid.to_string()).unwrap_or_default());
        let listed: Vec<_> = state.disks.iter().map(|disk| (&disk.cid, disk.size, &disk.cloud_properties)).collect();
        let known: Vec<_> = own.disks.iter().map(|disk| (&disk.cid, disk.size, &disk.cloud_properties)).collect();
        assert_eq!(listed, known);
        if let Some(active) = own.disks.iter().find(|disk| disk.active) {
            assert_eq!(file.current_disk().map(|disk| &disk.cid), Some(&active.cid));
        }
    }

    #[async_trait]
    impl Subject for OnFile {
        fn ledger(&self) -> &dyn Ledger {
            &self.ledger
        }

        async fn records(&self) -> Model {
            let file = self.ledger.state_file();
            assert_both_files_agree(&file);
            let stemcell = |known: &StemcellEntry| StemcellRecord {
                id: 0,
                name: known.name.clone(),
                version: known.version.clone(),
                operating_system: String::new(),
                cpi: CpiName::Default,
                cid: known.cid.clone(),
                api_version: known.api_version,
                deployments: Vec::new(),
            };
            let own = &file.own_state;
            Model {
                stemcells: file.state.stemcells.iter().map(stemcell).collect(),
                vms: own.vm.iter().chain(&own.spare).cloned().collect(),
                disks: own.disks.clone(),
                ..Model::default()
            }
        }

        async fn reopened(self) -> Self {
            drop(self.ledger);
            OnFile { ledger: open(&path(&self.folder)), folder: self.folder }
        }

        fn keeps(mut model: Model) -> Model {
            // BOSH's list of disks has no orphans: a disk that is not the current one is deleted at the end of a run.
            model.disks.append(&mut model.orphan_disks);
            // BOSH's state file knows of one VM; nothing that create-env does puts another in its place, so none is given up.
            model.orphaned_vms.clear();
            // BOSH's list of stemcells has only what is needed to find one again.
            model.stemcells.iter_mut().for_each(|stemcell| stemcell.operating_system.clear());
            // The state file is the one instance.
            model.instances.clear();
            model
        }

        /// One instance with one disk, of which create-env takes no snapshots, and which adopts none.
        fn takes(fact: &Fact) -> bool {
            match fact {
                Fact::VmCreated { vm } => vm.instance == INSTANCES[0],
                Fact::DiskCreated { disk } => disk.instance == INSTANCES[0] && disk.name.is_managed(),
                Fact::DiskAdopted { .. } | Fact::SnapshotTaken { .. } | Fact::InstanceRemoved { .. } => false,
                _ => true,
            }
        }
    }

    windlass_operations::ledger_conformance!(on_file);

    fn reboot() -> Intent {
        let change = Change::RebootVm { cid: windlass_contract::VmCid::new("vm-1").unwrap() };
        let id = RequestId::random();
        Intent {
            id,
            task: None,
            cpi: CpiName::Default,
            stemcell_version: None,
            change,
            child: None,
            elsewhere: None,
            doubt: None,
        }
    }

    /// Otherwise the next change that is written writes it as well, and the next run repeats what nobody ever tried.
    #[tokio::test]
    async fn an_intent_that_could_not_be_written_is_forgotten() {
        let OnFile { ledger, folder } = on_file().await;
        // Nothing can be put in the place of a folder that is not empty.
        let blocked = ledger.state_file().path_with_suffix(".json");
        std::fs::create_dir_all(blocked.join("in the way")).unwrap();
        ledger.write_intent(&reboot()).await.unwrap_err();
        std::fs::remove_dir_all(&blocked).unwrap();
        ledger.record(&Fact::Nothing).await.unwrap();
        drop(ledger);
        assert!(open(&path(&folder)).intents().await.unwrap().is_empty());
    }

    /// A user with several environments sees which one is meant.
    #[tokio::test]
    async fn what_cannot_be_written_names_the_state_file() {
        let OnFile { ledger, folder } = on_file().await;
        let path = path(&folder).display().to_string();
        folder.close().unwrap();
        let child = ProcessIdentity { pid: 1, start_time: 1 };
        for (what, result) in [
            ("note the CPI's process", ledger.note_child(&RequestId::random(), child).await),
            ("record a fact", ledger.record(&Fact::DiskDeleted { disk: DiskCid::new("disk-1").unwrap() }).await),
        ] {
            assert_eq!(result.unwrap_err().to_string(), format!("cannot {what} in the state file '{path}'"));
        }
    }
}
