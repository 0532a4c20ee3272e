//! Reads what is wanted and what is, and plans. Nothing changes but the numbers of groups, once a plan is carried out.

mod documents;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use windlass_contract::cpi::CloudLimits;
use windlass_contract::cpi::methods::CalculateVmCloudProperties;
use windlass_contract::explain;
use windlass_manifest::names;
use windlass_planning::desired::{
    DeploymentManifest, Desired, DesiredSize, Finding, Findings, LinksFrom, RuntimeConfig, Wanted, linked_deployments,
    resolve,
};
use windlass_planning::links::LinkProvider;
use windlass_planning::names::{CpiName, DeploymentName, InstanceId};
use windlass_planning::plan::{Calculated, Current, CurrentInstance, Plan, PlanOptions, plan, refuse_impossible};
use windlass_planning::records::{DiskRecord, InstanceRecord, VmRecord};
use windlass_planning::software::{Software, VariableSet};
use windlass_render::Native;
use windlass_variables::{Scope, with_absolute_names};

use super::{DeployOptions, TaskError, TaskLog, cloud_limits, large, vm_stats};
use crate::Director;
use crate::dns_border;
use crate::limits::RenderingTurn;
use crate::store::{Contact, RoomForLinks};
use crate::team_limits;
use crate::variables::deployed::{self, Use};
use crate::variables::{KnownValues, border};
use documents::{Documents, Offer};
pub(super) use documents::{configs, must_have_cloud_config};

/// How many bytes of findings are told, or a little more.
const MOST_TOLD: usize = 128 << 10;

/// How many sizes CPIs are asked about for one plan: each is a call, and readers plan as well.
const MOST_SIZES: usize = 500;

/// How long a plan without a task keeps its turn while clouds are asked for their limits.
const CLOUDS_SOON: Duration = Duration::from_secs(5);

/// What a deploy is about to do.
pub(crate) struct PreparedDeploy {
    pub(crate) plan: Plan,
    /// What templates see of variables.
    pub(crate) values: Arc<KnownValues>,
    /// What was there when it was planned.
    pub(crate) current: Current,
    /// Ids of the stemcells in use.
    pub(super) stemcells: Vec<i64>,
    /// Ids of the configs in use.
    pub(super) configs: Vec<i64>,
    /// Ids of the versions of releases in use.
    pub(super) releases: Vec<i64>,
    /// Which jobs need Ruby, and for what.
    pub(crate) needs_ruby: Vec<String>,
    /// Of a plan without a task: others have theirs when this one is gone.
    pub(crate) turn: Option<RenderingTurn>,
    /// Of its user, for as long as what it was made from is in memory.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl PreparedDeploy {
    /// Forgets what the plan was made from: storing the plan takes memory as well.
    pub(super) fn keep_what_is_stored(&mut self) {
        self.values = Arc::default();
        self.current = Current { variables: self.current.variables, ..Current::default() };
    }

    /// Forgets what is on record by now: a task has its plan for hours, and a user several tasks.
    pub(super) fn keep_the_plan_alone(&mut self) {
        (self.place, self.plan.links) = (None, None);
    }
}

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Somebody wants to know: nothing is recorded.
    Look,
    /// A task carries it out: groups of instances get their numbers, and variables their values.
    Deploy(i64),
}

/// The user of a plan, and how long the templates may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) user: &'a str,
    /// The task that asks; none if nobody wants one for it.
    pub(crate) task: Option<&'a TaskLog>,
    pub(crate) template_time: Duration,
    /// Whether they may see what templates make of values of variables.
    pub(crate) sees_values: bool,
}

impl Asker<'_> {
    fn must_go_on(&self) -> Result<(), TaskError> {
        if self.task.is_some_and(TaskLog::is_cancelled) { Err(TaskError::Cancelled) } else { Ok(()) }
    }

    /// A place to read what the plan is made from.
    pub(super) async fn place(&self, director: &Director) -> Result<Option<OwnedSemaphorePermit>, TaskError> {
        let party = director.users.party(self.user);
        match self.task {
            None => Ok(director.limits.preparing_without_task(party).await),
            Some(task) => {
                task.unless_cancelled(async { Ok::<_, TaskError>(director.limits.preparing(party).await) }).await
            }
        }
    }

    /// A turn to render. Plans without a task have turns of their own, and who cancels a task does not wait for one.
    async fn turn(&self, director: &Director) -> Result<RenderingTurn, TaskError> {
        match self.task {
            None => Ok(director.limits.rendering_without_task(director.users.party(self.user)).await),
            Some(task) => {
                task.unless_cancelled(async {
                    Ok::<_, TaskError>(director.limits.rendering(director.users.party(self.user)).await)
                })
                .await
            }
        }
    }
}

