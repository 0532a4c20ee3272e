//! Carries out actions on one instance, each by its operation, and remembers what came of them for the next one. What it
//! needs is in the [`Context`], so that a director and a command line without one work alike.

use std::collections::BTreeSet;

use windlass_contract::{DiskCid, Object, VmCid};
use windlass_planning::desired::WatchTime;
use windlass_planning::names::DiskName;
use windlass_planning::plan::{ActionKind, DiskSpec, InstanceSpec, NextStates};
use windlass_planning::records::{DiskRecord, VmRecord};

use super::{
    AttachDisk, Context, CreateDisk, CreateVm, DeleteVm, DetachDisk, MigrateDisk, OperationError, PrepareInstance,
    ResizeDisk, SetMetadata, StartInstance, StepError, StopInstance, SwapVm, run,
};
use crate::ledger::Fact;

/// An instance while actions are carried out on it.
#[derive(Debug)]
pub struct InstanceWork {
    /// What everything works with.
    pub context: Context,
    /// What the instance is to become; none for one that goes away.
    pub spec: Option<InstanceSpec>,
    /// How long a start is watched; none to start without waiting until everything runs.
    pub watch: Option<WatchTime>,
    pub vm: Option<VmRecord>,
    /// A VM beside that one, to take its place.
    pub spare: Option<VmRecord>,
    pub disks: Vec<DiskRecord>,
    /// Disks that this work mounted itself, so that nobody has to look.
    pub mounted_now: BTreeSet<DiskCid>,
    /// What becomes of it when it is stopped; none where its scripts are not told.
    pub next: Option<NextStates>,
    /// Whether a start leaves the agent's spec as it is.
    pub keeps_spec: bool,
    /// The spec that its agent prepared, and the VM of that agent.
    pub prepared: Option<(VmCid, Object)>,
}

/// why an action was not carried out
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    #[error(transparent)]
    Operation(Box<OperationError>),
    /// a step outside of an operation failed
    #[error(transparent)]
    Step(#[from] StepError),
}

impl From<OperationError> for WorkError {
    fn from(error: OperationError) -> Self {
        Self::Operation(Box::new(error))
    }
}

