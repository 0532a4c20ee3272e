//! Makes a disk for an instance, attached to nothing.

use windlass_planning::plan::DiskSpec;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::step::steps;
use super::{Context, Operation, StepError};
use crate::ledger::{Change, Fact, NewDisk};

/// A disk to be made.
#[derive(Debug)]
pub struct CreateDisk {
    pub context: Context,
    /// The VM that it will be attached to; the cloud may place the disk near it.
    pub vm: VmRecord,
    pub spec: DiskSpec,
    /// The disk, once it exists.
    pub disk: Option<DiskRecord>,
}

steps! { CreateDisk:
    // Not undone: an empty disk is kept on record, used by the next try, and orphaned if there is none.
    CreateDisk => act, unless |op| op.disk.is_some();
}

impl Operation for CreateDisk {
    const NAME: &'static str = "creating the disk";

    fn context(&self) -> &Context {
        &self.context
    }

    fn steps() -> &'static [super::Step<Self>] {
        STEPS
    }
}

async fn act(op: &mut CreateDisk) -> Result<(), StepError> {
    op.disk = Some(create(&op.context, &op.vm, &op.spec).await?);
    Ok(())
}

/// Makes a disk like `spec`.
pub(super) async fn create(context: &Context, vm: &VmRecord, spec: &DiskSpec) -> Result<DiskRecord, StepError> {
    let disk = NewDisk {
        instance: context.instance.id.clone(),
        name: spec.name.clone(),
        cpi: vm.cpi.clone(),
        size: spec.size,
        cloud_properties: spec.cloud_properties.clone(),
    };
    let change = Change::CreateDisk { disk, near: Some(vm.cid.clone()) };
    match context.perform_on(vm, change).await? {
        Fact::DiskCreated { disk } => Ok(disk),
        other => Err(StepError::wrong_fact("create_disk", &other)),
    }
}

#[cfg(test)]
super::fault_tests::fault_tests!(faults, Scene::with_vm().wants_disk("", 64));