/// Reads and plans. All that is wrong with any document is told at once.
pub(crate) async fn prepare(
    director: &Director,
    deployment: &DeploymentName,
    manifest: &str,
    options: &DeployOptions,
    purpose: Purpose,
    asker: Asker<'_>,
) -> Result<PreparedDeploy, TaskError> {
    let place = asker.place(director).await?;
    prepare_in_place(director, deployment, manifest, options, purpose, asker, place).await
}

/// The same, by who has a place already.
pub(super) async fn prepare_in_place(
    director: &Director,
    deployment: &DeploymentName,
    manifest: &str,
    options: &DeployOptions,
    purpose: Purpose,
    asker: Asker<'_>,
    mut place: Option<OwnedSemaphorePermit>,
) -> Result<PreparedDeploy, TaskError> {
    let mut findings = Findings::new();
    let documents = Documents::read(director, deployment, manifest, options, &mut findings).await?;
    let Documents { manifest, configs, teams, cloud, runtime, cpis, mut named } = documents;
    let offer = Offer::of(director, deployment, (&manifest, &runtime), options).await?;
    if options.takes_newer() {
        if let Some(reason) = border::refusal_of_name(director, deployment, &teams).await? {
            findings.say(reason);
        }
        named.add_defaults(&offer.releases);
        border::refuse_those_of_others(director, deployment, &teams, named, &configs, &mut findings).await?;
    }
    let local_dns = director.settings.local_dns;
    let names = manifest.names.in_use(local_dns.enabled, local_dns.use_dns_addresses, &mut findings);
    let others = providers_elsewhere(director, (&manifest, &runtime), options).await?;
    let wanted = Wanted {
        manifest: &manifest,
        cloud: &cloud,
        runtime: &runtime,
        cpis: &cpis,
        stemcells: &offer.stemcells,
        releases: &offer.releases,
        compiled: &offer.compiled,
        teams: &teams,
        links: others.as_ref().map_or(LinksFrom::Records, LinksFrom::Manifest),
        names,
    };
    let mut desired = director.limits.heavily(|| resolve(wanted, &mut findings)).await;
    if desired.is_too_large {
        return Err(refusal(&findings, options));
    }
    // What is there already is stopped and started, however large it is.
    desired.is_of_team &= options.takes_newer();
    if let Some(task) = asker.task
        && !large::may_plan(director, task, desired.weight()).await?
    {
        return Err(TaskError::NoPlace);
    }
    refuse_unknown_cpis(director, &desired, &mut findings);
    refuse_jobs_where_they_do_not_run(director, &desired, &mut findings).await;

    let mut current = read_current(director, deployment).await?;
    if let Some(errand) = &options.errand {
        desired.groups.retain(|group| group.name == *errand);
        current.instances.retain(|instance| instance.record.group == *errand);
    }
    refuse_odd_names(&desired, &current, &mut findings);
    if options.takes_newer() {
        let is_there = !current.instances.is_empty();
        let names = (deployment, desired.links.providers.as_slice());
        dns_border::refuse_those_of_others(director, names, &teams, is_there, &mut findings).await?;
        dns_border::refuse_very_many(director, &desired, &teams, &mut findings);
        if let Some(reason) = team_limits::refusal_of_releases(deployment, &teams, desired.releases.len()) {
            findings.say(reason);
        }
        if let Some(reason) = team_limits::refusal_of_records(director, &teams).await? {
            findings.say(reason);
        }
    }
    current.addresses = director.store.addresses().await?;
    current.calculated = calculate(director, &desired, &mut findings).await;
    let (software, is_all) = director.store.software_of(deployment).await?;
    if !is_all && !options.takes_newer() {
        findings.say(format!(
            "the instances of '{deployment}' were left with so many versions of their jobs that they do not fit into memory together; \
             deploy it"
        ));
    }
    current.software = software;
    let mut values = KnownValues::default();
    if findings.is_clean() {
        if let Purpose::Deploy(_) = purpose {
            director.store.number_groups(&desired).await?;
        }
        current.numbers = director.store.dns_numbers_of(deployment).await?;
        let (azs, networks) = desired.named_places();
        current.numbers.foresee(&azs, &networks);
        let wanted = (deployment, &manifest, &runtime, &desired);
        let gathered = gather_values(director, wanted, &current, use_of_values(purpose, options), asker).await?;
        (values, current.variables) = gathered;
    }
    let values = Arc::new(values);
    let software: Vec<&Software> = desired.groups.iter().filter_map(|group| group.software.as_ref()).collect();
    current.compiled = offer.compiled;
    let jobs = software.iter().flat_map(|software| &software.jobs);
    // Asking agents takes time, which a manifest that is wrong is not worth.
    if findings.is_clean() {
        vm_stats::find_unresponsive(director, &mut current).await;
    }
    let plan_options = plan_options(options);
    let mut new_id = new_ids(director, deployment).await?;
    let turn = asker.turn(director).await?;
    // In a turn, and gone after it: the templates of a plan may have megabytes, and there are many users.
    let templates = director.library.rendering(jobs).await?.knowing(values.clone());
    let templates = templates.within(asker.template_time).until_cancelled(asker.task.cloned());
    let make = || Native::for_many(|| plan(&desired, &current, &plan_options, &templates, &mut new_id, &mut findings));
    let mut plan = turn.work(make);
    // Tasks do not tell it.
    let needs_ruby = if asker.task.is_none() { templates.needs_ruby(&director.limits).await } else { Vec::new() };
    drop(templates);
    let mut turn = asker.task.is_none().then_some(turn);
    asker.must_go_on()?;
    if findings.is_clean() {
        let limits = ask_for_limits(director, &plan, &current, (&mut turn, &mut place)).await?;
        refuse_impossible(&plan, &desired, &limits, &mut findings);
    }
    let instances = (current.instances.len(), plan.instances().count());
    if let Some(reason) = team_limits::refusal_of_instances(director, deployment, &teams, instances).await? {
        findings.say(reason);
    }
    if !findings.is_clean() {
        return Err(refusal(&findings, options));
    }
    plan.warnings = told(findings.warnings().iter(), options);
    if current.instances.iter().any(|instance| instance.record.ignored) {
        plan.warnings.push("You have ignored instances. They will not be changed.".to_owned());
    }
    let nesting = name_nesting_vms(director, &plan).await;
    plan.warnings.extend(nesting);
    Ok(PreparedDeploy {
        plan,
        values,
        current,
        stemcells: desired.stemcells,
        configs: configs.iter().map(|config| config.id).collect(),
        releases: desired.releases,
        needs_ruby,
        turn,
        place,
    })
}

