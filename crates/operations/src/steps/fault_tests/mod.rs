//! Three fault tests for every operation, over a cloud and agents in memory: each call fails, each call of taking back fails
//! as well, and the run is killed at each call. After each, the next run must end as if nothing had failed.
//!
//! A call is one to the cloud, to an agent or to the ledger, so that every step fails at each of its places. What is judged
//! is the [`World`], not our records: they must agree with it.
//!
//! An operation's file ends with one line per [`Scene`] that it is tested in: `fault_tests!(name, Scene::…);`

mod faults;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_contract::{ApiVersion, DiskCid, DiskHint, Object, StemcellCid, VmCid, explain};
use windlass_planning::desired::WatchTime;
use windlass_planning::plan::{ActionKind, DiskSpec, InstanceSpec};
use windlass_planning::records::{DiskRecord, StemcellOfVm};

use super::{Context, InstanceIdentity, InstanceWork, Progress, StepId, WorkError};
use crate::clouds::{Clouds, DrivenCpi};
use crate::ledger::{Change, Fact, Intent, Ledger, Model};
use crate::settle::settle_intents;
use crate::testing::{MemoryLedger, new_vm_record};
use faults::{Fault, Faults, FaultyLedger};
use world::{CloudDisk, Habits, Machine, Resizing, WayToWorld, World};

const INSTANCE: &str = "uuid";
const DATA: &str = "the users' data";

/// Makes the three tests of a scene.
macro_rules! fault_tests {
    ($name:ident, $scene:expr) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports)]
            use crate::steps::fault_tests::{self, Scene};

            #[tokio::test]
            async fn whichever_call_fails_the_next_run_ends_as_if_it_had_not() {
                fault_tests::each_call_fails(&$scene).await;
            }

            #[tokio::test]
            async fn whichever_call_of_taking_back_fails_nothing_is_lost() {
                fault_tests::each_undo_fails(&$scene).await;
            }

            #[tokio::test]
            async fn killed_at_any_call_it_is_run_again() {
                fault_tests::killed_at_each_call(&$scene).await;
            }
        }
    };
}
pub(crate) use fault_tests;

/// What there is before, and what is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    facts: Vec<Fact>,
    /// Disks that have users' data on them.
    data: Vec<&'static str>,
    jobs_run: bool,
    resizing: Vec<Resizing>,
    vm: VmGoal,
    disk: Option<DiskSpec>,
    names_change: bool,
    /// Whether jobs run in the end; none to leave them alone.
    runs: Option<bool>,
    /// Whether what they will run is installed while they run.
    is_prepared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VmGoal {
    Kept,
    WithSpare,
    Swapped,
    Gone,
}

fn vm_cid(cid: &str) -> VmCid {
    VmCid::new(cid).unwrap()
}

fn disk_cid(cid: &str) -> DiskCid {
    DiskCid::new(cid).unwrap()
}

impl Scene {
    /// An instance without anything, which shall have a VM.
    pub(crate) fn without_vm() -> Self {
        Self {
            facts: Vec::new(),
            data: Vec::new(),
            jobs_run: false,
            resizing: vec![Resizing::Grows],
            vm: VmGoal::Kept,
            disk: None,
            names_change: false,
            runs: None,
            is_prepared: false,
        }
    }

    /// An instance with a VM on which nothing runs.
    pub(crate) fn with_vm() -> Self {
        Self::without_vm().with(&[created("vm-1", false), Fact::VmReady { cid: vm_cid("vm-1") }])
    }

    /// With another VM beside it.
    pub(crate) fn with_spare_vm(self) -> Self {
        self.with(&[created("vm-2", true), Fact::VmReady { cid: vm_cid("vm-2") }])
    }

    /// With a disk of 64 MiB that has users' data and is attached to nothing.
    pub(crate) fn with_detached_disk(self, name: &str) -> Self {
        let disk = DiskRecord {
            cid: disk_cid("disk-1"),
            instance: INSTANCE.to_owned(),
            name: name.to_owned(),
            cpi: String::new(),
            size: 64,
            cloud_properties: Object::new(),
            active: true,
            vm: None,
            mounted: false,
            hint: None,
        };
        let mut scene = self.with(&[Fact::DiskAdopted { disk }]);
        scene.data.push("disk-1");
        scene
    }

    /// With a disk of 64 MiB that has users' data.
    pub(crate) fn with_disk(self, name: &str) -> Self {
        let (disk, hint) = (disk_cid("disk-1"), Some(DiskHint::path("/dev/disk-1")));
        let attached = Fact::DiskAttached { disk: disk.clone(), vm: vm_cid("vm-1"), hint };
        self.with_detached_disk(name).with(&[attached, Fact::DiskMounted { disk }])
    }

