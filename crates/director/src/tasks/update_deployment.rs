//! Deploys: plans, shows and stores the plan, and carries out exactly that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use windlass_agent_client::Cancellation;
use windlass_operations::steps::StepError;
use windlass_planning::desired::WatchTime;
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::{Action, ActionKind, Actions, GroupPlan, InstancePlan, Plan, is_compilation_group};
use windlass_planning::records::{InstanceRecord, InstanceState};

use super::execute::{self, Execution, Failures};
use super::instance_event::with_event;
use super::log::EventPart;
use super::prepare::{Asker, PreparedDeploy, Purpose, must_have_cloud_config, prepare_in_place, reload_one};
use super::{
    DeployOptions, OutputKind, TaskError, TaskLog, compile, failed_jobs, large, lock_deployment,
    lock_deployment_to_come, resumption,
};
use crate::Director;
use crate::store::StoreError;

/// How often a deploy plans until nobody else has taken what its plan needs.
const PLANS_OF_A_DEPLOY: usize = 30;
/// How many more free addresses it leaves to others with each plan that met another one.
const ADDRESSES_OF_OTHERS: usize = 16;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    manifest: &str,
    options: &DeployOptions,
) -> Result<String, TaskError> {
    match options.dry_run {
        true => lock_deployment_to_come(director, log, deployment).await?,
        false => lock_deployment(director, log, deployment).await?,
    }
    must_have_cloud_config(director, deployment, options).await?;
    let options = &resumption::noted_in_options(director, log, (deployment, manifest), options).await?;
    let stage = log.stage("Preparing deployment", &[], 1);
    let preparing = stage.part("Preparing deployment");
    let mut prepared = preparing.run(prepare_and_reserve(director, log, deployment, manifest, options)).await?;
    prepared.plan.software.clear();
    prepared.plan.warnings.iter().for_each(|warning| log.warning(warning));
    // Both were done with the plan; BOSH says so here, and so do we.
    stage.part("Rendering templates").watch(async {}).await;
    log.write(OutputKind::Debug, &prepared.plan.describe());
    if options.dry_run {
        return Ok(format!("/deployments/{deployment}"));
    }
    let stage = log.stage("Preparing package compilation", &[], 1);
    stage.part("Finding packages to compile").watch(async {}).await;
    if let Some(compilation) = &prepared.plan.compilation {
        compile::run(director, log, deployment, compilation).await?;
    }
    let run = DeployRun::new(director, log, deployment);
    run.remove(&prepared.plan).await?;
    run.create_missing_vms(&prepared.plan).await?;
    director.dns.tell_all().await;
    run.download_packages(&prepared.plan).await?;
    for batch in prepared.plan.batches() {
        let each: Waiting<'_> = Box::new(batch.iter().map(|group| -> BoxFuture<'_, _> { Box::pin(run.update(group)) }));
        all(each, director.settings.max_threads).await?;
    }
    let variables = prepared.current.variables.filter(|_| options.change_state.is_none());
    director.store.finish_deployment(deployment, manifest, &prepared.configs, variables).await?;
    // Until now, instances that were not reached had what they had before.
    director.store.use_stemcells(deployment, &prepared.stemcells).await?;
    director.store.use_releases(deployment, &prepared.releases).await?;
    run.post_deploy(&prepared.plan).await?;
    Ok(format!("/deployments/{deployment}"))
}

/// Plans, keeps the plan, and reserves what it needs, unless nothing is to be done. One that turns out to be large waits for its place,
/// and is planned again then.
pub(super) async fn prepare_and_reserve(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    manifest: &str,
    options: &DeployOptions,
) -> Result<PreparedDeploy, TaskError> {
    loop {
        if let Some(prepared) = prepare_and_reserve_in_place(director, log, deployment, manifest, options).await? {
            return Ok(prepared);
        }
        large::take_place(director, log).await?;
    }
}