/// Asks clouds what they can have. Plans for other clouds do not wait for one that is silent: turn and place are given back.
async fn ask_for_limits(
    director: &Director,
    plan: &Plan,
    current: &Current,
    (turn, place): (&mut Option<RenderingTurn>, &mut Option<OwnedSemaphorePermit>),
) -> Result<BTreeMap<CpiName, CloudLimits>, TaskError> {
    let mut asking = std::pin::pin!(cloud_limits::of_plan(director, plan, current));
    if let Ok(limits) = tokio::time::timeout(CLOUDS_SOON, &mut asking).await {
        return limits;
    }
    (*turn, *place) = (None, None);
    asking.await
}

/// What is asked for beside the manifest.
fn plan_options(options: &DeployOptions) -> PlanOptions {
    PlanOptions {
        recreate: options.recreate,
        created_before: options.recreate_created_before,
        recreate_disks: options.recreate_persistent_disks,
        only: options.only.clone(),
        change: options.change_state.clone(),
        skip_drain: options.skip_drain.clone(),
        fix: options.fix,
        canaries: options.canaries,
        max_in_flight: options.max_in_flight,
        errand: options.errand.is_some(),
        left_to_others: options.left_to_others,
    }
}

/// All that is wrong.
fn refusal(findings: &Findings, options: &DeployOptions) -> TaskError {
    let mut told = told(findings.problems().iter().chain(findings.warnings_beside_problems()), options);
    if findings.left_out() > 0 {
        told.push(format!("{} more are not listed; mend these first", findings.left_out()));
    }
    let message = told.join("\n");
    match findings.code() {
        Some(code) => TaskError::refused(code, message),
        None => TaskError::Input(message),
    }
}

async fn gather_values(
    director: &Director,
    (deployment, manifest, runtime, desired): (&DeploymentName, &DeploymentManifest, &RuntimeConfig, &Desired),
    current: &Current,
    purpose: Use,
    asker: Asker<'_>,
) -> Result<(KnownValues, Option<VariableSet>), TaskError> {
    let definitions: Vec<_> = manifest.variables.iter().chain(&runtime.variables).collect();
    let wanted = deployed::WantedVariables {
        deployment,
        definitions: &definitions,
        converge: manifest.converge_variables,
        desired,
        current,
        log: asker.task,
        sees_values: asker.sees_values,
    };
    let gathered = deployed::gather(director, wanted, purpose).await;
    asker.must_go_on()?;
    Ok(gathered?)
}