    fn with(mut self, facts: &[Fact]) -> Self {
        self.facts.extend_from_slice(facts);
        self
    }

    /// Jobs run.
    pub(crate) fn running(self) -> Self {
        Self { jobs_run: true, ..self }
    }

    /// It shall have a disk of this size.
    pub(crate) fn wants_disk(self, name: &str, size: u64) -> Self {
        Self { disk: Some(DiskSpec { name: name.to_owned(), size, cloud_properties: Object::new() }), ..self }
    }

    /// In clouds that resize, that cannot, and that say they did.
    pub(crate) fn in_all_clouds(self) -> Self {
        Self { resizing: vec![Resizing::Grows, Resizing::NotSupported, Resizing::NothingHappens], ..self }
    }

    /// It shall have no VM.
    pub(crate) fn wants_no_vm(self) -> Self {
        Self { vm: VmGoal::Gone, ..self }
    }

    /// It shall have a VM beside its own.
    pub(crate) fn wants_spare_vm(self) -> Self {
        Self { vm: VmGoal::WithSpare, ..self }
    }

    /// The VM beside its own shall take its place.
    pub(crate) fn wants_swap(self) -> Self {
        Self { vm: VmGoal::Swapped, ..self }
    }

    /// It shall have other names in the cloud.
    pub(crate) fn wants_names(self) -> Self {
        Self { names_change: true, ..self }
    }

    /// Its jobs shall run, or rest.
    pub(crate) fn wants_jobs(self, run: bool) -> Self {
        Self { runs: Some(run), ..self }
    }

    /// What it will run is installed before.
    pub(crate) fn prepared(self) -> Self {
        Self { is_prepared: true, ..self }
    }

    fn habits(&self) -> Vec<Habits> {
        let usual = |resizing| Habits { replays: true, restarts_vms: false, resizing };
        let mut all: Vec<Habits> = self.resizing.iter().map(|resizing| usual(*resizing)).collect();
        all.push(Habits { replays: false, ..all[0] });
        all.push(Habits { restarts_vms: true, ..all[0] });
        all
    }

    fn spec(&self) -> InstanceSpec {
        InstanceSpec {
            cpi: String::new(),
            stemcell_cid: StemcellCid::new("stemcell-1").unwrap(),
            stemcell: StemcellOfVm { name: "jammy".into(), version: "1".into(), api_version: Some(ApiVersion(2)) },
            vm_type: None,
            cloud_properties: Object::new(),
            networks: Default::default(),
            disks: self.disk.iter().cloned().collect(),
            env: Object::new(),
            tags: Object::new(),
            software: None,
        }
    }

    /// What the planner gives for one instance with these records, in its order.
    fn plan(&self, model: &Model) -> Vec<ActionKind> {
        let mut actions = Vec::new();
        if self.is_prepared {
            actions.push(ActionKind::Prepare);
        }
        if self.runs == Some(false) {
            actions.push(ActionKind::Stop { drain: true });
        }
        let (vm, spare) = (model.vm_of(INSTANCE, false), model.vm_of(INSTANCE, true));
        match self.vm {
            VmGoal::Gone => actions.extend(vm.map(|vm| ActionKind::DeleteVm { vm: vm.cid.clone() })),
            VmGoal::Kept if vm.is_none_or(|vm| !vm.ready) => actions.push(ActionKind::CreateVm),
            VmGoal::WithSpare if spare.is_none_or(|vm| !vm.ready) => actions.push(ActionKind::CreateSpareVm),
            VmGoal::Swapped => {
                let from = vm.filter(|_| spare.is_some());
                actions.extend(from.map(|vm| ActionKind::SwapVm { from: vm.cid.clone() }));
            }
            _ => {}
        }
        if self.vm == VmGoal::Kept {
            self.plan_disks(model, &mut actions);
        }
        if self.names_change {
            actions.push(ActionKind::SetMetadata);
        }
        if self.runs == Some(true) {
            actions.push(ActionKind::Start);
        }
        actions
    }

