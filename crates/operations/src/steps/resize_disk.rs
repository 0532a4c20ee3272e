//! Makes a disk larger in place, where the cloud can. Some clouds say that they did and did nothing, so the size that the VM
//! sees afterwards decides. What was not resized is left as it was, for the caller to copy it to a larger disk.

use windlass_contract::MiB;
use windlass_contract::cpi::ErrorType;
use windlass_planning::plan::DiskSpec;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{AttachDisk, Context, DetachDisk, Operation, StepError, run};
use crate::clouds::ChangeError;
use crate::ledger::{Change, Fact};

/// A disk to be made larger.
#[derive(Debug)]
pub struct ResizeDisk {
    /// What everything works with.
    pub context: Context,
    /// The VM that it is attached to.
    pub vm: VmRecord,
    pub disk: DiskRecord,
    /// What the disk is to become.
    pub spec: DiskSpec,
    /// Other disks of the VM that have names.
    pub named: Vec<DiskRecord>,
    /// How large the VM saw it before, in KiB; none if its agent does not tell.
    pub seen_before: Option<u64>,
    /// Why it is as large as it was, if so.
    pub refused: Option<String>,
}

steps! { ResizeDisk:
    LookAtDisk => look;
    ReleaseDisk => detach, undo attach_again;
    ResizeDisk => resize;
    TakeDiskBack => attach;
    CompareSizes => compare, unless |op| op.refused.is_some();
    RecordSize => record, unless |op| op.refused.is_some();
}

impl Operation for ResizeDisk {
    const NAME: &'static str = "resizing the disk";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

impl ResizeDisk {
    /// Makes `disk` as large as `spec`.
    pub fn new(context: Context, vm: VmRecord, disk: DiskRecord, spec: DiskSpec, named: Vec<DiskRecord>) -> Self {
        Self { context, vm, disk, spec, named, seen_before: None, refused: None }
    }
}

/// Of several disks the agent tells the size of the one that it mounts itself.
async fn size_seen(op: &ResizeDisk) -> Result<Option<u64>, StepError> {
    if !op.spec.name.is_managed() {
        return Ok(None);
    }
    Ok(op.context.agent(&op.vm).get_state(true).await?.persistent_disk_kib())
}

async fn look(op: &mut ResizeDisk) -> Result<(), StepError> {
    op.seen_before = size_seen(op).await?;
    Ok(())
}

async fn detach(op: &mut ResizeDisk) -> Result<(), StepError> {
    let (context, vm, disk) = (op.context.clone(), op.vm.clone(), op.disk.clone());
    Ok(run(&mut DetachDisk { context, vm, disk, remaining: None }).await?)
}

async fn resize(op: &mut ResizeDisk) -> Result<(), StepError> {
    let change = Change::ResizeDisk { cid: op.disk.cid.clone(), size: op.spec.size };
    match op.context.perform(&op.disk.cpi, op.vm.stemcell.api_version, change).await {
        Err(StepError::Cloud(ChangeError::Call { source, .. }))
            if source
                .cpi_error()
                .is_some_and(|error| error.kind == ErrorType::NotSupported || error.is_not_implemented()) =>
        {
            op.refused = Some("the CPI cannot resize it".to_owned());
            Ok(())
        }
        other => other.map(drop),
    }
}

async fn attach(op: &mut ResizeDisk) -> Result<(), StepError> {
    attach_in(op.context.clone(), op).await
}

async fn attach_again(op: &mut ResizeDisk) -> Result<(), StepError> {
    attach_in(op.context.to_undo(), op).await
}

async fn attach_in(context: Context, op: &mut ResizeDisk) -> Result<(), StepError> {
    let (vm, named) = (op.vm.clone(), op.named.clone());
    let mut attach = AttachDisk::new(context, vm, op.spec.clone(), Some(op.disk.clone()), named);
    run(&mut attach).await?;
    if let Some(disk) = attach.disk {
        op.disk = disk;
    }
    Ok(())
}

async fn compare(op: &mut ResizeDisk) -> Result<(), StepError> {
    let seen = size_seen(op).await?;
    if has_grown(op.seen_before, seen, op.disk.size) == Some(false) {
        let (cid, size, instance) = (&op.disk.cid, op.spec.size, &op.context.instance);
        let refused = format!(
            "the CPI says that the disk {cid} of {instance} has {size} now, but the VM sees no growth; its data is copied to \
             a new disk instead"
        );
        op.context.progress.warning(&refused);
        op.refused = Some(refused);
    }
    Ok(())
}

/// Whether a disk that had the size `from` is larger now, by what the agent sees of it in KiB; none if nobody can tell. More than the
/// whole disk had is a growth also when an earlier try made it.
fn has_grown(before: Option<u64>, after: Option<u64>, from: MiB) -> Option<bool> {
    let (before, after) = (before?, after?);
    Some(after > before || after > from.0 * 1024)
}

async fn record(op: &mut ResizeDisk) -> Result<(), StepError> {
    let fact = Fact::DiskResized { disk: op.disk.cid.clone(), size: op.spec.size };
    op.context.ledger.record(&fact).await?;
    op.disk.size = op.spec.size;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_size_that_was_seen_to_stay_is_no_growth() {
        assert_eq!(has_grown(Some(60_000), Some(60_000), MiB(64)), Some(false));
        assert_eq!(has_grown(Some(60_000), Some(120_000), MiB(64)), Some(true));
        assert_eq!(has_grown(Some(120_000), Some(120_000), MiB(64)), Some(true), "an earlier try made it grow");
        assert_eq!(has_grown(None, Some(120_000), MiB(64)), None, "agents that tell nothing are no reason to copy");
        assert_eq!(has_grown(Some(60_000), None, MiB(64)), None);
    }
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().with_disk("").wants_disk("", 128).in_all_clouds());
