//! Attaches a disk to a VM and mounts it: the cloud says where it is, the agent is told, the agent mounts it. Without a
//! disk, one is made first. A disk that has a name is not mounted by the agent, who only tells jobs where it is.

use windlass_agent_client::Outcome;
use windlass_contract::DiskHint;
use windlass_planning::plan::DiskSpec;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{Context, Operation, StepError, create_disk};
use crate::ledger::{Change, Fact};

/// A disk to be attached.
#[derive(Debug)]
pub struct AttachDisk {
    /// What everything works with.
    pub context: Context,
    pub vm: VmRecord,
    /// What the disk is to be.
    pub spec: DiskSpec,
    /// The disk, once it exists.
    pub disk: Option<DiskRecord>,
    /// Where the VM finds it, once it is attached.
    pub hint: Option<DiskHint>,
    /// Whether the agent took the hint; otherwise it gets it with the order to mount.
    pub agent_has_hint: bool,
    /// Other disks of the VM that have names.
    pub named: Vec<DiskRecord>,
    /// Whether it is the instance's disk from then on.
    pub takes_over: bool,
    /// The disk whose data it gets, and which must be mounted before it.
    pub replaces: Option<DiskRecord>,
    /// Whether it was attached before, or the agent was asked to mount it and did not confirm that it is unmounted.
    pub may_be_mounted: bool,
}

steps! { AttachDisk:
    // Not undone: an empty disk is kept on record, used by the next try, and orphaned if there is none.
    CreateDisk => create, unless |op| op.disk.is_some();
    AttachDisk => attach, undo detach;
    WaitForAgent => wait_for_agent;
    TellHint => tell, undo untell, unless |op| op.hint.is_none();
    NameDisk => set_metadata;
    MountDisk => mount, undo unmount, unless AttachDisk::has_name;
    AssociateDisk => associate, unless |op| !op.has_name();
    RecordDisk => record_mounted, unless |op| !op.takes_over;
}

impl Operation for AttachDisk {
    const NAME: &'static str = "attaching the disk";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

impl AttachDisk {
    /// Attaches `disk`, or a new one like `spec`, which is the instance's disk from then on.
    pub fn new(
        context: Context,
        vm: VmRecord,
        spec: DiskSpec,
        disk: Option<DiskRecord>,
        named: Vec<DiskRecord>,
    ) -> Self {
        let may_be_mounted = disk.as_ref().is_some_and(|disk| disk.vm.as_ref() == Some(&vm.cid));
        Self {
            context,
            vm,
            spec,
            disk,
            hint: None,
            agent_has_hint: false,
            named,
            takes_over: true,
            replaces: None,
            may_be_mounted,
        }
    }

    fn has_name(&self) -> bool {
        !self.spec.name.is_managed()
    }

    fn disk(&self) -> Result<&DiskRecord, StepError> {
        self.disk.as_ref().ok_or_else(|| self.context.not_on_record("disk"))
    }
}

async fn create(op: &mut AttachDisk) -> Result<(), StepError> {
    op.disk = Some(create_disk::create(&op.context, &op.vm, &op.spec).await?);
    Ok(())
}

async fn attach(op: &mut AttachDisk) -> Result<(), StepError> {
    let change = Change::AttachDisk { vm: op.vm.cid.clone(), disk: op.disk()?.cid.clone() };
    match op.context.perform_on(&op.vm, change).await? {
        Fact::DiskAttached { hint, .. } => op.hint = hint,
        other => return Err(StepError::wrong_fact("attach_disk", &other)),
    }
    if let Some(disk) = &mut op.disk {
        (disk.vm, disk.hint, disk.mounted) = (Some(op.vm.cid.clone()), op.hint.clone(), false);
    }
    Ok(())
}

async fn detach(op: &mut AttachDisk) -> Result<(), StepError> {
    // A disk must not vanish under what is mounted. It stays attached, on record as such, and the next run goes on from there.
    if op.may_be_mounted {
        return Ok(());
    }
    let change = Change::DetachDisk { vm: op.vm.cid.clone(), disk: op.disk()?.cid.clone() };
    op.context.perform_on(&op.vm, change).await.map(drop)
}

async fn wait_for_agent(op: &mut AttachDisk) -> Result<(), StepError> {
    op.context.wait_for_agent(&op.vm).await
}

async fn tell(op: &mut AttachDisk) -> Result<(), StepError> {
    if let Some(hint) = &op.hint {
        op.agent_has_hint = op.context.tell_hint(&op.vm, &op.disk()?.cid, hint).await? == Outcome::Done;
    }
    Ok(())
}

async fn untell(op: &mut AttachDisk) -> Result<(), StepError> {
    op.context.wait_for_agent_to_undo(&op.vm).await?;
    let _ = op.context.agent(&op.vm).remove_persistent_disk(&op.disk()?.cid).await?;
    Ok(())
}

async fn set_metadata(op: &mut AttachDisk) -> Result<(), StepError> {
    let change = Change::SetDiskMetadata { cid: op.disk()?.cid.clone(), metadata: op.context.disk_metadata() };
    op.context.perform_on(&op.vm, change).await.map(drop)
}

async fn mount(op: &mut AttachDisk) -> Result<(), StepError> {
    // Some clouds restart the VM to attach a disk, and some of those agents come back without the other one.
    if let Some(old) = &op.replaces
        && !op.context.is_mounted(&op.vm, &old.cid).await?
    {
        op.context.mount(&op.vm, &old.cid, old.hint.as_ref()).await?;
    }
    op.may_be_mounted = true;
    let (agent, cid) = (op.context.agent(&op.vm), &op.disk()?.cid);
    match &op.hint {
        Some(hint) if !op.agent_has_hint => Ok(agent.mount_disk_as_before(cid, hint).await?),
        _ => Ok(agent.mount_disk(cid, None).await?),
    }
}

async fn unmount(op: &mut AttachDisk) -> Result<(), StepError> {
    op.context.wait_for_agent_to_undo(&op.vm).await?;
    let (agent, cid) = (op.context.agent(&op.vm), &op.disk()?.cid);
    if agent.list_disk().await?.contains(cid) {
        agent.unmount_disk(cid).await?;
    }
    op.may_be_mounted = false;
    Ok(())
}

async fn associate(op: &mut AttachDisk) -> Result<(), StepError> {
    let mut disks = op.named.clone();
    disks.retain(|other| other.name != op.spec.name);
    disks.push(DiskRecord { name: op.spec.name.clone(), ..op.disk()?.clone() });
    op.context.tell_names(&op.vm, &disks).await
}

async fn record_mounted(op: &mut AttachDisk) -> Result<(), StepError> {
    op.context.ledger.record(&Fact::DiskMounted { disk: op.disk()?.cid.clone() }).await?;
    if let Some(disk) = &mut op.disk {
        (disk.active, disk.mounted) = (true, true);
    }
    Ok(())
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_detached_disk("").wants_disk("", 64));
#[cfg(test)]
super::fault_tests::fault_tests!(
    faults_with_a_name,
    Scene::with_vm().with_detached_disk("data").wants_disk("data", 64)
);