/// None if the plan is large, and the task has no place for such. Deployments are planned side by side; one that finds its addresses
/// taken by another, or a release or stemcell gone, plans once more. Of those of one user one at a time does, so that they come to an end; others
/// wait for none of it, because a plan may take minutes.
async fn prepare_and_reserve_in_place(
    director: &Director,
    log: &TaskLog,
    deployment: &DeploymentName,
    manifest: &str,
    options: &DeployOptions,
) -> Result<Option<PreparedDeploy>, TaskError> {
    let purpose = if options.dry_run { Purpose::Look } else { Purpose::Deploy(log.task()) };
    let template_time = director.settings.template_time;
    let asker = Asker { user: log.user(), task: Some(log), template_time, sees_values: true };
    let mut options = options.clone();
    let mut place = asker.place(director).await?;
    let mut turn = None;
    let mut plans = 0;
    loop {
        plans += 1;
        let prepared = prepare_in_place(director, deployment, manifest, &options, purpose, asker, place).await;
        let mut prepared = match prepared {
            Err(TaskError::NoPlace) => return Ok(None),
            prepared => prepared?,
        };
        if !large::may_keep(director, log, &prepared.plan).await? {
            return Ok(None);
        }
        must_have_space(director, log, &options)?;
        prepared.keep_what_is_stored();
        match reserve(director, log, &prepared, &options).await {
            Err(error @ (StoreError::AddressTaken(_) | StoreError::Gone(_))) if plans < PLANS_OF_A_DEPLOY => {
                log.debug(&format!("planning once more: {error}"));
                // It keeps the place that it has: others of its user wait for it already.
                place = prepared.place.take();
                drop(prepared);
                // The lowest free ones are those that everybody takes.
                options.left_to_others = plans * ADDRESSES_OF_OTHERS;
            }
            reserved => {
                reserved?;
                prepared.keep_the_plan_alone();
                return Ok(Some(prepared));
            }
        }
        if turn.is_none() {
            let user = director.users.party(log.user());
            turn =
                log.unless_cancelled(async { Ok::<_, TaskError>(director.limits.planning_again(user).await) }).await?;
        }
    }
}

/// A plan has megabytes in the database, and what instances are brought to as many.
fn must_have_space(director: &Director, log: &TaskLog, options: &DeployOptions) -> Result<(), TaskError> {
    // What makes room, or brings back what ran, is needed most when the disk is full.
    let is_free = options.dry_run || !options.takes_newer() || director.users.admins().contains(&log.user());
    if is_free || director.has_space() {
        return Ok(());
    }
    let reason = "there is no space left on the director's disk for what this deploy would note; make room there, for example with 'clean-up --all'";
    Err(TaskError::refused(100, reason.to_owned()))
}

/// Reserves what a plan needs, while nobody else reserves any addresses.
async fn reserve(
    director: &Director,
    log: &TaskLog,
    prepared: &PreparedDeploy,
    options: &DeployOptions,
) -> Result<(), StoreError> {
    // Nobody carries it out, and its task says what it is.
    if options.dry_run {
        return Ok(());
    }
    let _turn = director.limits.addresses().await;
    log.count(director.store.save_plan(log.task(), &prepared.plan).await?);
    director.store.also_use_stemcells(&prepared.plan.deployment, &prepared.stemcells).await?;
    director.store.also_use_releases(&prepared.plan.deployment, &prepared.releases).await?;
    director.store.begin_instances(instance_records(&prepared.plan), &prepared.plan.software).await?;
    match &prepared.plan.links {
        Some(links) => director.store.note_links(&prepared.plan.deployment, links).await,
        None => Ok(()),
    }
}

/// What the instances are brought to; those to which nothing is done are there already.
pub(super) fn instance_records(plan: &Plan) -> impl Iterator<Item = InstanceRecord> {
    let workers = plan.compilation.iter().flat_map(|compilation| &compilation.workers);
    let is_worker = |instance: &InstancePlan| is_compilation_group(&instance.group);
    plan.instances().chain(workers).map(move |instance| InstanceRecord {
        id: instance.id.clone(),
        deployment: plan.deployment.clone(),
        group: instance.group.clone(),
        index: instance.index,
        az: instance.az.clone(),
        bootstrap: instance.bootstrap,
        state: instance.state,
        spec: instance.spec.clone(),
        applied: None,
        converged: instance.actions.is_empty() && !is_worker(instance),
        ignored: false,
    })
}

