//! Carries out what somebody chose to do about problems.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use windlass_agent_client::{Agent, Deadlines};
use windlass_contract::cpi::{CloudLimits, ErrorType};
use windlass_contract::{DiskCid, RequestId, explain};
use windlass_operations::clouds::{ChangeError, OnBehalfOf};
use windlass_operations::ledger::{Change, Fact, Intent, Ledger};
use windlass_operations::steps::{Progress, StepId};
use windlass_planning::desired::Count;
use windlass_planning::names::{CpiName, DeploymentName, InstanceId};
use windlass_planning::plan::{
    ASKED_FOR, Action, ActionKind, Current, CurrentInstance, InstancePlan, Plan, Wish, plan_state_change,
};
use windlass_planning::problems::{OpenProblem, Problem, Resolution};
use windlass_planning::records::{DiskRecord, InstanceState, VmRecord};

use super::cloud_limits::{self, must_be_possible};
use super::execute::{Execution, Failures};
use super::large::reload;
use super::log::{EventPart, EventStage};
use super::prepare::reload_one;
use super::scan::{FAILING, PATIENCE, groups_of};
use super::update_deployment::one_or_several;
use super::{TaskError, TaskLog, failed_jobs, lock_deployment};
use crate::Director;

/// What clients choose about the problem with a number; none for what is automatic.
pub(crate) type Choices = Vec<(i64, Option<String>)>;

pub(super) async fn run(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    choices: &[(i64, Option<String>)],
    max_in_flight: &BTreeMap<String, Count>,
) -> Result<String, TaskError> {
    lock_deployment(director, log, deployment).await?;
    let open = director.store.open_problems(deployment).await?;
    for (id, _) in choices.iter().filter(|(id, _)| !open.iter().any(|problem| problem.id == *id)) {
        log.warning(&format!("Ignoring problem {id}: it is not open any more"));
    }
    let mut chosen = Vec::new();
    for problem in open {
        let Some((_, choice)) = choices.iter().find(|(id, _)| *id == problem.id) else {
            let (id, kind) = (problem.id, problem.problem.kind());
            return Err(TaskError::Input(format!("Resolution for problem {id} ({kind}) is not provided")));
        };
        let resolution = problem.chosen(choice.as_deref()).map_err(TaskError::Input)?;
        chosen.push((problem, resolution));
    }
    let resolved = apply(director, log, deployment, chosen, max_in_flight).await?;
    Ok(format!("{resolved} resolved"))
}

type Chosen = (OpenProblem, Resolution);

/// Group by group as a deploy goes; whatever fails, the others are dealt with as well.
pub(super) async fn apply(
    director: &Arc<Director>,
    log: &TaskLog,
    deployment: &DeploymentName,
    chosen: Vec<Chosen>,
    max_in_flight: &BTreeMap<String, Count>,
) -> Result<usize, TaskError> {
    let current = reload(director, log, deployment).await?;
    let stage = log.stage("Applying problem resolutions", &[], chosen.len());
    let all = chosen.len();
    let recreated: Vec<InstancePlan> = chosen
        .iter()
        .filter(|(_, how)| matches!(how, Resolution::RecreateVm | Resolution::RecreateVmWithoutWait))
        .filter_map(|(problem, _)| Some(because_of(&problem.problem, recreation(problem.problem.instance(&current)?))))
        .collect();
    // For 'explain': a VM that was replaced without a deploy is what people ask about.
    let plan = Plan { deployment: deployment.to_owned(), removed: recreated.clone(), ..Plan::default() };
    log.count(director.store.save_plan(log.task(), &plan).await?);
    let limits = cloud_limits::of_instances(director, &recreated, &current).await?;
    // Problems of one instance are dealt with one after the other: what is done about its VM changes what its disks need.
    let mut by_group: BTreeMap<String, BTreeMap<InstanceId, Vec<Chosen>>> = BTreeMap::new();
    for (problem, resolution) in chosen {
        let record = problem.problem.instance(&current).map(|instance| &instance.record);
        let (group, instance) =
            record.map_or_else(Default::default, |record| (record.group.clone(), record.id.clone()));
        by_group.entry(group).or_default().entry(instance).or_default().push((problem, resolution));
    }
    let scene = Scene { director, log, deployment, stage, current, limits };
    let mut batches: Vec<(bool, Vec<_>)> = Vec::new();
    for group in groups_of(director, deployment).await? {
        let Some(instances) = by_group.remove(&group.name) else { continue };
        let size = scene.current.instances.iter().filter(|it| it.record.group == group.name).count();
        let at_once = max_in_flight.get(&group.name).copied().unwrap_or(group.update.max_in_flight).of(size).max(1);
        let work = (instances, at_once);
        match batches.last_mut() {
            Some((false, batch)) if !group.update.serial => batch.push(work),
            _ => batches.push((group.update.serial, vec![work])),
        }
    }
    // Of groups that the manifest does not have any more.
    batches.extend(by_group.into_values().map(|instances| (true, vec![(instances, 1)])));
    let mut errors = Vec::new();
    for (_, batch) in batches {
        let mut groups: Vec<BoxFuture<'_, Vec<Vec<TaskError>>>> = Vec::new();
        for (instances, at_once) in batch {
            let mut each: Vec<BoxFuture<'_, Vec<TaskError>>> = Vec::new();
            for problems in instances.into_values() {
                each.push(Box::pin(scene.deal_with(problems)));
            }
            groups.push(Box::pin(stream::iter(each).buffer_unordered(at_once).collect()));
        }
        let results = futures_util::future::join_all(groups).await;
        errors.extend(results.into_iter().flatten().flatten());
    }
    if errors.is_empty() { Ok(all) } else { Err(one_or_several(errors)) }
}

