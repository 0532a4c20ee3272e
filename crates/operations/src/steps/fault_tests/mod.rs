//! Three fault tests for every operation, over a cloud and agents in memory: each call fails, each call of taking back fails
//! as well, and the run is killed at each call. After each, the next run must end as if nothing had failed.
//!
//! A call is one to the cloud, to an agent or to the ledger, so that every step fails at each of its places. What is judged
//! is the [`World`], not our records: they must agree with it.
//!
//! An operation's file ends with one line per [`Scene`] that it is tested in: `fault_tests!(name, Scene::…);`

mod agent;
mod faults;
mod scene;
mod transfers;
mod world;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_contract::{DiskCid, MiB, Object, RequestId, VmCid, explain};
use windlass_planning::desired::WatchTime;
use windlass_planning::names::{CpiName, DiskName};
use windlass_planning::plan::ActionKind;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::{
    CompilePackage, Context, Dependency, InstanceIdentity, InstanceWork, OperationError, Progress, StepId, WorkError,
};
use crate::clouds::{Clouds, DrivenCpi};
use crate::ledger::{Change, Fact, Intent, Ledger, Model};
use crate::settle::settle_intents;
use crate::testing::MemoryLedger;
pub(crate) use scene::Scene;

use agent::{COMPILED_SHA1, NEEDED, SOURCE};
use faults::{Fault, Faults, FaultyLedger};
use scene::disk_cid;
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

/// A world with our records of it.
#[derive(Debug)]
struct Run<'s> {
    scene: &'s Scene,
    way: WayToWorld,
    ledger: MemoryLedger,
    faults: Faults,
    /// The files that are sent to agents and fetched from them, where there are any.
    files: Option<tempfile::TempDir>,
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
    /// What the compiled package has.
    compiled: Option<String>,
}

#[derive(Debug, PartialEq)]
struct DiskOutcome {
    name: DiskName,
    size_on_record: MiB,
    size: MiB,
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
        world.new_disks_are_named = scene.disk.as_ref().is_some_and(|disk| !disk.name.is_managed());
        for vm in &model.vms {
            let machine = Machine { jobs_run: scene.jobs_run && !vm.spare, ..Machine::default() };
            world.vms.insert(vm.cid.clone(), machine);
        }
        for disk in &model.disks {
            let data = scene.data.contains(&disk.cid.as_str()).then_some(DATA);
            let known = CloudDisk { size: disk.size, attached: disk.vm.clone(), data };
            world.disks.insert(disk.cid.clone(), known);
            if !disk.name.is_managed() {
                world.named.insert(disk.cid.clone());
            }
            let Some(vm) = disk.vm.as_ref().and_then(|vm| world.vms.get_mut(vm)) else { continue };
            vm.told.insert(disk.cid.clone());
            if disk.name.is_managed() {
                vm.mounted.push(disk.cid.clone());
            }
        }
        Self::of(scene, world, model)
    }

    fn of(scene: &'s Scene, world: World, model: Model) -> Self {
        let faults = Faults::default();
        let files = scene.compiles.then(|| tempfile::tempdir().unwrap());
        Self { scene, way: WayToWorld::new(world, faults.clone()), ledger: MemoryLedger::new(model), faults, files }
    }

    fn faulty_ledger(&self) -> FaultyLedger {
        FaultyLedger { ledger: self.ledger.clone(), faults: self.faults.clone() }
    }

    fn clouds(&self) -> Clouds {
        let names = vec![CpiName::Default];
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
            vm: model.vm_of(&INSTANCE.into(), false).cloned(),
            spare: model.vm_of(&INSTANCE.into(), true).cloned(),
            disks: model.disks,
            mounted_now: BTreeSet::new(),
            next: Some(Default::default()),
            keeps_spec: false,
            prepared: None,
        }
    }

    /// Plans and does what is planned.
    async fn act(&self) -> Result<(), WorkError> {
        let mut work = self.work();
        for action in self.scene.plan(&self.ledger.model()) {
            work.act(&action).await?;
        }
        if self.scene.compiles {
            self.compile(work.vm.unwrap()).await?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.files.as_ref()?.path().join(name))
    }

    async fn compile(&self, vm: VmRecord) -> Result<(), OperationError> {
        let file = |name: &str| self.file(name).unwrap();
        for (name, content) in [("source", SOURCE), ("needed", NEEDED)] {
            std::fs::write(file(name), content).unwrap();
        }
        let needed = Dependency {
            name: "lib".into(),
            version: "1".into(),
            digest: "sha1-of-lib".into(),
            blob: "blob-of-lib".into(),
            path: file("needed"),
        };
        let compilation = CompilePackage {
            context: self.context(),
            vm,
            name: "app".into(),
            version: "2".into(),
            source: ("sha1-of-app".into(), file("source")),
            dependencies: vec![needed],
            into: file("compiled"),
            compiled: None,
        };
        let digest = compilation.run().await?;
        assert_eq!(digest, COMPILED_SHA1);
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
            if disk.mounted && disk.name.is_managed() {
                assert!(world.vms[vm].mounted.contains(cid), "{when}: {cid} is mounted on record and nowhere else");
            }
        }
        self.check_start(&model, &world, when).await;
    }

    /// Somebody who starts the instance as it is now, in a copy of the world, gets an error or the disk.
    async fn check_start(&self, model: &Model, world: &World, when: &str) {
        if model.vm_of(&INSTANCE.into(), false).is_none_or(|vm| !vm.ready) {
            return;
        }
        let copy = Run::of(self.scene, world.clone(), model.clone());
        let _ = copy.work().act(&ActionKind::Start).await;
        let violations = copy.way.world().violations.clone();
        assert!(violations.is_empty(), "{when}, and started then: {violations:?}");
    }

    fn outcome(&self) -> Outcome {
        let (model, world) = (self.ledger.model().sorted(), self.way.world().clone());
        let vm = |vm: &VmRecord| {
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
            compiled: self.file("compiled").and_then(|path| std::fs::read_to_string(path).ok()),
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

#[tokio::test]
async fn the_end_of_an_intent_that_was_written_and_whose_answer_was_lost_is_no_failure() {
    let ledger = FaultyLedger { ledger: MemoryLedger::default(), faults: Faults::default() };
    let ledger_of_all: &dyn Ledger = &ledger;
    for is_done in [true, false] {
        let change = Change::RebootVm { cid: VmCid::new("vm-1").unwrap() };
        let (id, cpi) = (RequestId::random(), CpiName::Default);
        let intent =
            Intent { id, task: None, cpi, stemcell_version: None, change, child: None, elsewhere: None, doubt: None };
        let open = ledger_of_all.open_intent(intent).await.unwrap();
        ledger.faults.plan(&[(1, Fault::Lost)]);
        match is_done {
            true => open.settle(&Fact::Nothing).await.unwrap(),
            false => open.abandon("the cloud refused").await.unwrap(),
        }
        assert_eq!((ledger.faults.calls(), ledger.intents().await.unwrap().len()), (2, 0));
    }
}

/// A new operation without them would be one that nobody knows to survive anything.
#[test]
fn every_operation_has_its_fault_tests() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/steps");
    let mut operations = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_code = path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs");
        let text = if is_code { std::fs::read_to_string(&path).unwrap() } else { continue };
        if text.contains("impl Operation for") {
            assert!(text.contains("fault_tests!("), "{} has no fault_tests!", path.display());
            operations += 1;
        }
    }
    assert!(operations >= 13, "{operations}");
}
