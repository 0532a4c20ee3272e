//! How things are done: every operation is a table of steps, read from top to bottom.
//!
//! A step has a check (is it true already? then it is skipped), an action, and where possible its undo. When a step
//! fails, those that ran are undone from the last to the first; failures of undoing are kept beside the first error.
//! Because of the checks, an operation that was interrupted is simply run again.
//!
//! One file per operation: the table first, then the functions. [`InstanceWork`] carries out a plan's actions with them.

mod attach_disk;
mod compile_package;
mod create_disk;
mod create_vm;
mod delete_vm;
mod detach_disk;
mod migrate_disk;
mod prepare_instance;
mod resize_disk;
mod set_metadata;
mod start_instance;
mod step;
mod stop_instance;
mod swap_vm;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use windlass_agent_client::{Cancellation, NotYetReady, Outcome};
use windlass_contract::agent::{DiskAssociation, UpdateSettings};
use windlass_contract::{ApiVersion, DiskCid, DiskHint, MiB, Object, VmCid, explain};

pub use attach_disk::AttachDisk;
pub use compile_package::{CompilePackage, Dependency};
pub use create_disk::CreateDisk;
pub use create_vm::CreateVm;
pub use delete_vm::DeleteVm;
pub use detach_disk::DetachDisk;
pub use migrate_disk::MigrateDisk;
pub use prepare_instance::PrepareInstance;
pub use resize_disk::ResizeDisk;
pub use set_metadata::SetMetadata;
pub use start_instance::StartInstance;
pub use step::StepId;
pub use stop_instance::StopInstance;
pub use swap_vm::SwapVm;
pub use work::{InstanceWork, WorkError};

use step::Step;

use crate::agent_caller::{AgentCaller, AgentsOfVms};
use crate::clock;
use crate::clouds::{ChangeError, Clouds, OnBehalfOf};
use crate::ledger::{Change, Fact, Ledger, LedgerError};
use crate::software::{PackageFile, SoftwareError, SoftwareSource};
use windlass_pki::PkiError;
use windlass_planning::names::{CpiName, DeploymentName, InstanceId};
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::{DiskRecord, VmRecord};

/// While an agent is waited for, this many times something is said about it, though not more often than once a second, nor less
/// often than twice a minute.
const WAIT_REPORTS: u32 = 20;
const REPORT_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How soon somebody who waits notices that nobody wants it any more.
const CANCELLATION_LOOK: Duration = Duration::from_millis(100);

/// why a step failed
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Cloud(#[from] ChangeError),
    #[error(transparent)]
    Agent(windlass_agent_client::CallError),
    /// the agent never got ready
    #[error(transparent)]
    NotReady(#[from] windlass_agent_client::NotReady),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// an operation that is a part of this one failed
    #[error(transparent)]
    Part(Box<OperationError>),
    /// the records lack something that the plan relies on
    #[error("{instance} has no {what} on record; plan again")]
    NotOnRecord {
        instance: String,
        /// Such as `VM`, or `disk disk-1`.
        what: String,
    },
    /// the instance is to be made like nothing: its spec lacks what the plan relies on
    #[error("nothing says what the {what} of {instance} should be; deploy it again")]
    NotWanted { instance: String, what: String },
    /// a change was confirmed as something else
    #[error("{method} was confirmed as something else ({fact}); this is a defect of Windlass, please report it")]
    WrongFact { method: &'static str, fact: String },
    /// what an agent is given cannot be written as an object
    #[error("the agent's part of the VM's env is not an object; this is a defect of Windlass, please report it")]
    AgentEnv,
    /// an instance must not start without a disk that it should have
    #[error(
        "{instance} was not started: it should have a persistent disk, and none is in use on VM {vm}; \
         deploy it again (or run create-env), which attaches the disk"
    )]
    NoDiskInUse { instance: String, vm: VmCid },
    /// an instance must not start without its disk
    #[error(
        "{instance} was not started: its disk {disk} is attached to VM {vm}, but not mounted, and mounting it failed"
    )]
    DiskNotMounted {
        instance: String,
        disk: DiskCid,
        vm: VmCid,
        #[source]
        source: Box<StepError>,
    },
    /// the jobs or packages are not to be had
    #[error(transparent)]
    Software(#[from] SoftwareError),
    /// a file that the agent made is not what it says
    #[error("the compiled package '{package}' that the agent made cannot be taken: {why}")]
    NotCompiled { package: String, why: String },
    /// the jobs do not run
    #[error("{instance} is not running after update, but {state}{}; see its logs", named(.failing))]
    NotRunning {
        instance: String,
        /// What its agent says instead.
        state: String,
        /// The processes that do not run.
        failing: Vec<String>,
    },
    /// the task was cancelled
    #[error("the task was cancelled")]
    Cancelled,
}