struct Scene<'a> {
    director: &'a Arc<Director>,
    log: &'a TaskLog,
    deployment: &'a DeploymentName,
    stage: EventStage,
    current: Current,
    /// Of the clouds that make VMs for it.
    limits: BTreeMap<CpiName, CloudLimits>,
}

/// What gives an instance a new VM, with its disks.
fn recreation(instance: &CurrentInstance) -> InstancePlan {
    plan_state_change(instance, Wish::Recreate, false, true)
}

/// The same, with the problem as the reason of what would otherwise be there because somebody asked for it.
fn because_of(problem: &Problem, mut instance: InstancePlan) -> InstancePlan {
    let actions = instance.actions.creation.iter_mut().chain(&mut instance.actions.rest);
    for action in actions.filter(|action| action.reason == ASKED_FOR) {
        action.reason = match problem {
            Problem::MissingVm { .. } => "its VM was missing".to_owned(),
            Problem::UnresponsiveAgent { .. } => "its agent did not answer".to_owned(),
            Problem::FailingJobs { .. } => "its jobs were failing".to_owned(),
            other => format!("it had the problem '{}'", other.kind()),
        };
    }
    instance
}

impl Scene<'_> {
    /// All problems of one instance.
    async fn deal_with(&self, problems: Vec<Chosen>) -> Vec<TaskError> {
        let mut errors = Vec::new();
        for (number, (problem, resolution)) in problems.into_iter().enumerate() {
            let id = problem.id;
            let result = match number {
                0 => self.resolve(&self.current, &problem, resolution).await,
                _ => match self.as_it_is_now(&problem).await {
                    Ok(current) => self.resolve(&current, &problem, resolution).await,
                    Err(error) => Err(error),
                },
            };
            let closed = self.director.store.close_problem(id).await.map_err(TaskError::from);
            for error in [result, closed].into_iter().filter_map(Result::err) {
                errors.push(TaskError::NotResolved { problem: id, source: Box::new(error) });
            }
        }
        errors
    }

    /// What is now, of the instance of a problem alone: many are dealt with at once, and a deployment may be large.
    async fn as_it_is_now(&self, problem: &OpenProblem) -> Result<Current, TaskError> {
        let instance = problem.problem.instance(&self.current).map(|instance| &instance.record.id);
        let found = match instance {
            Some(id) => reload_one(self.director, id).await?,
            None => None,
        };
        Ok(Current { instances: found.into_iter().collect(), ..Current::default() })
    }

    async fn resolve(&self, current: &Current, problem: &OpenProblem, how: Resolution) -> Result<(), TaskError> {
        let problem = &problem.problem;
        let plan = problem.resolutions().iter().find(|(offered, _)| *offered == how).map_or("Close problem", |it| it.1);
        let description = problem.describe(current).unwrap_or_else(|| "It is gone".to_owned());
        let label = format!("{description} ({} {}): {plan}", problem.kind(), problem.resource());
        let part = self.stage.part(&label);
        let work = async {
            if self.log.is_cancelled() {
                return Err(TaskError::Cancelled);
            }
            match (how, problem.instance(current)) {
                (Resolution::Ignore | Resolution::Close, _) => Ok(()),
                (_, None) => Err(TaskError::Input(format!("{} is gone; scan again", problem.resource()))),
                (how, Some(instance)) => self.repair(&part, problem, instance, how).await,
            }
        };
        part.run(work).await
    }

    async fn repair(
        &self,
        part: &Arc<EventPart>,
        problem: &Problem,
        instance: &CurrentInstance,
        how: Resolution,
    ) -> Result<(), TaskError> {
        if matches!(problem, Problem::UnresponsiveAgent { .. }) {
            self.must_be_silent(instance).await?;
        }
        if matches!(problem, Problem::FailingJobs { .. }) {
            self.must_be_failing(instance).await?;
        }
        match how {
            Resolution::Ignore | Resolution::Close => Ok(()),
            Resolution::RebootVm => self.reboot(part, instance).await,
            Resolution::RecreateVm => self.recreate(part, instance, true).await,
            Resolution::RecreateVmWithoutWait => self.recreate(part, instance, false).await,
            Resolution::RestartJobs => {
                let plan = plan_state_change(instance, Wish::Restart, true, false);
                self.bring(part, instance, &plan, true).await
            }
            Resolution::DeleteVm => {
                let vm = vm_of(instance)?.cid.clone();
                self.act(part, instance, ActionKind::DeleteVm { vm }).await
            }
            Resolution::DeclareVmDead => {
                self.give_up_vm(instance).await?;
                let now = reload_one(self.director, &instance.record.id).await?;
                self.recreate(part, now.as_ref().unwrap_or(instance), true).await
            }
            Resolution::DeleteVmReference => self.forget_vm(problem, instance).await,
            Resolution::DeleteDiskReference => {
                let disk = disk_of(problem, instance)?;
                if let Some(vm) = &instance.vm {
                    self.unmount(vm, disk).await;
                    self.detach(part, vm, disk, &[ErrorType::VmNotFound, ErrorType::DiskNotFound]).await?;
                }
                Ok(self.director.store.record(&Fact::DiskOrphaned { disk: disk.cid.clone() }).await?)
            }
            Resolution::DeleteDisk => self.give_up_disk(part, instance, disk_of(problem, instance)?).await,
            Resolution::ActivateDisk => self.activate(instance, disk_of(problem, instance)?).await,
            Resolution::ReattachDisk => self.reattach(part, instance, disk_of(problem, instance)?).await,
            Resolution::ReattachDiskAndReboot => {
                self.reattach(part, instance, disk_of(problem, instance)?).await?;
                // The cloud may have put the disk somewhere else.
                let now = reload_one(self.director, &instance.record.id).await?;
                self.reboot(part, now.as_ref().unwrap_or(instance)).await
            }
        }
    }

    fn agent(&self, vm: &VmRecord) -> Agent {
        let deadlines = Deadlines { message: PATIENCE, silence: PATIENCE, task: PATIENCE };
        self.director.agents.of(vm).with_deadlines(deadlines)
    }

    /// Nobody repairs what works: an agent that came back is left alone.
    async fn must_be_silent(&self, instance: &CurrentInstance) -> Result<(), TaskError> {
        let Some(vm) = &instance.vm else { return Ok(()) };
        match self.agent(vm).ping().await {
            Ok(()) => {
                let name = instance.record.name();
                Err(TaskError::Input(format!("the agent of {name} is responding now; nothing was done to its VM")))
            }
            Err(_) => Ok(()),
        }
    }

    /// Jobs that run again are left alone, too.
    async fn must_be_failing(&self, instance: &CurrentInstance) -> Result<(), TaskError> {
        let name = instance.record.name();
        match self.agent(vm_of(instance)?).get_state(false).await {
            Ok(state) if state.job_state == FAILING => Ok(()),
            Ok(state) => {
                let state = state.job_state;
                Err(TaskError::Input(format!("the jobs of {name} are {state} now; nothing was done to them")))
            }
            Err(error) => {
                let error = explain(&error);
                Err(TaskError::Input(format!("the agent of {name} does not answer any more; scan again: {error}")))
            }
        }
    }

    async fn perform(&self, part: &EventPart, cpi: &CpiName, vm: &VmRecord, change: Change) -> Result<(), ChangeError> {
        let log = |line: &str| part.cpi_log(line);
        let who = OnBehalfOf { ledger: &self.director.store, task: Some(self.log.task()), log: &log };
        self.director.clouds.perform(who, cpi, vm.stemcell.api_version, change).await.map(drop)
    }

    async fn act(&self, part: &Arc<EventPart>, instance: &CurrentInstance, what: ActionKind) -> Result<(), TaskError> {
        let action = Action { what, reason: "cloud-check was asked for it".to_owned() };
        let mut plan = recreation(instance);
        plan.actions = vec![action].into();
        self.execute(part, instance, &plan, true).await
    }

    async fn execute(
        &self,
        part: &Arc<EventPart>,
        instance: &CurrentInstance,
        plan: &InstancePlan,
        wait: bool,
    ) -> Result<(), TaskError> {
        let execution = Execution::new(self.director, self.log, part.clone(), self.deployment, plan, Some(instance));
        let mut execution = if wait { execution } else { execution.without_waiting() };
        match execution.run(&plan.actions.to_vec(), Failures::Stop).await.map_err(one_or_several) {
            Ok(()) => Ok(()),
            Err(error) => Err(failed_jobs::explained(self.director, self.log, plan, execution.vm(), error).await),
        }
    }

    async fn reboot(&self, part: &Arc<EventPart>, instance: &CurrentInstance) -> Result<(), TaskError> {
        let vm = vm_of(instance)?;
        let disk = instance.disks.iter().find(|disk| disk.active && disk.name.is_managed());
        if let Some(disk) = disk {
            self.director.store.record(&Fact::DiskUnmounted { disk: disk.cid.clone() }).await?;
        }
        self.perform(part, &vm.cpi, vm, Change::RebootVm { cid: vm.cid.clone() }).await?;
        part.status(StepId::WaitForAgent);
        let plan = InstancePlan::of(&instance.record, Vec::new());
        let execution = Execution::new(self.director, self.log, part.clone(), self.deployment, &plan, Some(instance));
        execution.context().wait_for_agent(vm).await?;
        let is_named_here =
            |disk: &&DiskRecord| disk.active && !disk.name.is_managed() && disk.vm.as_ref() == Some(&vm.cid);
        let named: Vec<DiskRecord> = instance.disks.iter().filter(is_named_here).cloned().collect();
        if !named.is_empty() {
            execution.context().tell_names(vm, &named).await?;
        }
        let Some(disk) = disk else { return Ok(()) };
        // Agents mount their disk when they boot, but BOSH's do not in containers.
        let disk = DiskRecord { mounted: false, ..disk.clone() };
        Ok(execution.context().ensure_mounted(vm, &disk).await?)
    }

    /// From what is on record, with the disks carried over; what the operator stopped stays stopped.
    async fn recreate(&self, part: &Arc<EventPart>, instance: &CurrentInstance, wait: bool) -> Result<(), TaskError> {
        let record = &instance.record;
        if record.applied_spec().is_none() {
            return Err(TaskError::Input(format!("{} was never deployed; deploy it first", record.name())));
        }
        let mut plan = recreation(instance);
        must_be_possible(&plan, &self.limits)?;
        plan.state = record.state;
        if record.state != InstanceState::Started {
            plan.actions.retain(|action| action.what != ActionKind::Start);
        }
        self.bring(part, instance, &plan, wait).await
    }

    /// Carries out what leaves the instance as it was, or better.
    async fn bring(
        &self,
        part: &Arc<EventPart>,
        instance: &CurrentInstance,
        plan: &InstancePlan,
        wait: bool,
    ) -> Result<(), TaskError> {
        let record = &instance.record;
        self.director.store.begin_state(&record.id, record.state).await?;
        self.execute(part, instance, plan, wait).await?;
        // One that a deploy left half done is not whole just because it has a VM again.
        if record.converged {
            self.director.store.finish_state(&record.id).await?;
        }
        Ok(())
    }

    /// The VM is dead, and the cloud cannot delete it yet: it is an orphan from now on, and is deleted once the cloud can.
    async fn give_up_vm(&self, instance: &CurrentInstance) -> Result<(), TaskError> {
        let vm = vm_of(instance)?;
        let ledger: &dyn Ledger = &self.director.store;
        for disk in instance.disks.iter().filter(|disk| disk.vm.as_ref() == Some(&vm.cid)) {
            ledger.record(&Fact::DiskDetached { disk: disk.cid.clone() }).await?;
        }
        Ok(ledger.record(&Fact::VmOrphaned { cid: vm.cid.clone() }).await?)
    }

    /// The VM may be there all the same, so it stays on record as a possible leak, unless the cloud said that it is not.
    async fn forget_vm(&self, problem: &Problem, instance: &CurrentInstance) -> Result<(), TaskError> {
        let Some(vm) = &instance.vm else { return Ok(()) };
        let ledger: &dyn Ledger = &self.director.store;
        if matches!(problem, Problem::UnresponsiveAgent { .. }) {
            let intent = Intent {
                id: RequestId::random(),
                task: Some(self.log.task()),
                cpi: vm.cpi.clone(),
                stemcell_version: vm.stemcell.api_version,
                change: Change::DeleteVm { cid: vm.cid.clone() },
                child: None,
                elsewhere: None,
                doubt: None,
            };
            let open = ledger.open_intent(intent).await?;
            open.doubt("cloud-check deleted the reference to this VM, but not the VM").await?;
        }
        Ok(ledger.record(&Fact::VmDeleted { cid: vm.cid.clone() }).await?)
    }

    async fn unmount(&self, vm: &VmRecord, disk: &DiskRecord) {
        let agent = self.agent(vm);
        if is_mounted(&agent, &disk.cid).await
            && let Err(error) = agent.unmount_disk(&disk.cid).await
        {
            self.log.warning(&format!("disk {} could not be unmounted: {}", disk.cid, explain(&error)));
        }
    }

    async fn detach(
        &self,
        part: &EventPart,
        vm: &VmRecord,
        disk: &DiskRecord,
        tolerated: &[ErrorType],
    ) -> Result<(), TaskError> {
        let change = Change::DetachDisk { vm: vm.cid.clone(), disk: disk.cid.clone() };
        match self.perform(part, &vm.cpi, vm, change).await {
            Err(ChangeError::Call { source, .. })
                if source.cpi_error().is_some_and(|error| tolerated.contains(&error.kind)) =>
            {
                Ok(())
            }
            other => Ok(other?),
        }
    }

    async fn give_up_disk(
        &self,
        part: &EventPart,
        instance: &CurrentInstance,
        disk: &DiskRecord,
    ) -> Result<(), TaskError> {
        if let Some(vm) = &instance.vm {
            if is_mounted(&self.agent(vm), &disk.cid).await {
                return Err(TaskError::Input(format!(
                    "disk {} is mounted and in use; nothing was done to it",
                    disk.cid
                )));
            }
            if let Err(error) = self.detach(part, vm, disk, &[]).await {
                self.log.warning(&format!("disk {} may be attached still: {}", disk.cid, explain(&error)));
            }
        }
        Ok(self.director.store.record(&Fact::DiskOrphaned { disk: disk.cid.clone() }).await?)
    }

    async fn activate(&self, instance: &CurrentInstance, disk: &DiskRecord) -> Result<(), TaskError> {
        let name = instance.record.name();
        if instance.disks.iter().any(|other| other.active && other.name == disk.name) {
            return Err(TaskError::Input(format!("{name} has an active disk already; {} stays inactive", disk.cid)));
        }
        if !is_mounted(&self.agent(vm_of(instance)?), &disk.cid).await {
            return Err(TaskError::Input(format!("disk {} is not mounted on {name} and stays inactive", disk.cid)));
        }
        Ok(self.director.store.record(&Fact::DiskMounted { disk: disk.cid.clone() }).await?)
    }

    async fn reattach(
        &self,
        part: &Arc<EventPart>,
        instance: &CurrentInstance,
        disk: &DiskRecord,
    ) -> Result<(), TaskError> {
        let what = ActionKind::AttachDisk { disk: Some(disk.cid.clone()), name: disk.name.clone() };
        self.act(part, instance, what).await
    }
}

/// An agent that does not answer has mounted nothing that anybody could see.
async fn is_mounted(agent: &Agent, disk: &DiskCid) -> bool {
    agent.list_disk().await.is_ok_and(|listed| listed.contains(disk))
        && agent.get_state(true).await.is_ok_and(|state| state.has_store() != Some(false))
}

fn vm_of(instance: &CurrentInstance) -> Result<&VmRecord, TaskError> {
    instance.vm.as_ref().ok_or_else(|| TaskError::Input(format!("{} has no VM", instance.record.name())))
}

fn disk_of<'a>(problem: &Problem, instance: &'a CurrentInstance) -> Result<&'a DiskRecord, TaskError> {
    problem.disk(instance).ok_or_else(|| TaskError::Input(format!("disk {} is gone", problem.resource())))
}
