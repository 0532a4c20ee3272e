//! Gives agents other certificates over the live connection; their VMs and what runs on them stay as they are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use windlass_agent_client::{Deadlines, Outcome};
use windlass_contract::agent::{DiskAssociation, UpdateSettings};
use windlass_contract::settings::Mbus;
use windlass_operations::steps::StepError;
use windlass_planning::names::DeploymentName;
use windlass_planning::records::{DiskRecord, VmRecord};

use super::update_deployment::one_or_several;
use super::{TaskError, TaskLog, lock_deployment_at_once};
use crate::Director;
use crate::store::Contact;

/// How long an agent may take; the original restarts to take another certificate.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an agent may take to answer at all.
const SILENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
) -> Result<String, TaskError> {
    lock_deployment_at_once(director, log, deployment).await?;
    let mut instances = director.store.contacts(deployment).await?;
    instances.retain(|instance| instance.vm.as_ref().is_some_and(|vm| vm.ready && director.agents.is_renewal_due(vm)));
    let stage = log.stage("Renewing certificates", &[], instances.len());
    let mut each: Vec<BoxFuture<'_, Result<(), TaskError>>> = Vec::new();
    for instance in &instances {
        let part = stage.part(&format!("{} ({})", instance.record.name(), instance.record.index));
        each.push(Box::pin(async move { part.run(renew(director, instance)).await }));
    }
    let results: Vec<_> = stream::iter(each).buffer_unordered(director.settings.max_threads).collect().await;
    let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    if errors.is_empty() { Ok(format!("{} renewed", instances.len())) } else { Err(one_or_several(errors)) }
}

async fn renew(director: &Director, instance: &Contact) -> Result<(), TaskError> {
    let Some(vm) = &instance.vm else { return Ok(()) };
    let (agents, name) = (&director.agents, instance.record.name());
    let issued = agents.certificate_from_now().map_err(StepError::from)?;
    let certificate = agents.certificate_for(vm).map_err(StepError::from)?;
    let (Some(issued), Some(certificate)) = (issued, certificate) else { return Ok(()) };
    let settings = UpdateSettings {
        disk_associations: associations(&director.store.disks_of(&instance.record.id).await?, vm),
        mbus: Some(Mbus { cert: Some(certificate), require_client_cert: true, ..Mbus::default() }),
        ..UpdateSettings::default()
    };
    let deadlines = Deadlines { message: SILENCE, silence: PATIENCE, task: PATIENCE };
    let agent = agents.of(vm).with_deadlines(deadlines);
    if agent.update_settings(&settings).await.map_err(StepError::from)? == Outcome::UnknownToAgent {
        return Err(TaskError::Input(format!(
            "the agent of {name} is too old to take another certificate; recreate the instance before its own ends"
        )));
    }
    // Over a new connection: what counts is that the agent is reached with what it has now.
    agents.afresh(vm).wait_until_ready(PATIENCE).await.map_err(StepError::from)?;
    Ok(director.store.set_agent_certificate(&vm.cid, &issued).await?)
}

/// The names of disks are replaced by every update of the settings, so they are told again.
fn associations(disks: &[DiskRecord], vm: &VmRecord) -> Vec<DiskAssociation> {
    let named = disks.iter().filter(|disk| !disk.name.is_managed() && disk.vm.as_ref() == Some(&vm.cid));
    named.map(|disk| DiskAssociation { name: disk.name.clone().into(), cid: disk.cid.to_string() }).collect()
}
