//! Deploys: reads what is wanted, plans, shows and stores the plan, and carries out exactly that.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use windlass_manifest::Document;

use super::execute::{Execution, Failures};
use super::log::EventPart;
use super::{DeployOptions, OutputKind, TaskError, TaskLog, lock_deployment, vm_stats};
use crate::Director;
use crate::desired::{CloudConfig, DeploymentManifest, Desired, resolve};
use crate::plan::{Action, Current, CurrentInstance, GroupPlan, InstancePlan, Plan, PlanOptions, Recreate, What, plan};
use crate::store::{ConfigRecord, InstanceRecord, InstanceState};

/// How many VMs are made or removed at once.
const AT_ONCE: usize = 32;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &str,
    manifest: &str,
    options: &DeployOptions,
) -> Result<String, TaskError> {
    lock_deployment(director, log, deployment).await?;
    let stage = log.stage("Preparing deployment", &[], 1);
    let preparing = stage.part("Preparing deployment");
    let prepared = preparing.run(prepare(director, deployment, manifest, options)).await?;
    director.store.save_plan(log.task(), &prepared.plan).await?;
    log.write(OutputKind::Debug, &prepared.plan.describe());
    if options.dry_run {
        return Ok(format!("/deployments/{deployment}"));
    }
    director.store.use_stemcells(deployment, &prepared.desired.stemcells).await?;
    director.store.begin_instances(&instance_records(&prepared.plan)).await?;
    let current = reload(director, deployment).await?;
    let work = Work { director, log, deployment, current: &current };
    work.remove(&prepared.plan.removed).await?;
    work.create_missing_vms(&prepared.plan).await?;
    for group in &prepared.plan.groups {
        work.update(group).await?;
    }
    let configs: Vec<i64> = prepared.cloud_configs.iter().map(|config| config.id).collect();
    director.store.finish_deployment(deployment, manifest, &configs).await?;
    Ok(format!("/deployments/{deployment}"))
}

/// What a deploy is about to do.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    desired: Desired,
    cloud_configs: Vec<ConfigRecord>,
}

/// Reads and plans; changes nothing.
pub(crate) async fn prepare(
    director: &Director,
    deployment: &str,
    manifest: &str,
    options: &DeployOptions,
) -> Result<Prepared, TaskError> {
    let document = Document::parse(manifest).map_err(|error| TaskError::Input(format!("the manifest: {error}")))?;
    let manifest = DeploymentManifest::read(&document).map_err(|problems| TaskError::Input(problems.to_string()))?;
    if manifest.name != deployment {
        return Err(TaskError::Input(format!("the manifest is for '{}', not for '{deployment}'", manifest.name)));
    }
    let cloud_configs = cloud_configs(director, options).await?;
    if cloud_configs.is_empty() {
        return Err(TaskError::Input("there is no cloud config; use update-cloud-config".into()));
    }
    let mut cloud = CloudConfig::default();
    for config in &cloud_configs {
        let in_config = |message: String| TaskError::Input(format!("in the cloud config '{}': {message}", config.name));
        let document = Document::parse(&config.content).map_err(|error| in_config(error.to_string()))?;
        cloud.read(&document).map_err(|problems| in_config(problems.to_string()))?;
    }
    let stemcells = director.store.stemcells().await?;
    let desired = resolve(&manifest, &cloud, &stemcells).map_err(|problems| TaskError::Input(problems.to_string()))?;
    let mut current = reload(director, deployment).await?;
    vm_stats::find_unresponsive(director, &mut current).await;
    let recreate = match (&options.recreate_only, options.recreate) {
        (Some((group, instance)), _) => Recreate::Of { group: group.clone(), instance: instance.clone() },
        (None, true) => Recreate::All,
        (None, false) => Recreate::None,
    };
    let options = PlanOptions { recreate, fix: options.fix };
    let mut new_id = new_ids(director, deployment).await?;
    let plan =
        plan(&desired, &current, &options, &mut new_id).map_err(|problems| TaskError::Input(problems.to_string()))?;
    Ok(Prepared { plan, desired, cloud_configs })
}

/// Ids for new instances, the same again until something was deployed.
async fn new_ids(director: &Director, deployment: &str) -> Result<impl FnMut() -> String, TaskError> {
    let generation = director.store.generation().await?;
    let seed = format!("{}/{generation}/{deployment}", director.uuid);
    let mut count = 0;
    Ok(move || {
        count += 1;
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{seed}/{count}").as_bytes()).to_string()
    })
}

async fn cloud_configs(director: &Director, options: &DeployOptions) -> Result<Vec<ConfigRecord>, TaskError> {
    let Some(ids) = &options.cloud_configs else { return Ok(director.store.current_configs("cloud").await?) };
    let mut configs = Vec::new();
    for id in ids {
        let found = director.store.config(*id).await?;
        configs.push(found.ok_or_else(|| TaskError::Input(format!("there is no config with the id {id}")))?);
    }
    Ok(configs)
}

