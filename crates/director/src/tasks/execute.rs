//! Carries out what a plan says for one instance.

use std::sync::Arc;

use windlass_contract::{Object, VmCid};
use windlass_operations::ledger::Fact;
use windlass_operations::software::SoftwareSource;
use windlass_operations::steps::{Context, InstanceIdentity, InstanceWork, Progress};
use windlass_planning::desired::{UpdateBlock, WatchTime};
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::plan::{Action, ActionKind, CurrentInstance, InstancePlan};
use windlass_planning::records::VmRecord;

use super::{TaskError, TaskLog};
use crate::Director;
use crate::software::delivery::JobsOfInstance;
use crate::store::Store;

/// An instance while its plan is carried out.
pub(super) struct Execution {
    work: InstanceWork,
    jobs: Option<Arc<JobsOfInstance>>,
    /// Where it is to be noted that the instance becomes another one, until it is.
    becomes: Option<(Store, InstanceId)>,
}

/// The VM of an agent, and the spec that it installed everything for.
pub(super) type PreparedVm = (VmCid, Object);

/// What has to go well, and what may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failures {
    /// The first one ends the work on the instance.
    Stop,
    /// They are noted, and the work goes on.
    Note,
}

impl Execution {
    pub(super) fn new(
        director: &Director,
        log: &TaskLog,
        progress: Arc<dyn Progress>,
        deployment: &DeploymentName,
        plan: &InstancePlan,
        current: Option<&CurrentInstance>,
    ) -> Self {
        let tags = plan.spec.as_ref().map(|spec| spec.tags.clone()).unwrap_or_default();
        let instance = InstanceIdentity {
            director: director.name.clone(),
            deployment: deployment.to_owned(),
            group: plan.group.clone(),
            index: plan.index,
            id: plan.id.clone(),
            az: plan.az.clone(),
            tags,
        };
        let has_jobs = plan.spec.as_ref().is_some_and(|spec| spec.software.is_some());
        let jobs = has_jobs.then(|| {
            Arc::new(JobsOfInstance::new(director, deployment, plan, (log.renderer(), log.sets()), log.user()))
        });
        let context = Context {
            ledger: Arc::new(director.store.clone()),
            clouds: director.clouds.clone(),
            agents: director.agents.clone(),
            progress,
            task: Some(log.task()),
            instance: Arc::new(instance),
            software: jobs.clone().map(|jobs| jobs as Arc<dyn SoftwareSource>),
        };
        let work = InstanceWork {
            context,
            spec: plan.spec.clone(),
            watch: Some(UpdateBlock::default().update_watch_time),
            vm: current.and_then(|current| current.vm.clone()),
            spare: current.and_then(|current| current.spare.clone()),
            disks: current.map(|current| current.disks.clone()).unwrap_or_default(),
            mounted_now: Default::default(),
            next: Some(plan.next_states()),
            keeps_spec: false,
            prepared: None,
        };
        Self { work, jobs, becomes: None }
    }

    /// Its VM, while it has one.
    pub(super) fn vm(&self) -> Option<&VmRecord> {
        self.work.vm.as_ref()
    }

    /// Adds to what the cloud is told of its VM from now on.
    pub(super) fn tag(&mut self, key: &str, value: &str) {
        let mut identity = (*self.work.context.instance).clone();
        identity.tags.insert(key.to_owned(), value.into());
        self.work.context.instance = Arc::new(identity);
    }

    /// Gives its VM up, if it has one: it is deleted later.
    pub(super) async fn orphan_vm(&mut self) -> Result<(), TaskError> {
        if let Some(vm) = self.work.vm.clone() {
            self.work.context.ledger.record(&Fact::VmOrphaned { cid: vm.cid }).await?;
            self.work.vm = None;
        }
        Ok(())
    }

    /// What deletes its VM, if it has one.
    pub(super) fn deletion(&self, reason: &str) -> Vec<Action> {
        let delete =
            |vm: &VmRecord| Action { what: ActionKind::DeleteVm { vm: vm.cid.clone() }, reason: reason.to_owned() };
        self.vm().map(delete).into_iter().collect()
    }

    /// The hash of the files that its VM got, if it got any.
    pub(super) fn configuration(&self) -> Option<String> {
        self.jobs.as_ref()?.applied()
    }

    /// What steps outside of a plan work with.
    pub(super) fn context(&self) -> &Context {
        &self.work.context
    }

    /// Notes when the instance begins to be what the plan wants, rather than what it was.
    pub(super) fn bringing(mut self, store: &Store, id: &InstanceId) -> Self {
        self.becomes = Some((store.clone(), id.clone()));
        self
    }

    /// Has the VM beside the instance's install what it will run; gives what its agent was told.
    pub(super) async fn prepare_spare(&mut self) -> Result<Option<PreparedVm>, TaskError> {
        self.work.prepare_spare().await?;
        Ok(self.work.prepared.clone())
    }

    /// An agent has been told this already.
    pub(super) fn having_prepared(mut self, prepared: Option<PreparedVm>) -> Self {
        self.work.prepared = prepared;
        self
    }

    /// The deployment goes with its instances.
    pub(super) fn with_its_deployment(mut self) -> Self {
        if let Some(next) = &mut self.work.next {
            next.deployment_goes = true;
        }
        self
    }

    /// Watches a start for that long.
    pub(super) fn watching(mut self, watch: WatchTime) -> Self {
        self.work.watch = Some(watch);
        self
    }

    /// Starts without waiting until everything runs.
    pub(super) fn without_waiting(mut self) -> Self {
        self.work.watch = None;
        self
    }

    /// Somebody else listens from now on.
    pub(super) fn report_to(&mut self, progress: Arc<dyn Progress>) {
        self.work.context.progress = progress;
    }

    /// Carries out actions in their order.
    pub(super) async fn run(&mut self, actions: &[Action], failures: Failures) -> Result<(), Vec<TaskError>> {
        let mut errors = Vec::new();
        for action in actions {
            if let Err(error) = self.act(&action.what).await {
                errors.push(error);
                if failures == Failures::Stop {
                    break;
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    async fn act(&mut self, what: &ActionKind) -> Result<(), TaskError> {
        if what.makes_another()
            && let Some((store, id)) = self.becomes.take()
        {
            store.note_applied(&id).await?;
        }
        Ok(self.work.act(what).await?)
    }
}