/// Which of an instance's actions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Creation,
    Rest,
    Whole,
}

/// A plan being carried out. What is on record of an instance is read when its turn comes: that of all may have hundreds of
/// megabytes, for as long as the slowest of them takes.
pub(super) struct DeployRun<'a> {
    director: &'a Arc<Director>,
    log: &'a TaskLog,
    deployment: &'a DeploymentName,
    /// What agents of VMs that take the place of others installed, by instance.
    prepared: Mutex<BTreeMap<InstanceId, execute::PreparedVm>>,
}

impl<'a> DeployRun<'a> {
    pub(super) fn new(director: &'a Arc<Director>, log: &'a TaskLog, deployment: &'a DeploymentName) -> Self {
        Self { director, log, deployment, prepared: Mutex::default() }
    }

    /// A stage for each group that gets smaller, as BOSH has it, and one for all instances whose groups go.
    pub(super) async fn remove(&self, plan: &Plan) -> Result<(), TaskError> {
        let mut by_stage: BTreeMap<Option<&str>, Vec<&InstancePlan>> = BTreeMap::new();
        for instance in &plan.removed {
            let group = plan.groups.iter().find(|group| group.name == instance.group).map(|group| group.name.as_str());
            by_stage.entry(group).or_default().push(instance);
        }
        let each: Waiting<'_> = Box::new(by_stage.into_iter().flat_map(|(group, instances)| {
            let stage = self.log.stage("Deleting unneeded instances", group.as_slice(), instances.len());
            instances.into_iter().map(move |instance| -> BoxFuture<'_, _> {
                let part = stage.part(&instance.label());
                Box::pin(async move {
                    let work = self.execute(&part, instance, Stage::Whole, None);
                    part.run(with_event(self.director, self.log, self.deployment, instance, work)).await.map(drop)
                })
            })
        }));
        all(each, self.director.settings.max_threads).await
    }

    pub(super) async fn create_missing_vms(&self, plan: &Plan) -> Result<(), TaskError> {
        let missing: Vec<_> = plan.instances().filter(|instance| instance.actions.creation.is_some()).collect();
        let stage = self.log.stage("Creating missing vms", &[], missing.len());
        let each: Waiting<'_> = Box::new(missing.into_iter().map(|instance| -> BoxFuture<'_, _> {
            let part = stage.part(&instance.label());
            Box::pin(async move { part.run(self.execute(&part, instance, Stage::Creation, None)).await.map(drop) })
        }));
        all(each, self.director.settings.max_threads).await
    }

    /// VMs that are to take the place of others get what they will run while those still run.
    async fn download_packages(&self, plan: &Plan) -> Result<(), TaskError> {
        let is_swapped = |instance: &&InstancePlan| {
            let swaps = |action: &Action| matches!(action.what, ActionKind::SwapVm { .. });
            has_running_jobs(instance) && instance.actions.iter().any(swaps)
        };
        let swapped: Vec<_> = plan.instances().filter(is_swapped).collect();
        let stage = self.log.stage("Downloading packages", &[], swapped.len());
        let each: Waiting<'_> = Box::new(swapped.into_iter().map(|instance| -> BoxFuture<'_, _> {
            let part = stage.part(&instance.label());
            Box::pin(async move { part.run(self.download_for(&part, instance)).await })
        }));
        all(each, self.director.settings.max_threads).await
    }

    async fn download_for(&self, part: &Arc<EventPart>, instance: &InstancePlan) -> Result<(), TaskError> {
        // Its VM was made a moment ago.
        let current = reload_one(self.director, &instance.id).await?;
        let (director, log) = (self.director, self.log);
        let mut execution = Execution::new(director, log, part.clone(), self.deployment, instance, current.as_ref());
        if let Some(prepared) = execution.prepare_spare().await? {
            let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(instance.id.clone(), prepared);
        }
        Ok(())
    }

    fn prepared_for(&self, instance: &InstancePlan) -> Option<execute::PreparedVm> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(&instance.id).cloned()
    }

    /// Zone by zone, and canaries before the rest of the first one: if one of them fails, the others are left alone.
    pub(super) async fn update(&self, group: &GroupPlan) -> Result<(), TaskError> {
        let zones = group.changed_by_zone();
        let stage = self.log.stage("Updating instance", &[&group.name], zones.iter().map(Vec::len).sum());
        let stage = stage.telling_steps();
        let mut canaries = group.canaries;
        for zone in zones {
            let (first, others) = zone.split_at(std::mem::take(&mut canaries).min(zone.len()));
            let batches = [(first, " (canary)", group.canary_watch_time), (others, "", group.update_watch_time)];
            for (batch, suffix, watch) in batches {
                let each: Waiting<'_> = Box::new(batch.iter().map(|instance| -> BoxFuture<'_, _> {
                    let part = stage.part(&format!("{}{suffix}", instance.label()));
                    Box::pin(async move {
                        let work = self.update_one(&part, instance, watch);
                        part.run(with_event(self.director, self.log, self.deployment, instance, work)).await
                    })
                }));
                all(each, group.max_in_flight).await?;
            }
        }
        Ok(())
    }

    async fn update_one(
        &self,
        part: &Arc<EventPart>,
        instance: &InstancePlan,
        watch: Option<WatchTime>,
    ) -> Result<(), TaskError> {
        if let Some(configuration) = self.execute(part, instance, Stage::Rest, watch).await? {
            self.director.store.note_configuration(&instance.id, &configuration).await?;
        }
        Ok(self.director.store.finish_instance(&instance.id).await?)
    }

    /// Once everything runs, all jobs hear of it, if anything changed.
    async fn post_deploy(&self, plan: &Plan) -> Result<(), TaskError> {
        if plan.is_empty() {
            return Ok(());
        }
        let each: Waiting<'_> = Box::new(plan.instances().filter(|instance| has_running_jobs(instance)).map(
            |instance| -> BoxFuture<'_, _> {
                Box::pin(async move {
                    let Some(vm) = reload_one(self.director, &instance.id).await?.and_then(|present| present.vm) else {
                        return Ok(());
                    };
                    let log = self.log.clone();
                    let agent = self.director.agents.of(&vm).until(Cancellation::when(move || log.is_cancelled()));
                    match agent.run_script("post-deploy", &Default::default()).await.map_err(StepError::from) {
                        Ok(_) => Ok(()),
                        Err(error) => {
                            let (director, log) = (self.director, self.log);
                            Err(failed_jobs::explained(director, log, instance, Some(&vm), error.into()).await)
                        }
                    }
                })
            },
        ));
        all(each, self.director.settings.max_threads).await
    }

    async fn execute(
        &self,
        part: &Arc<EventPart>,
        instance: &InstancePlan,
        stage: Stage,
        watch: Option<WatchTime>,
    ) -> Result<Option<String>, TaskError> {
        let Actions { creation, rest } = &instance.actions;
        let actions = match stage {
            Stage::Creation => creation.iter().cloned().collect(),
            Stage::Rest => rest.clone(),
            Stage::Whole => instance.actions.to_vec(),
        };
        let execution = {
            let current = reload_one(self.director, &instance.id).await?;
            Execution::new(self.director, self.log, part.clone(), self.deployment, instance, current.as_ref())
        };
        let execution = execution.bringing(&self.director.store, &instance.id);
        let mut execution = execution.having_prepared(self.prepared_for(instance));
        if let Some(watch) = watch {
            execution = execution.watching(watch);
        }
        if let Err(errors) = execution.run(&actions, Failures::Stop).await {
            let error = one_or_several(errors);
            return Err(failed_jobs::explained(self.director, self.log, instance, execution.vm(), error).await);
        }
        Ok(execution.configuration())
    }
}

