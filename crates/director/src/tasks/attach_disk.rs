//! Puts a disk in the place of an instance's disk: an orphaned one, or one that only the cloud knows.

use std::sync::Arc;

use windlass_contract::cpi::methods::HasDisk;
use windlass_contract::{DiskCid, MiB, Object};
use windlass_operations::ledger::{Fact, Ledger};
use windlass_planning::names::{CpiName, DeploymentName, DiskName};
use windlass_planning::plan::{Action, ActionKind, CurrentInstance, DiskSpec, InstancePlan, Selection};
use windlass_planning::records::{DiskRecord, InstanceState};

use super::execute::{Execution, Failures};
use super::prepare::reload_one;
use super::update_deployment::one_or_several;
use super::{OutputKind, TaskError, TaskLog, lock_deployment};
use crate::Director;

const REFUSED: u32 = 520003;
const REASON: &str = "another disk is attached";

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    selection: &Selection,
    (disk, copy_properties): (&DiskCid, bool),
) -> Result<String, TaskError> {
    lock_deployment(director, log, deployment).await?;
    let present = find(director, deployment, selection).await?;
    let name = present.record.name();
    if present.record.ignored {
        return Err(TaskError::refused(REFUSED, format!("{name} is ignored; unignore it first")));
    }
    if present.record.state == InstanceState::Started {
        let reason = format!("Instance '{name}' in deployment '{deployment}' must be in 'bosh stopped' state");
        return Err(TaskError::refused(REFUSED, reason));
    }
    let old: Vec<_> = present.disks.iter().filter(|old| old.name.is_managed() && old.cid != *disk).cloned().collect();
    let new = adoptable(director, log, &present, disk, old.iter().find(|old| old.active && copy_properties)).await?;

    let stage = log.stage("Attaching disk", &[], 1);
    let part = stage.part(&format!("{disk} to {name}"));
    part.run(async {
        let spec = DiskSpec { name: DiskName::Managed, size: new.size, cloud_properties: new.cloud_properties.clone() };
        let plan = plan(&present, spec);
        let mut execution = Execution::new(director, log, part.clone(), deployment, &plan, Some(&present));
        let mut actions = Vec::new();
        for old in &old {
            let attached = present.vm.as_ref().is_some_and(|vm| old.vm.as_ref() == Some(&vm.cid));
            actions.extend(attached.then(|| act(ActionKind::DetachDisk { disk: old.cid.clone() })));
            actions.push(act(ActionKind::OrphanDisk { disk: old.cid.clone() }));
        }
        execution.run(&actions, Failures::Stop).await.map_err(one_or_several)?;
        if !present.disks.iter().any(|own| own.cid == *disk) {
            director.store.record(&Fact::DiskAdopted { disk: new }).await?;
        }
        // Without a VM it is attached when the instance is started.
        if present.vm.as_ref().is_some_and(|vm| vm.ready) {
            let present = find(director, deployment, selection).await?;
            let mut execution = Execution::new(director, log, part.clone(), deployment, &plan, Some(&present));
            let attach = act(ActionKind::AttachDisk { disk: Some(disk.clone()), name: DiskName::Managed });
            execution.run(&[attach], Failures::Stop).await.map_err(one_or_several)?;
        }
        Ok::<_, TaskError>(())
    })
    .await?;
    Ok(format!("attached disk '{disk}' to '{name}' in deployment '{deployment}'"))
}

async fn find(
    director: &Director,
    deployment: &DeploymentName,
    selection: &Selection,
) -> Result<CurrentInstance, TaskError> {
    let selected = director.store.selected_instances(deployment, selection).await?;
    let found = match selected.first() {
        Some(id) => reload_one(director, id).await?,
        None => None,
    };
    found.ok_or_else(|| {
        let (group, id) = (selection.group.as_deref(), selection.instance.as_deref());
        let wanted = format!("{}/{}", group.unwrap_or("*"), id.unwrap_or("*"));
        TaskError::refused(70001, format!("Instance '{wanted}' doesn't exist in deployment '{deployment}'"))
    })
}

/// The disk as a record of the instance. One that nobody here knows must be in the cloud; its size is unknown, so the next
/// deploy migrates it to one of the size that is wanted.
async fn adoptable(
    director: &Director,
    log: &TaskLog,
    present: &CurrentInstance,
    cid: &DiskCid,
    like: Option<&DiskRecord>,
) -> Result<DiskRecord, TaskError> {
    let (size, cloud_properties, cpi) = match director.store.orphan_disk(cid).await? {
        Some(orphan) => (orphan.size, orphan.cloud_properties, orphan.cpi),
        None => match director.store.disk(cid).await? {
            Some((_, own)) if own.instance == present.record.id => (own.size, own.cloud_properties, own.cpi),
            Some((deployment, _)) => {
                let reason =
                    format!("Disk '{cid}' belongs to an instance of deployment '{deployment}'; orphan it first");
                return Err(TaskError::refused(REFUSED, reason));
            }
            None => {
                let cpi = present.record.spec.as_ref().map(|spec| spec.cpi.clone()).unwrap_or_default();
                if !exists(director, log, &cpi, cid).await? {
                    return Err(TaskError::refused(REFUSED, format!("Disk '{cid}' does not exist in the cloud")));
                }
                let (size, cloud_properties) =
                    like.map_or_else(|| (MiB(1), Object::new()), |like| (like.size, like.cloud_properties.clone()));
                (size, cloud_properties, cpi)
            }
        },
    };
    Ok(DiskRecord {
        cid: cid.clone(),
        instance: present.record.id.clone(),
        name: DiskName::Managed,
        cpi,
        size,
        cloud_properties,
        active: true,
        vm: None,
        mounted: false,
        hint: None,
    })
}

/// A CPI that cannot say is believed.
async fn exists(director: &Director, log: &TaskLog, cpi: &CpiName, cid: &DiskCid) -> Result<bool, TaskError> {
    let cpi_log = |line: &str| log.write(OutputKind::Cpi, &format!("{line}\n"));
    match director.clouds.cpi(cpi)?.call_logged(&HasDisk { disk_cid: cid.clone() }, None, &cpi_log).await {
        Err(error) if error.cpi_error().is_some_and(|error| error.is_not_implemented()) => Ok(true),
        other => other.map_err(|source| TaskError::Cpi { cpi: cpi.clone(), source: Box::new(source) }),
    }
}

fn act(what: ActionKind) -> Action {
    Action { what, reason: REASON.to_owned() }
}

/// The instance as it is, with another disk.
fn plan(present: &CurrentInstance, disk: DiskSpec) -> InstancePlan {
    let mut plan = InstancePlan::of(&present.record, Vec::new());
    if let Some(spec) = &mut plan.spec {
        spec.disks = vec![disk];
    }
    plan
}
