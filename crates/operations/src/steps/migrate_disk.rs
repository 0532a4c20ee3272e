//! Puts a new disk in the place of an attached one, with a copy of its data. The old one becomes an orphan and keeps its data.
//!
//! A disk that has a name is none that the agent mounts, so nobody can copy it: the new one is empty, and a warning says so.

use windlass_planning::plan::DiskSpec;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{AttachDisk, Context, DetachDisk, Operation, StepError, run};
use crate::ledger::Fact;

/// A disk to be replaced.
#[derive(Debug)]
pub struct MigrateDisk {
    /// What everything works with.
    pub context: Context,
    /// The VM that it is attached to.
    pub vm: VmRecord,
    /// The disk that goes.
    pub old: DiskRecord,
    /// What the new disk is to be.
    pub spec: DiskSpec,
    /// The new one, once it is attached.
    pub new: Option<DiskRecord>,
    /// Other disks of the VM that have names.
    pub named: Vec<DiskRecord>,
    /// Whether the new one is the instance's disk now.
    pub took_over: bool,
}

steps! { MigrateDisk:
    // An earlier try may have ended with the new disk in its place, and the new disk is gone again. One that fails may have
    // left nothing in its place, and jobs would write beside the disk.
    MountOldDisk => mount_old, undo mount_old_again, unless MigrateDisk::has_name;
    AttachNewDisk => attach_new, undo detach_new;
    MigrateDisk => migrate;
    RecordNewDisk => take_over;
    DetachOldDisk => detach_old;
    OrphanOldDisk => orphan_old;
}

impl Operation for MigrateDisk {
    const NAME: &'static str = "migrating the disk";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

impl MigrateDisk {
    /// Puts a disk like `spec` in the place of `old`.
    pub fn new(context: Context, vm: VmRecord, old: DiskRecord, spec: DiskSpec, named: Vec<DiskRecord>) -> Self {
        Self { context, vm, old, spec, new: None, named, took_over: false }
    }

    fn has_name(&self) -> bool {
        !self.spec.name.is_managed()
    }

    fn new_disk(&self) -> Result<&DiskRecord, StepError> {
        self.new.as_ref().ok_or_else(|| self.context.not_on_record("new disk"))
    }
}

async fn mount_old(op: &mut MigrateDisk) -> Result<(), StepError> {
    op.context.ensure_mounted(&op.vm, &op.old).await?;
    op.old.mounted = true;
    Ok(())
}

/// If this fails, the records say that the old disk is not mounted, so the next deploy mounts it before anything starts.
async fn mount_old_again(op: &mut MigrateDisk) -> Result<(), StepError> {
    if op.took_over {
        return Ok(());
    }
    op.context.wait_for_agent_to_undo(&op.vm).await?;
    mount_old(op).await
}

async fn attach_new(op: &mut MigrateDisk) -> Result<(), StepError> {
    if !op.has_name() {
        // Some clouds restart the VM to attach a disk, and some agents come back without the old one.
        op.context.ledger.record(&Fact::DiskUnmounted { disk: op.old.cid.clone() }).await?;
        op.old.mounted = false;
    }
    let (context, vm, named) = (op.context.clone(), op.vm.clone(), op.named.clone());
    let mut attach = AttachDisk::new(context, vm, op.spec.clone(), None, named);
    // Not before it has the data.
    attach.takes_over = false;
    attach.replaces = Some(op.old.clone()).filter(|_| !op.has_name());
    run(&mut attach).await?;
    op.new = attach.disk;
    Ok(())
}

async fn detach_new(op: &mut MigrateDisk) -> Result<(), StepError> {
    let Some(disk) = op.new.clone().filter(|_| !op.took_over) else { return Ok(()) };
    op.context.wait_for_agent_to_undo(&op.vm).await?;
    Ok(run(&mut DetachDisk { context: op.context.to_undo(), vm: op.vm.clone(), disk, remaining: None }).await?)
}

async fn migrate(op: &mut MigrateDisk) -> Result<(), StepError> {
    if op.has_name() {
        let (name, old, instance) = (op.spec.name.as_str(), &op.old.cid, &op.context.instance);
        op.context.progress.warning(&format!(
            "the disk '{name}' of {instance} is a new one, and empty: disks with names cannot be copied; the data is on the \
             orphaned disk {old}"
        ));
        return Ok(());
    }
    Ok(op.context.agent(&op.vm).migrate_disk(&op.old.cid, &op.new_disk()?.cid).await?)
}

async fn take_over(op: &mut MigrateDisk) -> Result<(), StepError> {
    let fact = Fact::DiskReplaced { old: op.old.cid.clone(), new: op.new_disk()?.cid.clone() };
    op.context.ledger.record(&fact).await?;
    op.took_over = true;
    if let Some(new) = &mut op.new {
        (new.active, new.mounted) = (true, true);
    }
    Ok(())
}

async fn detach_old(op: &mut MigrateDisk) -> Result<(), StepError> {
    let (context, vm, disk) = (op.context.clone(), op.vm.clone(), op.old.clone());
    let remaining = op.new.clone().filter(|_| !op.has_name());
    Ok(run(&mut DetachDisk { context, vm, disk, remaining }).await?)
}

async fn orphan_old(op: &mut MigrateDisk) -> Result<(), StepError> {
    Ok(op.context.ledger.record(&Fact::DiskOrphaned { disk: op.old.cid.clone() }).await?)
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_disk("", 32));
#[cfg(test)]
super::fault_tests::fault_tests!(faults_with_a_name, Scene::with_vm().with_disk("data").wants_disk("data", 32));