impl StepError {
    /// Whether it failed only because nobody wanted it any more.
    pub fn is_cancellation(&self) -> bool {
        match self {
            Self::Cancelled => true,
            Self::Part(error) => error.cause.is_cancellation(),
            _ => false,
        }
    }
}

impl From<windlass_agent_client::CallError> for StepError {
    fn from(error: windlass_agent_client::CallError) -> Self {
        match error {
            windlass_agent_client::CallError::Cancelled { .. } => Self::Cancelled,
            other => Self::Agent(other),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{operation} of {subject} failed while {step}{}", undone(.undo_failures))]
pub struct OperationError {
    /// Such as `create VM`.
    pub operation: &'static str,
    /// The instance.
    pub subject: String,
    pub step: StepId,
    #[source]
    pub cause: StepError,
    /// What could not be taken back, and why.
    pub undo_failures: Vec<(StepId, StepError)>,
}

fn named(processes: &[String]) -> String {
    if processes.is_empty() { String::new() } else { format!(" ({})", processes.join(", ")) }
}

fn undone(failures: &[(StepId, StepError)]) -> String {
    failures.iter().map(|(step, error)| format!("; taking back '{step}' failed, too: {}", explain(error))).collect()
}

impl StepError {
    fn wrong_fact(method: &'static str, fact: &Fact) -> Self {
        Self::WrongFact { method, fact: fact.name() }
    }
}

impl From<OperationError> for StepError {
    fn from(error: OperationError) -> Self {
        match error.cause {
            Self::Cancelled => Self::Cancelled,
            _ => Self::Part(Box::new(error)),
        }
    }
}

/// Whether a spec that an agent prepared has a package, which is installed then.
fn has_package(prepared: &Object, package: &PackageFile) -> bool {
    let known = prepared.get("packages").and_then(|packages| packages.get(&package.name));
    known.is_some_and(|known| known["version"] == package.version.as_str() && known["sha1"] == package.digest.as_str())
}

/// Whether a spec that an agent prepared has the same jobs with the same files, which are installed then.
fn has_jobs(prepared: &Object, wanted: &Object) -> bool {
    let files = |spec: &Object| Some(spec.get("rendered_templates_archive")?.get("sha1")?.clone());
    files(prepared).is_some_and(|known| files(wanted) == Some(known)) && prepared.get("job") == wanted.get("job")
}

/// Something that a table of steps works on.
pub(crate) trait Operation: Sized + 'static {
    /// For people.
    const NAME: &'static str;
    /// What everything works with.
    fn context(&self) -> &Context;
    fn steps() -> &'static [Step<Self>];
}

pub(crate) async fn run<S: Operation>(scene: &mut S) -> Result<(), OperationError> {
    let mut ran = Vec::new();
    for step in S::steps() {
        if (step.is_done)(scene) {
            continue;
        }
        scene.context().progress.status(step.id);
        // A step that failed may have done a part of its work, so it is undone as well.
        ran.push(step);
        let result = match scene.context().progress.is_cancelled() {
            true => Err(StepError::Cancelled),
            false => (step.act)(scene).await,
        };
        if let Err(cause) = result {
            scene.context().progress.failed(step.id);
            let undo_failures = unwind(scene, &ran).await;
            let subject = scene.context().instance.to_string();
            return Err(OperationError { operation: S::NAME, subject, step: step.id, cause, undo_failures });
        }
    }
    Ok(())
}

async fn unwind<S: Operation>(scene: &mut S, ran: &[&'static Step<S>]) -> Vec<(StepId, StepError)> {
    let mut failures = Vec::new();
    for step in ran.iter().rev() {
        if let Some(undo) = step.undo
            && let Err(error) = undo(scene).await
        {
            failures.push((step.id, error));
        }
    }
    failures
}

/// Hears how far an operation is, and knows whether it was cancelled.
pub trait Progress: Send + Sync + std::fmt::Debug {
    /// What is being done now.
    fn status(&self, step: StepId);
    /// What the step at hand waits for, from time to time.
    fn waiting(&self, _words: &str) {}
    /// A line of the CPI's log.
    fn cpi_log(&self, line: &str);
    /// Something that people should know.
    fn warning(&self, message: &str);
    /// Whether the task was cancelled.
    fn is_cancelled(&self) -> bool;
    /// This step failed; what was done before it is taken back after this.
    fn failed(&self, _step: StepId) {}
}

/// Somebody who listens while something is taken back, which nobody can cancel.
#[derive(Debug)]
struct NotCancelled(Arc<dyn Progress>);

impl Progress for NotCancelled {
    fn status(&self, step: StepId) {
        self.0.status(step);
    }

    fn waiting(&self, words: &str) {
        self.0.waiting(words);
    }

    fn cpi_log(&self, line: &str) {
        self.0.cpi_log(line);
    }

    fn warning(&self, message: &str) {
        self.0.warning(message);
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn failed(&self, step: StepId) {
        self.0.failed(step);
    }
}

/// What every operation on an instance works with.
#[derive(Debug, Clone)]
pub struct Context {
    pub ledger: Arc<dyn Ledger>,
    pub clouds: Clouds,
    pub agents: Arc<dyn AgentsOfVms>,
    pub progress: Arc<dyn Progress>,
    pub task: Option<i64>,
    pub instance: Arc<InstanceIdentity>,
    /// Where its jobs come from; none where it has none.
    pub software: Option<Arc<dyn SoftwareSource>>,
}

/// An instance, as metadata and agents name it.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceIdentity {
    /// The director's name.
    pub director: String,
    pub deployment: DeploymentName,
    pub group: String,
    /// Counted from 0.
    pub index: i64,
    pub id: InstanceId,
    pub az: Option<String>,
    /// For the clouds.
    pub tags: Object,
}

impl std::fmt::Display for InstanceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.group, self.id)
    }
}