    fn plan_disks(&self, model: &Model, actions: &mut Vec<ActionKind>) {
        let vm = model.vm_of(INSTANCE, false).map(|vm| &vm.cid);
        let kept = self.disk.as_ref().and_then(|wanted| {
            let named = || model.disks.iter().filter(|disk| disk.name == wanted.name);
            named().find(|disk| disk.active).or_else(|| named().find(|disk| disk.size == wanted.size))
        });
        for disk in model.disks.iter().filter(|disk| kept.is_none_or(|kept| kept.cid != disk.cid)) {
            if disk.vm.is_some() && disk.vm.as_ref() == vm {
                actions.push(ActionKind::DetachDisk { disk: disk.cid.clone() });
            }
            actions.push(ActionKind::OrphanDisk { disk: disk.cid.clone() });
        }
        let Some(wanted) = &self.disk else { return };
        let name = wanted.name.clone();
        let Some(disk) = kept else {
            actions.push(ActionKind::CreateDisk { name: name.clone(), size: wanted.size });
            actions.push(ActionKind::AttachDisk { disk: None, name });
            return;
        };
        let (cid, from, to) = (disk.cid.clone(), disk.size, wanted.size);
        if !disk.mounted || disk.vm.as_ref() != vm {
            actions.push(ActionKind::AttachDisk { disk: Some(cid.clone()), name: name.clone() });
        }
        match from.cmp(&to) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => actions.push(ActionKind::ResizeDisk { disk: cid, name, from, to }),
            std::cmp::Ordering::Greater => actions.push(ActionKind::MigrateDisk { disk: cid, name, from, to }),
        }
    }
}

fn created(cid: &str, spare: bool) -> Fact {
    Fact::VmCreated { vm: Box::new(new_vm_record(vm_cid(cid), INSTANCE, spare)) }
}

/// A world with our records of it.
#[derive(Debug)]
struct Run<'s> {
    scene: &'s Scene,
    way: WayToWorld,
    ledger: MemoryLedger,
    faults: Faults,
}

/// What there is in the end, without names that a cloud gives.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Spare, ready, off, with running jobs.
    vms: Vec<(bool, bool, bool, bool)>,
    orphaned_vms: usize,
    disks: Vec<DiskOutcome>,
    /// What is on disks that belong to nobody.
    orphaned_data: BTreeSet<&'static str>,
}

#[derive(Debug, PartialEq)]
struct DiskOutcome {
    name: String,
    size_on_record: u64,
    size: u64,
    is_active: bool,
    is_attached: bool,
    is_mounted_on_record: bool,
    is_mounted: bool,
    data: Option<&'static str>,
}

#[derive(Debug)]
struct Nobody;

