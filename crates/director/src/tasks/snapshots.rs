//! Takes and deletes snapshots of disks.

use futures_util::future::BoxFuture;
use serde_json::json;
use windlass_contract::cpi::ErrorType;
use windlass_contract::{ApiVersion, Object, SnapshotCid, explain};
use windlass_operations::clouds::{ChangeError, OnBehalfOf};
use windlass_operations::ledger::{Change, Fact};
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::{CurrentInstance, Selection};
use windlass_planning::records::{DiskRecord, InstanceState};

use super::prepare::reload_one;
use super::update_deployment::all;
use super::{TaskError, TaskLog};
use crate::Director;
use crate::tasks::OutputKind;

/// How many instances, or snapshots, are worked on at once.
const AT_ONCE: usize = 32;

/// Takes a snapshot of every disk of the selected instances; gives their cids.
pub(super) async fn take(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    selection: &Selection,
) -> Result<Vec<String>, TaskError> {
    if !director.settings.takes_snapshots() {
        log.warning("snapshots are switched off; set enable_snapshots in director.yml");
        return Ok(Vec::new());
    }
    let taken = std::sync::Mutex::new(Vec::new());
    let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
    for instance in director.store.selected_instances(deployment, selection).await? {
        let taken = &taken;
        each.push(Box::pin(async move {
            let Some(instance) = reload_one(director, &instance).await? else { return Ok(()) };
            for disk in instance.disks.iter().filter(|disk| disk.active) {
                let cid = take_one(director, log, deployment, &instance, disk).await?;
                taken.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(cid);
            }
            Ok(())
        }));
    }
    all(Box::new(each.into_iter()), AT_ONCE).await?;
    Ok(taken.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// None where the cloud takes no snapshots.
async fn take_one(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    instance: &CurrentInstance,
    disk: &DiskRecord,
) -> Result<Option<String>, TaskError> {
    let cpi_log = |line: &str| log.write(OutputKind::Cpi, &format!("{line}\n"));
    let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
    let change = Change::SnapshotDisk {
        disk: disk.cid.clone(),
        cpi: disk.cpi.clone(),
        clean: instance.record.state != InstanceState::Started,
        metadata: metadata(director, deployment, instance),
    };
    match director.clouds.perform(who, &disk.cpi, instance.stemcell_version(), change).await {
        Ok(Fact::SnapshotTaken { snapshot }) => Ok(Some(snapshot.cid.to_string())),
        Ok(_) => Ok(None),
        Err(ChangeError::Call { source, .. })
            if source
                .cpi_error()
                .is_some_and(|error| error.is_not_implemented() || error.kind == ErrorType::NotSupported) =>
        {
            log.warning(&format!("disk {}: its cloud takes no snapshots: {}", disk.cid, explain(&*source)));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What the cloud shows about a snapshot.
fn metadata(director: &Director, deployment: &DeploymentName, instance: &CurrentInstance) -> Object {
    let record = &instance.record;
    let mut metadata = record.spec.as_ref().map(|spec| spec.tags.clone()).unwrap_or_default();
    let agent = instance.vm.as_ref().map(|vm| vm.agent_id.to_string());
    for (key, value) in [
        ("deployment", json!(deployment)),
        ("job", json!(record.group)),
        ("index", json!(record.index)),
        ("director_name", json!(director.name)),
        ("director_uuid", json!(director.uuid)),
        ("agent_id", json!(agent)),
        ("instance_id", json!(record.id)),
    ] {
        metadata.insert(key.to_owned(), value);
    }
    metadata
}

/// Of the stemcell of an instance, of which nothing else is kept.
async fn version_of(director: &Director, instance: &InstanceId) -> Result<Option<ApiVersion>, TaskError> {
    Ok(reload_one(director, instance).await?.as_ref().and_then(CurrentInstance::stemcell_version))
}

/// Deletes the snapshots of a deployment, or one of them.
pub(super) async fn delete(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    only: Option<&SnapshotCid>,
) -> Result<String, TaskError> {
    let cpi_log = |line: &str| log.write(OutputKind::Cpi, &format!("{line}\n"));
    let who = OnBehalfOf { ledger: &director.store, task: Some(log.task()), log: &cpi_log };
    let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
    for found in director.store.snapshots(deployment).await? {
        let snapshot = found.snapshot;
        if only.is_none_or(|only| *only == snapshot.cid) {
            each.push(Box::pin(async move {
                let version = version_of(director, &found.instance).await?;
                let change = Change::DeleteSnapshot { cid: snapshot.cid };
                Ok(director.clouds.perform(who, &snapshot.cpi, version, change).await.map(drop)?)
            }));
        }
    }
    all(Box::new(each.into_iter()), AT_ONCE).await?;
    Ok(match only {
        Some(cid) => format!("snapshot(s) {cid} deleted"),
        None => format!("snapshots of deployment '{deployment}' deleted"),
    })
}