impl InstanceWork {
    /// Carries out one action.
    pub async fn act(&mut self, what: &ActionKind) -> Result<(), WorkError> {
        let context = self.context.clone();
        match what {
            ActionKind::Prepare => self.prepare(self.vm()?).await?,
            ActionKind::Stop { drain } => {
                let (next, next_spec) = self.after_stop()?;
                run(&mut StopInstance { context, vm: self.vm()?, drain: *drain, next, next_spec }).await?;
            }
            ActionKind::DetachDisk { disk } => {
                let disk = self.disk(disk)?;
                let (vm, remaining) = (self.vm()?, self.remaining_disk(&disk.cid));
                run(&mut DetachDisk { context, vm, disk, remaining }).await?;
            }
            ActionKind::DeleteVm { vm } => {
                let place = if self.spare.as_ref().is_some_and(|spare| spare.cid == *vm) {
                    &mut self.spare
                } else {
                    &mut self.vm
                };
                if let Some(vm) = place.clone() {
                    run(&mut DeleteVm { context, vm }).await?;
                    *place = None;
                }
            }
            ActionKind::CreateVm => {
                let disks = self.disks.iter().filter(|disk| disk.active).map(|disk| disk.cid.clone()).collect();
                let spec = self.spec()?.clone();
                let mut operation = CreateVm { context, spec, disks, vm: self.vm.take(), spare: false };
                let result = run(&mut operation).await;
                self.vm = operation.vm;
                result?;
            }
            ActionKind::CreateSpareVm => {
                let spec = self.spec()?.clone();
                let mut operation = CreateVm { context, spec, disks: Vec::new(), vm: self.spare.take(), spare: true };
                let result = run(&mut operation).await;
                self.spare = operation.vm;
                result?;
            }
            ActionKind::SwapVm { .. } => {
                let spare = self.spare.clone().ok_or_else(|| self.context.not_on_record("spare VM"))?;
                let mut operation = SwapVm { context, old: self.vm()?, new: spare };
                run(&mut operation).await?;
                (self.vm, self.spare) = (Some(operation.new), None);
            }
            ActionKind::CreateDisk { name, .. } => {
                let (vm, spec) = (self.vm()?, self.disk_spec(name)?);
                let mut operation = CreateDisk { context, vm, spec, disk: None };
                run(&mut operation).await?;
                self.disks.extend(operation.disk);
            }
            ActionKind::AttachDisk { disk, name } => {
                let (vm, spec) = (self.vm()?, self.disk_spec(name)?);
                let disk = match disk {
                    Some(cid) => self.disk(cid)?,
                    None => self.new_disk(&spec)?,
                };
                let mut operation = AttachDisk::new(context, vm, spec, Some(disk), self.named_disks());
                run(&mut operation).await?;
                self.took(operation.disk);
            }
            ActionKind::ResizeDisk { disk, name, .. } => self.resize(disk, name).await?,
            ActionKind::MigrateDisk { disk, name, .. } => self.migrate(disk, name).await?,
            ActionKind::SetMetadata => {
                let disks = self.disks.iter().filter(|disk| disk.active).cloned().collect();
                run(&mut SetMetadata { context, vm: self.vm()?, disks }).await?;
            }
            ActionKind::OrphanDisk { disk } => {
                let fact = Fact::DiskOrphaned { disk: disk.clone() };
                self.context.ledger.record(&fact).await.map_err(StepError::from)?;
                self.disks.retain(|other| &other.cid != disk);
            }
            ActionKind::Start => {
                let (vm, spec, disk) = (self.vm()?, self.spec()?.clone(), self.disk_to_check()?);
                let prepared = self.prepared.clone().filter(|(on, _)| *on == vm.cid).map(|(_, spec)| spec);
                let keeps_spec = self.keeps_spec;
                run(&mut StartInstance { context, vm, spec, prepared, keeps_spec, disk, watch: self.watch }).await?;
            }
            ActionKind::RemoveInstance => {
                let fact = Fact::InstanceRemoved { instance: self.context.instance.id.clone() };
                self.context.ledger.record(&fact).await.map_err(StepError::from)?;
            }
        }
        Ok(())
    }

    /// Has the VM beside the instance's install what it will run when it has taken the other's place.
    pub async fn prepare_spare(&mut self) -> Result<(), WorkError> {
        let spare = self.spare.clone().ok_or_else(|| self.context.not_on_record("spare VM"))?;
        self.prepare(spare).await
    }

    async fn prepare(&mut self, vm: VmRecord) -> Result<(), WorkError> {
        let (context, spec) = (self.context.clone(), self.spec()?.clone());
        let mut operation = PrepareInstance { context, vm, spec, told: None };
        run(&mut operation).await?;
        self.prepared = operation.told.map(|told| (operation.vm.cid, told));
        Ok(())
    }

    /// What its scripts are told of its future. Jobs are not rendered for that: without a preparation they are not updated, and
    /// a stop is no occasion to fail because of templates.
    fn after_stop(&self) -> Result<(Option<NextStates>, Option<Object>), StepError> {
        let (Some(mut next), Some(spec)) = (self.next, &self.spec) else { return Ok((self.next, None)) };
        if next.instance_goes {
            return Ok((Some(next), None));
        }
        next.is_update &= self.prepared.is_some() || spec.software.is_none();
        let plain = || Ok::<_, StepError>(self.context.plain_spec(&self.vm()?, spec));
        let prepared = self.prepared.clone().map(|(_, spec)| spec);
        Ok((Some(next), Some(prepared.map_or_else(plain, Ok)?)))
    }

    /// In place where the cloud can, and otherwise by copying.
    async fn resize(&mut self, cid: &DiskCid, name: &DiskName) -> Result<(), WorkError> {
        let (disk, spec) = (self.disk(cid)?, self.disk_spec(name)?);
        if self.context.clouds.resizes_disks(&disk.cpi) {
            let mut operation = ResizeDisk::new(self.context.clone(), self.vm()?, disk, spec, self.named_disks());
            run(&mut operation).await?;
            if operation.refused.is_none() {
                self.took(Some(operation.disk));
                return Ok(());
            }
        }
        self.migrate(cid, name).await
    }

