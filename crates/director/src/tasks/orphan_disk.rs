//! Takes a disk away from its instance; its data is kept.
//!
//! The original does this to the disk of a running instance as well and leaves it mounted there, so that the next deploy but
//! one fails. Here an instance is stopped first.

use std::sync::Arc;

use windlass_contract::DiskCid;
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{Action, ActionKind, InstancePlan};
use windlass_planning::records::{DiskRecord, InstanceState};

use super::execute::{Execution, Failures};
use super::log::EventPart;
use super::prepare::reload_one;
use super::update_deployment::one_or_several;
use super::{TaskError, TaskLog, lock_deployment};
use crate::Director;

pub(super) async fn run(director: &Arc<Director>, log: &TaskLog, cid: &DiskCid) -> Result<String, TaskError> {
    let stage = log.stage("Orphan disk", &[], 1);
    let part = stage.part(cid.as_str());
    part.run(async {
        match director.store.disk(cid).await? {
            Some((deployment, disk)) => orphan(director, log, &part, &deployment, &disk).await,
            None => {
                log.warning(&format!("Disk {cid} does not exist. Orphaning is skipped"));
                Ok(())
            }
        }
    })
    .await?;
    Ok(format!("disk {cid} orphaned"))
}

async fn orphan(
    director: &Arc<Director>,
    log: &TaskLog,
    part: &Arc<EventPart>,
    deployment: &DeploymentName,
    disk: &DiskRecord,
) -> Result<(), TaskError> {
    lock_deployment(director, log, deployment).await?;
    let Some(present) = reload_one(director, &disk.instance).await? else {
        return Err(TaskError::refused(520001, format!("disk {} has no instance", disk.cid)));
    };
    let record = &present.record;
    let vm = present.vm.as_ref().filter(|vm| disk.vm.as_ref() == Some(&vm.cid));
    if vm.is_some() && disk.active && record.state == InstanceState::Started {
        let name = record.name();
        let reason = format!("disk {} is in use by {name}; stop it first, then orphan the disk", disk.cid);
        return Err(TaskError::refused(520001, reason));
    }
    let mut actions = Vec::new();
    let act = |what: ActionKind| Action { what, reason: "it was asked for".to_owned() };
    actions.extend(vm.map(|_| act(ActionKind::DetachDisk { disk: disk.cid.clone() })));
    actions.push(act(ActionKind::OrphanDisk { disk: disk.cid.clone() }));
    let plan = InstancePlan::of(record, Vec::new());
    let mut execution = Execution::new(director, log, part.clone(), deployment, &plan, Some(&present));
    execution.run(&actions, Failures::Stop).await.map_err(one_or_several)
}
