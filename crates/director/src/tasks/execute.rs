//! Carries out what a plan says for one instance.

use std::sync::Arc;

use windlass_contract::DiskCid;
use windlass_contract::agent::DiskAssociation;

use super::{TaskError, TaskLog};
use crate::Director;
use crate::desired::{UpdateSettings, WatchTime};
use crate::ledger::{DiskRecord, Fact, Ledger, VmRecord};
use crate::plan::{Action, CurrentInstance, DiskSpec, InstancePlan, InstanceSpec, What};
use crate::steps::{
    self, AttachDisk, Context, CreateVm, DeleteVm, DetachDisk, InstanceIdentity, MigrateDisk, Progress, ResizeDisk,
    SetMetadata, StartInstance, StepError, StopInstance, SwapVm,
};

/// An instance while its plan is carried out.
pub(super) struct Execution<'a> {
    director: &'a Director,
    context: Context,
    spec: Option<&'a InstanceSpec>,
    watch: Option<WatchTime>,
    vm: Option<VmRecord>,
    spare: Option<VmRecord>,
    disks: Vec<DiskRecord>,
}

/// What has to go well, and what may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failures {
    /// The first one ends the work on the instance.
    Stop,
    /// They are noted, and the work goes on.
    Note,
}

impl<'a> Execution<'a> {
    pub(super) fn new(
        director: &'a Director,
        log: &TaskLog,
        progress: Arc<dyn Progress>,
        deployment: &str,
        plan: &'a InstancePlan,
        current: Option<&CurrentInstance>,
    ) -> Self {
        let tags = plan.spec.as_ref().map(|spec| spec.tags.clone()).unwrap_or_default();
        let instance = InstanceIdentity {
            director: director.name.clone(),
            deployment: deployment.to_owned(),
            group: plan.group.clone(),
            index: plan.index,
            id: plan.id.clone(),
            az: plan.az.clone(),
            tags,
        };
        let context = Context {
            ledger: Arc::new(director.store.clone()),
            clouds: director.clouds.clone(),
            agents: director.agents.clone(),
            progress,
            task: Some(log.task()),
            instance: Arc::new(instance),
        };
        Self {
            director,
            context,
            spec: plan.spec.as_ref(),
            watch: Some(UpdateSettings::default().update_watch_time),
            vm: current.and_then(|current| current.vm.clone()),
            spare: current.and_then(|current| current.spare.clone()),
            disks: current.map(|current| current.disks.clone()).unwrap_or_default(),
        }
    }

    /// Watches a start for that long.
    pub(super) fn watching(self, watch: WatchTime) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Starts without waiting until everything runs.
    pub(super) fn without_waiting(self) -> Self {
        Self { watch: None, ..self }
    }

    /// Somebody else listens from now on.
    pub(super) fn report_to(&mut self, progress: Arc<dyn Progress>) {
        self.context.progress = progress;
    }