/// Only a deploy makes values and takes newer ones.
fn use_of_values(purpose: Purpose, options: &DeployOptions) -> Use {
    match purpose {
        _ if !options.takes_newer() => Use::Kept,
        Purpose::Look => Use::Look,
        Purpose::Deploy(task) => Use::Deploy { task, latest: options.force_latest_variables },
    }
}

/// The providers of other deployments that jobs consume links from, by deployment. None if links are to stay as they are: only a
/// deploy looks for providers.
async fn providers_elsewhere(
    director: &Director,
    (manifest, runtime): (&DeploymentManifest, &RuntimeConfig),
    options: &DeployOptions,
) -> Result<Option<BTreeMap<String, Vec<Arc<LinkProvider>>>>, TaskError> {
    if !options.takes_newer() {
        return Ok(None);
    }
    let (mut elsewhere, mut room) = (BTreeMap::new(), RoomForLinks::default());
    for (name, links) in linked_deployments(manifest, runtime) {
        let name = DeploymentName::from(name);
        // Without its manifest, which may have megabytes.
        if director.store.teams_of(&name).await?.is_some() {
            let scope = Scope::of(&director.name, &name);
            let with_names = |provider: LinkProvider| {
                let content = with_absolute_names(&provider.content, &scope);
                Arc::new(LinkProvider { content, ..provider })
            };
            let providers = director.store.shared_link_providers(&name, &links, &mut room).await?;
            elsewhere.insert(name.into(), providers.into_iter().map(with_names).collect());
        }
    }
    Ok(Some(elsewhere))
}

/// What was found, as far as people read it: what goes on and on is stored with the task, and sent.
fn told<'f>(findings: impl Iterator<Item = &'f Finding>, options: &DeployOptions) -> Vec<String> {
    let findings: Vec<&Finding> = findings.collect();
    let (mut told, mut letters) = (Vec::new(), 0);
    for (at, finding) in findings.iter().enumerate() {
        if letters > MOST_TOLD {
            told.push(format!("{} more; mend these first", findings.len() - at));
            break;
        }
        let text = finding.describe_to_sender(options.verbatim);
        letters += text.len();
        told.push(text);
    }
    told
}

/// Ids for new instances, the same again until something was deployed.
pub(super) async fn new_ids(
    director: &Director,
    deployment: &DeploymentName,
) -> Result<impl FnMut() -> InstanceId, TaskError> {
    let generation = director.store.generation().await?;
    let seed = format!("{}/{generation}/{deployment}", director.uuid);
    let mut count = 0;
    Ok(move || {
        count += 1;
        uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, format!("{seed}/{count}").as_bytes()).to_string().into()
    })
}

/// Asks CPIs what resources mean in their clouds.
pub(super) async fn calculate(director: &Director, desired: &Desired, findings: &mut Findings) -> Calculated {
    let mut calculated = Calculated::default();
    let wanted = desired.resources();
    if wanted.len() > MOST_SIZES {
        let count = wanted.len();
        findings.say(format!(
            "the groups have {count} different vm_resources, and CPIs are asked about {MOST_SIZES} at most; use vm_type"
        ));
        return calculated;
    }
    for (name, resources) in wanted {
        let Ok(cpi) = director.clouds.cpi(name) else { continue };
        match cpi.call(&CalculateVmCloudProperties { desired: resources }, None).await {
            Ok(cloud_properties) => calculated.insert(name, resources, cloud_properties),
            Err(error) => {
                let uses = |size: &DesiredSize| *size == DesiredSize::Resources(resources);
                let reason = format!("the CPI cannot tell what its vm_resources mean: {}", explain(&error));
                for group in desired.groups.iter().filter(|group| uses(&group.vm_size)) {
                    findings.push(group.place.problem(reason.clone()));
                }
            }
        }
    }
    calculated
}

/// Groups that are there already keep their names, whatever they are.
fn refuse_odd_names(desired: &Desired, current: &Current, findings: &mut Findings) {
    let is_known = |name: &str| current.instances.iter().any(|instance| instance.record.group == name);
    for group in desired.groups.iter().filter(|group| !is_known(&group.name)) {
        if let Err(error) = names::check(&group.name) {
            findings.push(group.place.problem(format!("its name: {error}")));
        }
    }
}