impl Progress for Nobody {
    fn status(&self, _: StepId) {}
    fn cpi_log(&self, _: &str) {}
    fn warning(&self, _: &str) {}
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl<'s> Run<'s> {
    fn new(scene: &'s Scene, habits: Habits) -> Self {
        let mut model = Model::of_instances([INSTANCE]);
        scene.facts.iter().for_each(|fact| model.apply(fact));
        let mut world = World::new(habits);
        world.new_disks_are_named = scene.disk.as_ref().is_some_and(|disk| !disk.name.is_empty());
        for vm in &model.vms {
            let machine = Machine { jobs_run: scene.jobs_run && !vm.spare, ..Machine::default() };
            world.vms.insert(vm.cid.clone(), machine);
        }
        for disk in &model.disks {
            let data = scene.data.contains(&disk.cid.as_str()).then_some(DATA);
            let known = CloudDisk { size: disk.size, attached: disk.vm.clone(), data };
            world.disks.insert(disk.cid.clone(), known);
            if !disk.name.is_empty() {
                world.named.insert(disk.cid.clone());
            }
            let Some(vm) = disk.vm.as_ref().and_then(|vm| world.vms.get_mut(vm)) else { continue };
            vm.told.insert(disk.cid.clone());
            if disk.name.is_empty() {
                vm.mounted.push(disk.cid.clone());
            }
        }
        Self::of(scene, world, model)
    }

    fn of(scene: &'s Scene, world: World, model: Model) -> Self {
        let faults = Faults::default();
        Self { scene, way: WayToWorld::new(world, faults.clone()), ledger: MemoryLedger::new(model), faults }
    }

    fn faulty_ledger(&self) -> FaultyLedger {
        FaultyLedger { ledger: self.ledger.clone(), faults: self.faults.clone() }
    }

    fn clouds(&self) -> Clouds {
        let names = vec![String::new()];
        Clouds::with_default(DrivenCpi { names, cpi: Arc::new(self.way.clone()), resizes_disks: true })
    }

    fn context(&self) -> Context {
        let instance = InstanceIdentity {
            director: "d".into(),
            deployment: "redis".into(),
            group: "db".into(),
            index: 0,
            id: INSTANCE.into(),
            az: None,
            tags: Object::new(),
        };
        Context {
            ledger: Arc::new(self.faulty_ledger()),
            clouds: self.clouds(),
            agents: Arc::new(self.way.clone()),
            progress: Arc::new(Nobody),
            task: None,
            instance: Arc::new(instance),
            software: None,
        }
    }

    fn work(&self) -> InstanceWork {
        let context = self.context();
        let model = self.ledger.model();
        InstanceWork {
            context,
            spec: Some(self.scene.spec()),
            watch: Some(WatchTime { min: 0, max: 10 }),
            vm: model.vm_of(INSTANCE, false).cloned(),
            spare: model.vm_of(INSTANCE, true).cloned(),
            disks: model.disks,
            mounted_now: BTreeSet::new(),
        }
    }

    /// Plans and does what is planned.
    async fn act(&self) -> Result<(), WorkError> {
        let mut work = self.work();
        for action in self.scene.plan(&self.ledger.model()) {
            work.act(&action).await?;
        }
        Ok(())
    }

    /// As the next start does with what an earlier run left open.
    async fn restart(&self) {
        settle_intents(&self.clouds(), &self.ledger).await.unwrap();
    }

    async fn intents(&self) -> Vec<Intent> {
        self.ledger.intents().await.unwrap()
    }

    /// What must be true whatever failed.
    async fn check(&self, when: &str) {
        let (model, intents, world) = (self.ledger.model(), self.intents().await, self.way.world().clone());
        assert!(world.violations.is_empty(), "{when}: {:?}", world.violations);
        let begun = |is_it: fn(&Change) -> bool| intents.iter().filter(|intent| is_it(&intent.change)).count();
        let unknown_vms = world.vms.keys().filter(|cid| !model.knows_vm(cid)).count();
        let vms_begun = begun(|change| matches!(change, Change::CreateVm { .. }));
        assert!(unknown_vms <= vms_begun, "{when}: {unknown_vms} VMs are unknown\n{world:#?}\n{model:#?}");
        let unknown_disks = world.disks.keys().filter(|cid| !model.knows_disk(cid)).count();
        let disks_begun = begun(|change| matches!(change, Change::CreateDisk { .. }));
        assert!(unknown_disks <= disks_begun, "{when}: {unknown_disks} disks are unknown\n{world:#?}\n{model:#?}");
        for cid in &self.scene.data {
            let data = world.disks.get(&disk_cid(cid)).and_then(|disk| disk.data);
            assert_eq!(data, Some(DATA), "{when}: the data of {cid} is lost");
        }
        let goes =
            |vm: &VmCid| intents.iter().any(|intent| matches!(&intent.change, Change::DeleteVm { cid } if cid == vm));
        for vm in model.vms.iter().chain(&model.orphaned_vms).filter(|vm| !goes(&vm.cid)) {
            assert!(world.vms.contains_key(&vm.cid), "{when}: {} is on record and nowhere else", vm.cid);
        }
        let moves = |disk: &DiskCid| {
            let is_about = |change: &Change| match change {
                Change::AttachDisk { disk: moved, .. } | Change::DetachDisk { disk: moved, .. } => moved == disk,
                _ => false,
            };
            intents.iter().any(|intent| is_about(&intent.change))
        };
        for disk in model.disks.iter().chain(&model.orphan_disks) {
            let cid = &disk.cid;
            let known = world.disks.get(cid).unwrap_or_else(|| panic!("{when}: {cid} is on record and nowhere else"));
            if moves(cid) || disk.vm.as_ref().is_some_and(goes) {
                continue;
            }
            assert_eq!(disk.vm, known.attached, "{when}: where {cid} is attached\n{world:#?}\n{intents:#?}");
            let Some(vm) = &disk.vm else { continue };
            if disk.mounted && disk.name.is_empty() {
                assert!(world.vms[vm].mounted.contains(cid), "{when}: {cid} is mounted on record and nowhere else");
            }
        }
        self.check_start(&model, &world, when).await;
    }

    /// Somebody who starts the instance as it is now, in a copy of the world, gets an error or the disk.
    async fn check_start(&self, model: &Model, world: &World, when: &str) {
        if model.vm_of(INSTANCE, false).is_none_or(|vm| !vm.ready) {
            return;
        }
        let copy = Run::of(self.scene, world.clone(), model.clone());
        let _ = copy.work().act(&ActionKind::Start).await;
        let violations = copy.way.world().violations.clone();
        assert!(violations.is_empty(), "{when}, and started then: {violations:?}");
    }

    fn outcome(&self) -> Outcome {
        let (model, world) = (self.ledger.model().sorted(), self.way.world().clone());
        let vm = |vm: &windlass_planning::records::VmRecord| {
            let machine = &world.vms[&vm.cid];
            (vm.spare, vm.ready, machine.is_off, machine.jobs_run)
        };
        let disk = |disk: &DiskRecord| {
            let known = &world.disks[&disk.cid];
            DiskOutcome {
                name: disk.name.clone(),
                size_on_record: disk.size,
                size: known.size,
                is_active: disk.active,
                is_attached: disk.vm.is_some() && disk.vm == known.attached,
                is_mounted_on_record: disk.mounted,
                is_mounted: world.vms.values().any(|vm| vm.mounted.contains(&disk.cid)),
                data: known.data,
            }
        };
        let orphaned_data = model.orphan_disks.iter().filter_map(|disk| world.disks[&disk.cid].data);
        Outcome {
            vms: model.vms.iter().map(vm).collect(),
            orphaned_vms: model.orphaned_vms.len(),
            disks: model.disks.iter().map(disk).collect(),
            orphaned_data: orphaned_data.collect(),
        }
    }

    /// The next run ends as if nothing had failed.
    async fn check_next_run(&self, expected: &Outcome, when: &str) {
        self.faults.plan(&[]);
        if self.intents().await.iter().any(|intent| intent.doubt.is_none()) {
            self.restart().await;
            self.check(&format!("{when}, after a restart")).await;
        }
        if let Err(error) = self.act().await {
            panic!("{when}, the next run failed: {}\n{:#?}", explain(&error), self.way.world());
        }
        self.check(&format!("{when}, after the next run")).await;
        assert_eq!(self.outcome(), *expected, "{when}, after the next run\n{:#?}", self.way.world());
    }
}

/// The context of an instance that has nothing, in a world in which nothing fails.
pub(super) fn context() -> Context {
    let (scene, habits) =
        (Scene::without_vm(), Habits { replays: true, restarts_vms: false, resizing: Resizing::Grows });
    Run::new(&scene, habits).context()
}

/// What a run comes to in which nothing fails.
async fn undisturbed(scene: &Scene, habits: Habits) -> Outcome {
    let run = Run::new(scene, habits);
    run.check("before").await;
    run.act().await.unwrap();
    run.check("undisturbed").await;
    let outcome = run.outcome();
    run.check_next_run(&outcome, "undisturbed").await;
    outcome
}

fn told(result: &Result<(), WorkError>) -> String {
    result.as_ref().map_or_else(|error| explain(error), |()| "no error".to_owned())
}

pub(crate) async fn each_call_fails(scene: &Scene) {
    for habits in scene.habits() {
        let expected = undisturbed(scene, habits).await;
        for fault in [Fault::Refused, Fault::Lost] {
            for call in 1.. {
                let run = Run::new(scene, habits);
                run.faults.plan(&[(call, fault)]);
                let result = run.act().await;
                if run.faults.calls() < call {
                    assert!(call > 1, "nothing was called");
                    break;
                }
                let when = format!("{habits:?}, call {call} {fault:?} ({})", told(&result));
                run.check(&when).await;
                run.check_next_run(&expected, &when).await;
            }
        }
    }
}

pub(crate) async fn each_undo_fails(scene: &Scene) {
    for habits in scene.habits() {
        let expected = undisturbed(scene, habits).await;
        let mut pairs = vec![(Fault::Refused, Fault::Refused), (Fault::Lost, Fault::Refused)];
        // The clouds differ in what they do, not in how their answers get lost: once is enough.
        if habits == scene.habits()[0] {
            pairs.push((Fault::Refused, Fault::Lost));
        }
        for faults in pairs {
            for first in 1.. {
                for second in first + 1.. {
                    let run = Run::new(scene, habits);
                    run.faults.plan(&[(first, faults.0), (second, faults.1)]);
                    let result = run.act().await;
                    if run.faults.calls() < second {
                        break;
                    }
                    let when = format!("{habits:?}, calls {first} and {second} {faults:?} ({})", told(&result));
                    run.check(&when).await;
                    run.check_next_run(&expected, &when).await;
                }
                let run = Run::new(scene, habits);
                let _ = run.act().await;
                if run.faults.calls() <= first {
                    break;
                }
            }
        }
    }
}

pub(crate) async fn killed_at_each_call(scene: &Scene) {
    for habits in scene.habits() {
        let expected = undisturbed(scene, habits).await;
        for call in 1.. {
            let run = Run::new(scene, habits);
            run.faults.kill_at(call);
            let result = run.act().await;
            if run.faults.calls() < call {
                break;
            }
            let when = format!("{habits:?}, killed at call {call} ({})", told(&result));
            run.check(&when).await;
            run.check_next_run(&expected, &when).await;
        }
    }
}
