//! Carries out actions on one instance, each by its operation, and remembers what came of them for the next one. What it
//! needs is in the [`Context`], so that a director and a command line without one work alike.

use windlass_contract::DiskCid;
use windlass_contract::agent::DiskAssociation;
use windlass_planning::desired::WatchTime;
use windlass_planning::plan::{ActionKind, DiskSpec, InstanceSpec};
use windlass_planning::records::{DiskRecord, VmRecord};

use super::{
    AttachDisk, Context, CreateVm, DeleteVm, DetachDisk, MigrateDisk, OperationError, ResizeDisk, SetMetadata,
    StartInstance, StepError, StopInstance, SwapVm, run,
};
use crate::ledger::Fact;

/// An instance while actions are carried out on it.
#[derive(Debug)]
pub struct Work {
    /// What everything works with.
    pub context: Context,
    /// What the instance shall be; none for one that goes away.
    pub spec: Option<InstanceSpec>,
    /// How long a start is watched; none to start without waiting until everything runs.
    pub watch: Option<WatchTime>,
    /// Its VM.
    pub vm: Option<VmRecord>,
    /// A VM beside that one, to take its place.
    pub spare: Option<VmRecord>,
    /// Its disks.
    pub disks: Vec<DiskRecord>,
}

/// why an action was not carried out
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// an operation failed
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

impl Work {
    /// Carries out one action.
    pub async fn act(&mut self, what: &ActionKind) -> Result<(), WorkError> {
        let context = self.context.clone();
        match what {
            ActionKind::Stop { drain } => run(&mut StopInstance { context, vm: self.vm()?, drain: *drain }).await?,
            ActionKind::DetachDisk { disk } => {
                let disk = self.disk(disk)?;
                run(&mut DetachDisk { context, vm: self.vm()?, disk }).await?;
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
                let missing = || StepError::Missing(format!("{} has no spare VM", self.context.instance));
                let mut operation = SwapVm { context, old: self.vm()?, new: self.spare.clone().ok_or_else(missing)? };
                run(&mut operation).await?;
                (self.vm, self.spare) = (Some(operation.new), None);
            }
            // Made together with its attachment, so that both are one operation.
            ActionKind::CreateDisk { .. } => {}
            ActionKind::AttachDisk { disk, name } => {
                let (vm, spec) = (self.vm()?, self.disk_spec(name)?);
                let disk = disk.as_ref().map(|cid| self.disk(cid)).transpose()?;
                let mut operation = AttachDisk::new(context, vm, spec, disk, self.named_disks());
                run(&mut operation).await?;
                if let Some(attached) = operation.disk {
                    self.disks.retain(|disk| disk.cid != attached.cid);
                    self.disks.push(attached);
                }
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
                let (vm, spec) = (self.vm()?, self.spec()?.clone());
                run(&mut StartInstance { context, vm, spec, watch: self.watch }).await?;
            }
            ActionKind::RemoveInstance => {
                let fact = Fact::InstanceRemoved { instance: self.context.instance.id.clone() };
                self.context.ledger.record(&fact).await.map_err(StepError::from)?;
            }
        }
        Ok(())
    }

    /// In place where the cloud can, and otherwise by copying.
    async fn resize(&mut self, cid: &DiskCid, name: &str) -> Result<(), WorkError> {
        let (disk, spec) = (self.disk(cid)?, self.disk_spec(name)?);
        if self.context.clouds.resizes_disks(&disk.cpi) {
            let mut operation = ResizeDisk::new(self.context.clone(), self.vm()?, disk, spec, self.named_disks());
            run(&mut operation).await?;
            if operation.refused.is_none() {
                self.disks.retain(|disk| disk.cid != *cid);
                self.disks.push(operation.disk);
                return Ok(());
            }
        }
        self.migrate(cid, name).await
    }

    async fn migrate(&mut self, cid: &DiskCid, name: &str) -> Result<(), WorkError> {
        let (old, spec) = (self.disk(cid)?, self.disk_spec(name)?);
        let mut operation = MigrateDisk::new(self.context.clone(), self.vm()?, old, spec, self.named_disks());
        run(&mut operation).await?;
        self.disks.retain(|disk| disk.cid != *cid);
        self.disks.extend(operation.new);
        Ok(())
    }

    /// Disks with names that the VM has.
    fn named_disks(&self) -> Vec<DiskAssociation> {
        let vm = self.vm.as_ref().map(|vm| &vm.cid);
        let attached = self.disks.iter().filter(|disk| disk.active && vm.is_some() && disk.vm.as_ref() == vm);
        let named = attached.filter(|disk| !disk.name.is_empty());
        named.map(|disk| DiskAssociation { name: disk.name.clone(), cid: disk.cid.to_string() }).collect()
    }

    fn vm(&self) -> Result<VmRecord, StepError> {
        self.vm.clone().ok_or_else(|| StepError::Missing(format!("{} has no VM", self.context.instance)))
    }

    fn disk(&self, cid: &DiskCid) -> Result<DiskRecord, StepError> {
        let found = self.disks.iter().find(|disk| &disk.cid == cid).cloned();
        found.ok_or_else(|| StepError::Missing(format!("{} has no disk {cid}", self.context.instance)))
    }

    fn spec(&self) -> Result<&InstanceSpec, StepError> {
        self.spec.as_ref().ok_or_else(|| StepError::Missing(format!("{} is not wanted", self.context.instance)))
    }

    fn disk_spec(&self, name: &str) -> Result<DiskSpec, StepError> {
        let wanted = self.spec()?.disk(name).cloned();
        wanted.ok_or_else(|| StepError::Missing(format!("{} wants no such disk", self.context.instance)))
    }
}