    async fn migrate(&mut self, cid: &DiskCid, name: &DiskName) -> Result<(), WorkError> {
        let (old, spec) = (self.disk(cid)?, self.disk_spec(name)?);
        let mut operation = MigrateDisk::new(self.context.clone(), self.vm()?, old, spec, self.named_disks());
        run(&mut operation).await?;
        self.disks.retain(|disk| disk.cid != *cid);
        self.took(operation.new);
        Ok(())
    }

    /// The disk is attached, and mounted if it has no name.
    fn took(&mut self, disk: Option<DiskRecord>) {
        let Some(disk) = disk else { return };
        self.disks.retain(|other| other.cid != disk.cid);
        self.mounted_now.insert(disk.cid.clone());
        self.disks.push(disk);
    }

    /// The disk that was made for this spec and is attached to nothing yet.
    fn new_disk(&self, spec: &DiskSpec) -> Result<DiskRecord, StepError> {
        let is_it = |disk: &&DiskRecord| {
            !disk.active
                && (&disk.name, disk.size, &disk.cloud_properties) == (&spec.name, spec.size, &spec.cloud_properties)
        };
        let found = self.disks.iter().find(is_it).cloned();
        found.ok_or_else(|| self.context.not_on_record(format!("new disk of {}", spec.size)))
    }

    /// The disk that jobs write to, if somebody has to look whether they see it. An instance that should have one does not
    /// start without it.
    fn disk_to_check(&self) -> Result<Option<DiskRecord>, StepError> {
        let vm = self.vm()?;
        match self.disks.iter().find(|disk| disk.active && disk.name.is_managed()) {
            None if self.spec()?.managed_disk().is_none() => Ok(None),
            Some(disk) if disk.vm.as_ref() == Some(&vm.cid) => {
                Ok((!self.mounted_now.contains(&disk.cid)).then(|| disk.clone()))
            }
            _ => Err(StepError::NoDiskInUse { instance: self.context.instance.to_string(), vm: vm.cid }),
        }
    }

    /// The disk that stays mounted when another one goes.
    fn remaining_disk(&self, goes: &DiskCid) -> Option<DiskRecord> {
        let vm = self.vm.as_ref().map(|vm| &vm.cid);
        let stays = |disk: &&DiskRecord| {
            disk.active && disk.name.is_managed() && disk.cid != *goes && vm.is_some() && disk.vm.as_ref() == vm
        };
        self.disks.iter().find(stays).cloned()
    }

    /// Disks with names that the VM has.
    fn named_disks(&self) -> Vec<DiskRecord> {
        let vm = self.vm.as_ref().map(|vm| &vm.cid);
        let attached = self.disks.iter().filter(|disk| disk.active && vm.is_some() && disk.vm.as_ref() == vm);
        attached.filter(|disk| !disk.name.is_managed()).cloned().collect()
    }

    fn vm(&self) -> Result<VmRecord, StepError> {
        self.vm.clone().ok_or_else(|| self.context.not_on_record("VM"))
    }

    fn disk(&self, cid: &DiskCid) -> Result<DiskRecord, StepError> {
        let found = self.disks.iter().find(|disk| &disk.cid == cid).cloned();
        found.ok_or_else(|| self.context.not_on_record(format!("disk {cid}")))
    }

    fn spec(&self) -> Result<&InstanceSpec, StepError> {
        self.spec.as_ref().ok_or_else(|| self.not_wanted("VM"))
    }

    fn disk_spec(&self, name: &DiskName) -> Result<DiskSpec, StepError> {
        let wanted = self.spec()?.disk(name).cloned();
        wanted.ok_or_else(|| self.not_wanted(if name.is_managed() { "disk" } else { name.as_str() }))
    }

    fn not_wanted(&self, what: &str) -> StepError {
        StepError::NotWanted { instance: self.context.instance.to_string(), what: what.to_owned() }
    }
}