impl Context {
    async fn perform(
        &self,
        cpi: &CpiName,
        stemcell_version: Option<ApiVersion>,
        change: Change,
    ) -> Result<Fact, StepError> {
        let log = |line: &str| self.progress.cpi_log(line);
        let who = OnBehalfOf { ledger: &*self.ledger, task: self.task, log: &log };
        Ok(self.clouds.perform(who, cpi, stemcell_version, change).await?)
    }

    /// Waits until a VM's agent answers, which may take long, unless the task is cancelled meanwhile. Tells from time to time how
    /// long it waits, and for what.
    pub async fn wait_for_agent(&self, vm: &VmRecord) -> Result<(), StepError> {
        let (agent, patience) = (self.agent(vm), self.agents.wait());
        let every = (patience / WAIT_REPORTS).clamp(REPORT_EVERY.0, REPORT_EVERY.1);
        let told = Mutex::new(Duration::ZERO);
        let watch = |now: &NotYetReady<'_>| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if now.waited >= *told + every {
                *told = now.waited;
                self.progress.waiting(&still_waiting(now, patience));
            }
        };
        self.unless_cancelled(agent.wait_until_ready(patience, &watch)).await
    }

    /// Does something that may take long and is of no use to a task that was cancelled meanwhile.
    async fn unless_cancelled<T, E: Into<StepError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, StepError> {
        let cancelled = async {
            while !self.progress.is_cancelled() {
                tokio::time::sleep(CANCELLATION_LOOK).await;
            }
        };
        tokio::select! {
            done = work => done.map_err(Into::into),
            () = cancelled => Err(StepError::Cancelled),
        }
    }

    /// The same, for taking something back: a task that was cancelled takes back what it did, too.
    fn to_undo(&self) -> Self {
        Self { progress: Arc::new(NotCancelled(self.progress.clone())), ..self.clone() }
    }

    /// Waits until a VM's agent answers, before something is taken back.
    async fn wait_for_agent_to_undo(&self, vm: &VmRecord) -> Result<(), StepError> {
        self.to_undo().wait_for_agent(vm).await
    }

    /// Mounts a disk of the instance unless jobs see it already. Nothing may be started before.
    pub async fn ensure_mounted(&self, vm: &VmRecord, disk: &DiskRecord) -> Result<(), StepError> {
        if !self.is_mounted(vm, &disk.cid).await? {
            self.progress.status(StepId::MountDisk);
            self.mount(vm, &disk.cid, disk.hint.as_ref()).await?;
        }
        if !disk.mounted {
            self.ledger.record(&Fact::DiskMounted { disk: disk.cid.clone() }).await?;
        }
        Ok(())
    }

    /// Tells the agent all disks with names that its VM has. It may have forgotten where they are: some clouds make the VM
    /// again to attach a disk, and devices may have other places after a reboot.
    pub async fn tell_names(&self, vm: &VmRecord, disks: &[DiskRecord]) -> Result<(), StepError> {
        for disk in disks {
            if let Some(hint) = &disk.hint {
                let _ = self.tell_hint(vm, &disk.cid, hint).await?;
            }
        }
        let association =
            |disk: &DiskRecord| DiskAssociation { name: disk.name.clone().into(), cid: disk.cid.to_string() };
        let disk_associations = disks.iter().map(association).collect();
        let settings = UpdateSettings { disk_associations, ..UpdateSettings::default() };
        // An agent older than the message has no names for disks.
        let _ = self.agent(vm).update_settings(&settings).await?;
        Ok(())
    }

    /// Makes a change that is about a VM or its disks.
    async fn perform_on(&self, vm: &VmRecord, change: Change) -> Result<Fact, StepError> {
        self.perform(&vm.cpi, vm.stemcell.api_version, change).await
    }

    /// Tells the agent where a disk is, and has it mounted. Agents older than hints get the hint with the order to mount.
    async fn mount(&self, vm: &VmRecord, disk: &DiskCid, hint: Option<&DiskHint>) -> Result<(), StepError> {
        let agent = self.agent(vm);
        match hint {
            Some(hint) if self.tell_hint(vm, disk, hint).await? == Outcome::Done => {
                agent.mount_disk(disk, None).await?
            }
            Some(hint) => agent.mount_disk_as_before(disk, hint).await?,
            None => agent.mount_disk(disk, None).await?,
        }
        Ok(())
    }

    /// Tells the agent where a disk is; agents that are known to be older than the message are not asked.
    async fn tell_hint(&self, vm: &VmRecord, disk: &DiskCid, hint: &DiskHint) -> Result<Outcome, StepError> {
        if self.agents.is_older_than_hints(&vm.agent_id) {
            return Ok(Outcome::UnknownToAgent);
        }
        let outcome = self.agent(vm).add_persistent_disk(disk, hint).await?;
        if outcome != Outcome::Done {
            self.agents.note_older_than_hints(&vm.agent_id);
        }
        Ok(outcome)
    }

    /// Whether jobs on the VM see the disk.
    async fn is_mounted(&self, vm: &VmRecord, disk: &DiskCid) -> Result<bool, StepError> {
        let agent = self.agent(vm);
        let is_listed = agent.list_disk().await?.contains(disk);
        // In a container, BOSH's agent lists a disk once it is attached; only its vitals tell what is on the store.
        Ok(is_listed && agent.get_state(true).await?.has_store() != Some(false))
    }

    /// The spec that an agent prepares or applies. The files that it names are in the agent before it hears of them.
    async fn deliver(
        &self,
        vm: &VmRecord,
        spec: &InstanceSpec,
        prepared: Option<&Object>,
    ) -> Result<Object, StepError> {
        let mut applied = self.plain_spec(vm, spec);
        if spec.software.is_none() {
            return Ok(applied);
        }
        let source = self.software.as_ref().ok_or_else(|| self.not_on_record("software"))?;
        let delivery = source.for_vm(spec, vm).await?;
        let agent = self.agent(vm);
        let state = agent.get_state(false).await?;
        for package in &delivery.packages {
            let is_there = state.has_package(&package.name, &package.version, &package.digest)
                || prepared.is_some_and(|prepared| has_package(prepared, package));
            if !is_there {
                let archive = source.open(package).await?;
                self.unless_cancelled(agent.put_blob(&package.blob, (*archive).as_ref())).await?;
            }
        }
        if !prepared.is_some_and(|prepared| has_jobs(prepared, &delivery.spec)) {
            self.unless_cancelled(agent.put_blob(&delivery.jobs.blob, &delivery.jobs.path())).await?;
        }
        applied.extend(delivery.spec);
        Ok(applied)
    }

    /// What a spec says without its jobs and packages.
    fn plain_spec(&self, vm: &VmRecord, spec: &InstanceSpec) -> Object {
        let instance = &self.instance;
        let mut applied = text_entries([
            ("deployment", instance.deployment.to_string()),
            ("name", instance.group.clone()),
            ("id", instance.id.to_string()),
        ])
        .collect::<Object>();
        let others = [
            ("index", json!(instance.index)),
            ("az", json!(instance.az)),
            ("networks", json!(vm.networks)),
            ("persistent_disk", json!(spec.managed_disk().map_or(MiB(0), |disk| disk.size))),
            ("job", json!({"name": instance.group, "template": "", "version": "", "templates": []})),
            ("packages", json!({})),
            ("configuration_hash", json!("")),
        ];
        applied.extend(others.map(|(key, value)| (key.to_owned(), value)));
        applied
    }

    fn not_on_record(&self, what: impl Into<String>) -> StepError {
        StepError::NotOnRecord { instance: self.instance.to_string(), what: what.into() }
    }

    fn agent(&self, vm: &VmRecord) -> Box<dyn AgentCaller> {
        self.agents.agent_of(vm)
    }

    /// The same for what may hang, because jobs bring it along or because the VM is hostile: when the task is cancelled, the agent is told to
    /// end it, and is not waited for. What moves disks is waited for.
    fn agent_until_cancelled(&self, vm: &VmRecord) -> Box<dyn AgentCaller> {
        let progress = self.progress.clone();
        self.agents.agent_until(vm, Cancellation::when(move || progress.is_cancelled()))
    }

    /// What a cloud shows about a VM.
    fn vm_metadata(&self) -> Object {
        let instance = &self.instance;
        let mut metadata = instance.tags.clone();
        metadata.extend(text_entries([
            ("director", instance.director.clone()),
            ("deployment", instance.deployment.to_string()),
            ("id", instance.id.to_string()),
            ("job", instance.group.clone()),
            ("instance_group", instance.group.clone()),
            ("index", instance.index.to_string()),
            ("name", instance.to_string()),
            ("created_at", clock::rfc3339(clock::now())),
        ]));
        metadata
    }

    /// What a cloud shows about a disk.
    fn disk_metadata(&self) -> Object {
        let instance = &self.instance;
        let mut metadata = instance.tags.clone();
        metadata.extend(text_entries([
            ("director", instance.director.clone()),
            ("deployment", instance.deployment.to_string()),
            ("instance_id", instance.id.to_string()),
            ("instance_index", instance.index.to_string()),
            ("instance_group", instance.group.clone()),
            ("attached_at", clock::rfc3339(clock::now())),
        ]));
        metadata
    }
}

fn still_waiting(NotYetReady { address, stage, waited }: &NotYetReady<'_>, patience: Duration) -> String {
    let (waited, patience) = (waited.as_secs(), patience.as_secs());
    format!("{} at {address}, {waited} s of at most {patience} s (last stage: {stage})", StepId::WaitForAgent)
}

fn text_entries<const N: usize>(entries: [(&str, String); N]) -> impl Iterator<Item = (String, serde_json::Value)> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value.into()))
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