/// What is, as far as the director knows.
pub(crate) async fn reload(director: &Director, deployment: &str) -> Result<Current, TaskError> {
    let vms = director.store.vms(deployment).await?;
    let disks = director.store.disks(Some(deployment)).await?;
    let instances = director
        .store
        .instances(deployment)
        .await?
        .into_iter()
        .map(|record| CurrentInstance {
            vm: vms.iter().find(|vm| vm.instance == record.id).cloned(),
            disks: disks.iter().filter(|disk| disk.instance == record.id).cloned().collect(),
            unresponsive: false,
            record,
        })
        .collect();
    Ok(Current { instances, addresses: director.store.addresses().await? })
}

/// What the instances are brought to; those to which nothing is done are there already.
fn instance_records(plan: &Plan) -> Vec<InstanceRecord> {
    plan.instances()
        .map(|instance| InstanceRecord {
            id: instance.id.clone(),
            deployment: plan.deployment.clone(),
            group: instance.group.clone(),
            index: instance.index,
            az: instance.az.clone(),
            bootstrap: instance.bootstrap,
            state: InstanceState::Started,
            spec: instance.spec.clone(),
            converged: instance.actions.is_empty(),
        })
        .collect()
}

/// A plan being carried out.
pub(super) struct Work<'a> {
    pub(super) director: &'a Arc<Director>,
    pub(super) log: &'a TaskLog,
    pub(super) deployment: &'a str,
    pub(super) current: &'a Current,
}

impl Work<'_> {
    async fn remove(&self, removed: &[InstancePlan]) -> Result<(), TaskError> {
        let stage = self.log.stage("Deleting unneeded instances", &[], removed.len());
        let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
        for instance in removed {
            let part = stage.part(&instance.label());
            each.push(Box::pin(async move { part.run(self.execute(&part, instance, &instance.actions)).await }));
        }
        all(each, AT_ONCE).await
    }

    async fn create_missing_vms(&self, plan: &Plan) -> Result<(), TaskError> {
        let missing: Vec<_> = plan.instances().filter(|instance| instance.has_no_vm()).collect();
        let stage = self.log.stage("Creating missing vms", &[], missing.len());
        let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
        for instance in missing {
            let part = stage.part(&instance.label());
            each.push(Box::pin(async move { part.run(self.execute(&part, instance, &instance.actions[..1])).await }));
        }
        all(each, AT_ONCE).await
    }

    /// Canaries first: if one of them fails, the others are left alone.
    async fn update(&self, group: &GroupPlan) -> Result<(), TaskError> {
        let changed: Vec<_> = group.instances.iter().filter(|instance| !instance.actions.is_empty()).collect();
        let stage = self.log.stage("Updating instance", &[&group.name], changed.len());
        let (canaries, others) = changed.split_at(group.canaries.min(changed.len()));
        for (batch, suffix) in [(canaries, " (canary)"), (others, "")] {
            let mut each: Vec<BoxFuture<'_, _>> = Vec::new();
            for instance in batch {
                let part = stage.part(&format!("{}{suffix}", instance.label()));
                each.push(Box::pin(async move { part.run(self.update_one(&part, instance)).await }));
            }
            all(each, group.max_in_flight).await?;
        }
        Ok(())
    }

    async fn update_one(&self, part: &Arc<EventPart>, instance: &InstancePlan) -> Result<(), TaskError> {
        let already_done = usize::from(instance.has_no_vm());
        self.execute(part, instance, &instance.actions[already_done..]).await?;
        Ok(self.director.store.finish_instance(&instance.id).await?)
    }

    async fn execute(
        &self,
        part: &Arc<EventPart>,
        instance: &InstancePlan,
        actions: &[Action],
    ) -> Result<(), TaskError> {
        // A VM made in an earlier stage is in the records only.
        let made_earlier = instance.has_no_vm() && actions.first().is_none_or(|action| action.what != What::CreateVm);
        let fresh;
        let current = if made_earlier {
            fresh = reload(self.director, self.deployment).await?;
            &fresh
        } else {
            self.current
        };
        let current = current.instances.iter().find(|current| current.record.id == instance.id);
        let mut execution = Execution::new(self.director, self.log, part.clone(), self.deployment, instance, current);
        execution.run(actions, Failures::Stop).await.map_err(one_or_several)
    }
}

pub(super) fn one_or_several(mut errors: Vec<TaskError>) -> TaskError {
    match errors.len() {
        1 => errors.remove(0),
        _ => TaskError::Several(errors),
    }
}

/// Runs futures, some at a time. After a failure no further one is begun; those that run are finished, and all failures
/// are reported.
pub(super) async fn all(futures: Vec<BoxFuture<'_, Result<(), TaskError>>>, at_once: usize) -> Result<(), TaskError> {
    let mut waiting = futures.into_iter();
    let mut running = FuturesUnordered::new();
    let mut errors = Vec::new();
    loop {
        while running.len() < at_once && errors.is_empty() {
            let Some(next) = waiting.next() else { break };
            running.push(next);
        }
        match running.next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => errors.push(error),
            None => break,
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(one_or_several(errors)) }
}