fn refuse_unknown_cpis(director: &Director, desired: &Desired, findings: &mut Findings) {
    for group in &desired.groups {
        for zone in group.zones.iter().filter(|zone| director.clouds.cpi(&zone.cpi).is_err()) {
            let az = zone.az.as_deref().unwrap_or_default();
            let message = format!("this director does not drive {} of its az '{az}'", zone.cpi);
            findings.push(group.place.problem(message));
        }
    }
}

/// A cloud that says so cannot run jobs on its VMs, whatever is deployed there.
async fn refuse_jobs_where_they_do_not_run(director: &Director, desired: &Desired, findings: &mut Findings) {
    for group in desired.groups.iter().filter(|group| group.software.is_some()) {
        let mut asked: Vec<&CpiName> = Vec::new();
        for zone in &group.zones {
            if asked.contains(&&zone.cpi) {
                continue;
            }
            asked.push(&zone.cpi);
            let Ok(cpi) = director.clouds.cpi(&zone.cpi) else { continue };
            // A CPI that does not answer says so itself, and better, when it is asked for a VM.
            let Ok(info) = cpi.info().await else { continue };
            let os = group.stemcells.first().map_or("", |stemcell| &stemcell.os);
            if let Some(reason) = info.jobs_refusal(os) {
                findings.push(group.place.problem(format!("its jobs cannot run on VMs of this cloud: {reason}")));
            }
        }
    }
}

/// A VM that is less confined than others is named before it is made.
async fn name_nesting_vms(director: &Director, plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    for (group, cpi) in plan.groups_that_nest() {
        let Ok(cpi) = director.clouds.cpi(cpi) else { continue };
        // Others may mean something else by it.
        if cpi.info().await.is_ok_and(|info| info.nests_containers()) {
            warnings.push(format!(
                "new VMs of '{group}' are made with 'nesting': their programs may make containers and write control groups"
            ));
        }
    }
    warnings
}

/// What is, as far as the director knows. Without the addresses in use, which only planning needs: they are those of all
/// deployments.
pub(crate) async fn read_current(director: &Director, deployment: &DeploymentName) -> Result<Current, TaskError> {
    let mut vms: BTreeMap<InstanceId, Vec<_>> = BTreeMap::new();
    for vm in director.store.vms(deployment).await? {
        vms.entry(vm.instance.clone()).or_default().push(vm);
    }
    let mut disks: BTreeMap<InstanceId, Vec<_>> = BTreeMap::new();
    for disk in director.store.disks(Some(deployment)).await? {
        disks.entry(disk.instance.clone()).or_default().push(disk);
    }
    let together = |record: InstanceRecord| {
        let (vms, disks) = (vms.remove(&record.id), disks.remove(&record.id));
        current_instance(record, vms.unwrap_or_default(), disks.unwrap_or_default())
    };
    let instances = director.store.instances(deployment).await?.into_iter().map(together).collect();
    Ok(Current { instances, ..Current::default() })
}

/// The same without what may be large: specs and cloud properties.
pub(crate) async fn read_outline(director: &Director, deployment: &DeploymentName) -> Result<Current, TaskError> {
    let mut disks: BTreeMap<InstanceId, Vec<_>> = BTreeMap::new();
    for disk in director.store.disks_in_outline(deployment).await? {
        disks.entry(disk.instance.clone()).or_default().push(disk);
    }
    let together = |Contact { record, vm }| {
        let disks = disks.remove(&record.id).unwrap_or_default();
        CurrentInstance { record, vm, spare: None, disks, unresponsive: false }
    };
    let instances = director.store.contacts(deployment).await?.into_iter().map(together).collect();
    Ok(Current { instances, ..Current::default() })
}

/// One instance, as far as the director knows.
pub(crate) async fn reload_one(director: &Director, id: &InstanceId) -> Result<Option<CurrentInstance>, TaskError> {
    let Some(record) = director.store.instance(id).await? else { return Ok(None) };
    let (vms, disks) = (director.store.vms_of(id).await?, director.store.disks_of(id).await?);
    Ok(Some(current_instance(record, vms, disks)))
}

fn current_instance(record: InstanceRecord, vms: Vec<VmRecord>, disks: Vec<DiskRecord>) -> CurrentInstance {
    let (mut spares, mut vms): (Vec<_>, Vec<_>) = vms.into_iter().partition(|vm| vm.spare);
    CurrentInstance { record, vm: vms.drain(..).next(), spare: spares.drain(..).next(), disks, unresponsive: false }
}
