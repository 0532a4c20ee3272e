//! What a fault test begins with and leads to.

use windlass_contract::{ApiVersion, DiskCid, DiskHint, MiB, Object, StemcellCid, VmCid};
use windlass_planning::names::CpiName;
use windlass_planning::plan::{ActionKind, DiskSpec, InstanceSpec};
use windlass_planning::records::{DiskRecord, StemcellOfVm};

use super::INSTANCE;
use super::world::{Habits, Resizing};
use crate::ledger::{Fact, Model};
use crate::testing::new_vm_record;

/// What there is before, and what is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(super) facts: Vec<Fact>,
    /// Disks that have users' data on them.
    pub(super) data: Vec<&'static str>,
    pub(super) jobs_run: bool,
    resizing: Vec<Resizing>,
    vm: VmGoal,
    pub(super) disk: Option<DiskSpec>,
    names_change: bool,
    /// Whether jobs run in the end; none to leave them alone.
    runs: Option<bool>,
    /// Whether what they will run is installed while they run.
    is_prepared: bool,
    /// Whether a package is compiled on its VM.
    pub(super) compiles: bool,
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

pub(super) fn disk_cid(cid: &str) -> DiskCid {
    DiskCid::new(cid).unwrap()
}

impl Scene {
    /// An instance without anything, which is to get a VM.
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
            compiles: false,
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
            instance: INSTANCE.into(),
            name: name.into(),
            cpi: CpiName::Default,
            size: MiB(64),
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

    pub(crate) fn running(self) -> Self {
        Self { jobs_run: true, ..self }
    }

    /// It is to have a disk of this size.
    pub(crate) fn wants_disk(self, name: &str, size: u64) -> Self {
        Self { disk: Some(DiskSpec { name: name.into(), size: MiB(size), cloud_properties: Object::new() }), ..self }
    }

    /// In clouds that resize, that cannot, and that say they did.
    pub(crate) fn in_all_clouds(self) -> Self {
        Self { resizing: vec![Resizing::Grows, Resizing::NotSupported, Resizing::NothingHappens], ..self }
    }

    /// It is to have no VM.
    pub(crate) fn wants_no_vm(self) -> Self {
        Self { vm: VmGoal::Gone, ..self }
    }

    /// It is to get a second VM beside its own.
    pub(crate) fn wants_spare_vm(self) -> Self {
        Self { vm: VmGoal::WithSpare, ..self }
    }

    /// The second VM is to take the place of its own.
    pub(crate) fn wants_swap(self) -> Self {
        Self { vm: VmGoal::Swapped, ..self }
    }

    /// It is to have other names in the cloud.
    pub(crate) fn wants_names(self) -> Self {
        Self { names_change: true, ..self }
    }

    /// Its jobs are to run, or to be stopped.
    pub(crate) fn wants_jobs(self, run: bool) -> Self {
        Self { runs: Some(run), ..self }
    }

    /// What it will run is installed before.
    pub(crate) fn prepared(self) -> Self {
        Self { is_prepared: true, ..self }
    }

    /// A package that needs another one is compiled on its VM.
    pub(crate) fn compiling(self) -> Self {
        Self { compiles: true, ..self }
    }

    pub(super) fn habits(&self) -> Vec<Habits> {
        let usual = |resizing| Habits { replays: true, restarts_vms: false, resizing };
        let mut all: Vec<Habits> = self.resizing.iter().map(|resizing| usual(*resizing)).collect();
        all.push(Habits { replays: false, ..all[0] });
        all.push(Habits { restarts_vms: true, ..all[0] });
        all
    }

    pub(super) fn spec(&self) -> InstanceSpec {
        InstanceSpec {
            cpi: CpiName::Default,
            stemcell_cid: StemcellCid::new("stemcell-1").unwrap(),
            stemcell: StemcellOfVm { name: "jammy".into(), version: "1".into(), api_version: Some(ApiVersion(2)) },
            vm_type: None,
            cloud_properties: Object::new(),
            networks: Default::default(),
            disks: self.disk.iter().cloned().collect(),
            env: Object::new(),
            env_values: None,
            tags: Object::new(),
            variables: None,
            dns_address: None,
            software: None,
        }
    }

    /// What the planner gives for one instance with these records, in its order.
    pub(super) fn plan(&self, model: &Model) -> Vec<ActionKind> {
        let mut actions = Vec::new();
        if self.is_prepared {
            actions.push(ActionKind::Prepare);
        }
        if self.runs == Some(false) {
            actions.push(ActionKind::Stop { drain: true });
        }
        let (vm, spare) = (model.vm_of(&INSTANCE.into(), false), model.vm_of(&INSTANCE.into(), true));
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
        let vm = model.vm_of(&INSTANCE.into(), false).map(|vm| &vm.cid);
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
    Fact::VmCreated { vm: Box::new(new_vm_record(vm_cid(cid), &INSTANCE.into(), spare)) }
}