fn has_running_jobs(instance: &InstancePlan) -> bool {
    instance.state == InstanceState::Started && instance.spec.as_ref().is_some_and(|spec| spec.software.is_some())
}

pub(super) fn one_or_several(mut errors: Vec<TaskError>) -> TaskError {
    match errors.len() {
        1 => errors.remove(0),
        _ => TaskError::Several(errors),
    }
}

/// Futures that are made one by one.
pub(super) type Waiting<'a> = Box<dyn Iterator<Item = BoxFuture<'a, Result<(), TaskError>>> + Send + 'a>;

/// Runs futures, some at a time; the others are not made yet, because they take room. After a failure no further one is begun;
/// those that run are finished, and all failures are reported.
pub(super) async fn all(mut waiting: Waiting<'_>, at_once: usize) -> Result<(), TaskError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewConfig;
    use crate::tasks::prepare;
    use crate::testing::TestDirector;
    use windlass_planning::records::ReleaseRecord;

    /// A release can be deleted while a deploy plans with it.
    #[tokio::test]
    async fn a_release_that_is_deleted_while_a_deploy_is_planned_is_named_by_the_deploy() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_config(NewConfig::new("cloud", "default", "azs: [{name: z1}]\n"), |_| true).await.unwrap();
        let release = ReleaseRecord { name: "web".into(), version: "1".into(), ..ReleaseRecord::default() };
        store.take_release(&release, &[]).await.unwrap();
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        store
            .tamper(
                "CREATE TRIGGER deleted BEFORE INSERT ON deployment_releases BEGIN DELETE FROM release_versions; END",
            )
            .await;
        let manifest = "name: shop\nreleases: [{name: web, version: '1'}]\nstemcells: []\nupdate: {canaries: 1, max_in_flight: 1, \
            canary_watch_time: 1, update_watch_time: 1}\ninstance_groups: []\n";
        let options = DeployOptions { verbatim: true, ..DeployOptions::default() };
        let log = TaskLog::open(&test.director, 1).unwrap();
        let shop = "shop".into();
        let mut deploy = std::pin::pin!(prepare_and_reserve(&test.director, &log, &shop, manifest, &options));
        // What plans again, which may take minutes, waits for its user's other plans, and nobody waits for it.
        let limits = &test.director.limits;
        let turn = limits.planning_again(test.director.users.party(log.user())).await;
        let patience = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(patience, &mut deploy).await.is_err(), "it plans beside another of its user");
        assert!(tokio::time::timeout(patience, limits.addresses()).await.is_ok(), "all others wait");
        drop(turn);
        let error = windlass_contract::explain(&deploy.await.map(drop).unwrap_err());
        assert!(error.starts_with("a release that this deployment uses was deleted while it was planned"), "{error}");
    }

    /// Each deploy notes a plan, and what its instances are brought to: a hundred megabytes for a manifest of one.
    #[tokio::test]
    async fn a_deploy_leaves_the_disk_its_reserve_and_a_dry_run_needs_no_room() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_config(NewConfig::new("cloud", "default", "azs: [{name: z1}]\n"), |_| true).await.unwrap();
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        let manifest = "name: shop\nreleases: []\nstemcells: []\nupdate: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, \
            update_watch_time: 1}\ninstance_groups: []\n";
        let log = TaskLog::open_for(&test.director, 1, "eve").unwrap();
        let deploy = async |dry_run: bool| {
            let options = DeployOptions { verbatim: true, dry_run, ..DeployOptions::default() };
            let done = prepare_and_reserve(&test.director, &log, &"shop".into(), manifest, &options).await;
            done.map(drop).map_err(|error| error.to_string())
        };
        deploy(false).await.unwrap();
        test.fill_the_disk();
        let refused = deploy(false).await.unwrap_err();
        assert!(refused.contains("no space left on the director's disk"), "{refused}");
        deploy(true).await.unwrap();
    }

    /// Four plans of twenty thousand instances at once took half a gigabyte, and a reader may ask for them.
    #[tokio::test]
    async fn one_plan_without_a_task_is_in_memory_at_a_time() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_config(NewConfig::new("cloud", "default", "azs: [{name: z1}]\n"), |_| true).await.unwrap();
        let manifest = "name: shop\nreleases: []\nstemcells: []\nupdate: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, \
            update_watch_time: 1}\ninstance_groups: []\n";
        let options = DeployOptions { verbatim: true, ..DeployOptions::default() };
        let limits = &test.director.limits;
        let waits = async || {
            let patience = std::time::Duration::from_millis(20);
            tokio::time::timeout(patience, limits.rendering_without_task("ann")).await.is_err()
        };
        let template_time = test.director.settings.template_time;
        let asker = Asker { user: "eve", task: None, template_time, sees_values: false };
        let plan = prepare(&test.director, &"shop".into(), manifest, &options, Purpose::Look, asker).await.unwrap();
        assert!(waits().await, "it is still there");
        drop(plan);
        assert!(!waits().await);
        // Those of tasks wait for nobody's answer to be taken.
        let log = TaskLog::open_for(&test.director, 1, "eve").unwrap();
        let asker = Asker { task: Some(&log), ..asker };
        let _plan = prepare(&test.director, &"shop".into(), manifest, &options, Purpose::Look, asker).await.unwrap();
        assert!(!waits().await);
    }

    /// Six tasks and four requests of a user read what runs on a deployment at once, before any of them waited for anything.
    #[tokio::test]
    async fn few_plans_of_a_user_are_in_the_making_at_once() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_config(NewConfig::new("cloud", "default", "azs: [{name: z1}]\n"), |_| true).await.unwrap();
        let manifest = "name: shop\nreleases: []\nstemcells: []\ninstance_groups: []\n";
        let options = DeployOptions { verbatim: true, ..DeployOptions::default() };
        let limits = &test.director.limits;
        let (shop, log) = ("shop".into(), TaskLog::open_for(&test.director, 1, "eve").unwrap());
        let template_time = test.director.settings.template_time;
        let is_done = async |asker: Asker<'_>| {
            let patience = std::time::Duration::from_millis(500);
            let prepared = prepare(&test.director, &shop, manifest, &options, Purpose::Look, asker);
            tokio::time::timeout(patience, prepared).await.is_ok()
        };
        let eve = Asker { user: "eve", task: None, template_time, sees_values: false };
        let held = limits.preparing_without_task("eve").await;
        assert!(!is_done(eve).await && is_done(Asker { user: "ann", ..eve }).await);
        assert!(is_done(Asker { task: Some(&log), ..eve }).await, "tasks have places of their own");
        drop(held);
        let held = [limits.preparing("eve").await, limits.preparing("eve").await];
        assert!(!is_done(Asker { task: Some(&log), ..eve }).await && is_done(eve).await);
        drop(held);
        assert!(is_done(Asker { task: Some(&log), ..eve }).await);
    }

    #[tokio::test]
    async fn a_deploy_that_waits_for_its_turn_to_render_is_cancelled_and_others_have_theirs() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_config(NewConfig::new("cloud", "default", "azs: [{name: z1}]\n"), |_| true).await.unwrap();
        store.add_deployment(&"shop".into(), &[]).await.unwrap();
        let manifest = "name: shop\nreleases: []\nstemcells: []\nupdate: {canaries: 1, max_in_flight: 1, canary_watch_time: 1, \
            update_watch_time: 1}\ninstance_groups: []\n";
        let options = DeployOptions { verbatim: true, dry_run: true, ..DeployOptions::default() };
        let _held = [test.director.limits.rendering("eve").await, test.director.limits.rendering("eve").await];
        let log = TaskLog::open_for(&test.director, 1, "eve").unwrap();
        let shop = "shop".into();
        let deploy = prepare_and_reserve(&test.director, &log, &shop, manifest, &options);
        let (waited, ()) = tokio::join!(deploy, async { log.cancel() });
        let error = waited.map(drop).unwrap_err();
        assert!(error.is_cancellation(), "{error}");
        let log = TaskLog::open_for(&test.director, 2, "ann").unwrap();
        let prepared = prepare_and_reserve(&test.director, &log, &"shop".into(), manifest, &options).await.unwrap();
        assert_eq!((prepared.plan.links, prepared.current.instances.len()), (None, 0), "what is on record is not kept");
    }
}