    /// Carries out actions in their order.
    pub(super) async fn run(&mut self, actions: &[Action], failures: Failures) -> Result<(), Vec<TaskError>> {
        let mut errors = Vec::new();
        for action in actions {
            if let Err(error) = self.act(&action.what).await {
                errors.push(error);
                if failures == Failures::Stop {
                    break;
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    async fn act(&mut self, what: &What) -> Result<(), TaskError> {
        let context = self.context.clone();
        match what {
            What::Stop { drain } => steps::run(&mut StopInstance { context, vm: self.vm()?, drain: *drain }).await?,
            What::DetachDisk { disk } => {
                let disk = self.disk(disk)?;
                steps::run(&mut DetachDisk { context, vm: self.vm()?, disk }).await?;
            }
            What::DeleteVm { vm } => {
                let place = if self.spare.as_ref().is_some_and(|spare| spare.cid == *vm) {
                    &mut self.spare
                } else {
                    &mut self.vm
                };
                if let Some(vm) = place.clone() {
                    steps::run(&mut DeleteVm { context, vm }).await?;
                    *place = None;
                }
            }
            What::CreateVm => {
                let disks = self.disks.iter().filter(|disk| disk.active).map(|disk| disk.cid.clone()).collect();
                let spec = self.spec()?.clone();
                let mut operation = CreateVm { context, spec, disks, vm: self.vm.take(), spare: false };
                let result = steps::run(&mut operation).await;
                self.vm = operation.vm;
                result?;
            }
            What::CreateSpareVm => {
                let spec = self.spec()?.clone();
                let mut operation = CreateVm { context, spec, disks: Vec::new(), vm: self.spare.take(), spare: true };
                let result = steps::run(&mut operation).await;
                self.spare = operation.vm;
                result?;
            }
            What::SwapVm { .. } => {
                let missing = || StepError::Missing(format!("{} has no spare VM", self.context.instance));
                let mut operation = SwapVm { context, old: self.vm()?, new: self.spare.clone().ok_or_else(missing)? };
                steps::run(&mut operation).await?;
                (self.vm, self.spare) = (Some(operation.new), None);
            }
            // Made together with its attachment, so that both are one operation.
            What::CreateDisk { .. } => {}
            What::AttachDisk { disk, name } => {
                let (vm, spec) = (self.vm()?, self.disk_spec(name)?);
                let disk = disk.as_ref().map(|cid| self.disk(cid)).transpose()?;
                let mut operation = AttachDisk::new(context, vm, spec, disk, self.named_disks());
                steps::run(&mut operation).await?;
                if let Some(attached) = operation.disk {
                    self.disks.retain(|disk| disk.cid != attached.cid);
                    self.disks.push(attached);
                }
            }
            What::ResizeDisk { disk, name, .. } => self.resize(disk, name).await?,
            What::MigrateDisk { disk, name, .. } => self.migrate(disk, name).await?,
            What::SetMetadata => {
                let disks = self.disks.iter().filter(|disk| disk.active).cloned().collect();
                steps::run(&mut SetMetadata { context, vm: self.vm()?, disks }).await?;
            }
            What::OrphanDisk { disk } => {
                self.director.store.record(&Fact::DiskOrphaned { disk: disk.clone() }).await?;
                self.disks.retain(|other| &other.cid != disk);
            }
            What::Start => {
                let (vm, spec) = (self.vm()?, self.spec()?.clone());
                steps::run(&mut StartInstance { context, vm, spec, watch: self.watch }).await?;
            }
            What::RemoveInstance => self.director.store.remove_instance(&self.context.instance.id).await?,
        }
        Ok(())
    }

    /// In place where the cloud can, and otherwise by copying.
    async fn resize(&mut self, cid: &DiskCid, name: &str) -> Result<(), TaskError> {
        let (disk, spec) = (self.disk(cid)?, self.disk_spec(name)?);
        if self.context.clouds.resizes_disks(&disk.cpi) {
            let mut operation = ResizeDisk::new(self.context.clone(), self.vm()?, disk, spec, self.named_disks());
            steps::run(&mut operation).await?;
            if operation.refused.is_none() {
                self.disks.retain(|disk| disk.cid != *cid);
                self.disks.push(operation.disk);
                return Ok(());
            }
        }
        self.migrate(cid, name).await
    }

    async fn migrate(&mut self, cid: &DiskCid, name: &str) -> Result<(), TaskError> {
        let (old, spec) = (self.disk(cid)?, self.disk_spec(name)?);
        let mut operation = MigrateDisk::new(self.context.clone(), self.vm()?, old, spec, self.named_disks());
        steps::run(&mut operation).await?;
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
        self.spec.ok_or_else(|| StepError::Missing(format!("{} is not wanted", self.context.instance)))
    }

    fn disk_spec(&self, name: &str) -> Result<DiskSpec, StepError> {
        let wanted = self.spec()?.disk(name).cloned();
        wanted.ok_or_else(|| StepError::Missing(format!("{} wants no such disk", self.context.instance)))
    }
}
