//! What people see of a run: stages with steps in them, in the words of the original.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_contract::DiskCid;
use windlass_operations::steps::{Progress, StepId};

use crate::ledger::EnvLedger;
use crate::run::EnvError;

/// Shows a run.
pub trait Screen: Send + Sync + std::fmt::Debug {
    /// A line of its own.
    fn line(&self, text: &str);
    fn begin_stage(&self, name: &str);
    fn begin_step(&self, name: &str);
    /// What the step does just now.
    fn status(&self, status: &str);
    /// The step ended, after so long.
    fn end_step(&self, end: &End, time: Duration);
    /// The stage ended, after so long.
    fn end_stage(&self, name: &str, succeeded: bool, time: Duration);
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Finished,
    /// Nothing had to be done, for this reason.
    Skipped(String),
    Failed,
}

/// The one who knows which step is being shown. Clones are the same.
#[derive(Debug, Clone)]
pub struct Report {
    screen: Arc<dyn Screen>,
    ledger: Option<EnvLedger>,
    group: String,
    /// The disk that the action at hand is about.
    disk: Option<DiskCid>,
    /// Where the VM's console is kept, if we know.
    console: Option<PathBuf>,
    step: Arc<Mutex<Option<Instant>>>,
    stop: Arc<AtomicBool>,
}

/// How much of a console is shown.
const CONSOLE_LINES: usize = 20;
/// How often it is looked whether somebody wants to stop.
const LOOK: Duration = Duration::from_millis(50);

impl Report {
    /// Shows what happens on `screen`; ends after the step at hand when `stop` is set.
    pub fn new(screen: Arc<dyn Screen>, stop: Arc<AtomicBool>) -> Self {
        Self {
            screen,
            ledger: None,
            group: "unknown".to_owned(),
            disk: None,
            console: None,
            step: Arc::default(),
            stop,
        }
    }

    /// The same, for steps of this state and instance group. `vms` is where VMs have their folders, if we know.
    pub fn of(&self, ledger: &EnvLedger, group: &str, vms: Option<PathBuf>) -> Self {
        Self { ledger: Some(ledger.clone()), group: group.to_owned(), console: vms, ..self.clone() }
    }

    /// The same, for an action on this disk.
    pub fn about(&self, disk: Option<DiskCid>) -> Self {
        Self { disk, ..self.clone() }
    }

    /// A line of its own.
    pub fn line(&self, text: &str) {
        self.screen.line(text);
    }

    pub async fn stage<T, E>(&self, name: &str, run: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.screen.begin_stage(name);
        let begun = Instant::now();
        let result = run.await;
        self.end_step(if result.is_ok() { &End::Finished } else { &End::Failed });
        self.screen.end_stage(name, result.is_ok(), begun.elapsed());
        result
    }

    pub async fn step<T, E>(&self, name: &str, run: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.begin_step(name);
        let result = run.await;
        self.end_step(if result.is_ok() { &End::Finished } else { &End::Failed });
        result
    }

    /// A step in which nothing has to be done.
    pub fn skipped(&self, name: &str, why: &str) {
        self.begin_step(name);
        self.end_step(&End::Skipped(why.to_owned()));
    }

    /// A step begins, and the one before it has ended well.
    pub(crate) fn begin_step(&self, name: &str) {
        self.end_step(&End::Finished);
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.screen.begin_step(name);
    }

    /// The step at hand, if there is one, has ended.
    pub fn end_step(&self, end: &End) {
        if let Some(begun) = self.step.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.screen.end_step(end, begun.elapsed());
        }
    }

    /// Whether somebody wants the run to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Ends the run here if somebody wants that.
    pub(crate) fn go_on(&self) -> Result<(), EnvError> {
        if self.is_stopped() { Err(EnvError::Stopped) } else { Ok(()) }
    }

    /// Waits for what changes nothing but files of ours, and not a moment longer than somebody wants.
    pub(crate) async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, EnvError> {
        let stopped = async {
            while !self.is_stopped() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            done = work => Ok(done),
            () = stopped => Err(EnvError::Stopped),
        }
    }

    /// BOSH's line for a step of an operation; none for one that BOSH does not show.
    fn title(&self, step: StepId) -> Option<String> {
        let instance = format!("'{}/0'", self.group);
        let ledger = self.ledger.as_ref()?;
        let file = ledger.state_file();
        let vm = &file.state.current_vm_cid;
        let newest = file.state.disks.last().map(|disk| disk.cid.clone());
        let is_attached = |cid: &DiskCid| file.own_state.disks.iter().any(|disk| disk.cid == *cid && disk.vm.is_some());
        let shown = |disk: Option<DiskCid>| disk.map(|cid| format!(" '{cid}'")).unwrap_or_default();
        let disk = shown(self.disk.clone());
        // Without an arm for the others: a new step does not compile until its line is decided.
        Some(match step {
            StepId::PreStop => format!("Running the pre-stop scripts {instance}"),
            StepId::Drain => format!("Draining jobs on instance {instance}"),
            StepId::StopJobs => format!("Stopping jobs on instance {instance}"),
            StepId::PostStop => format!("Running the post-stop scripts {instance}"),
            StepId::UnmountDisk => format!("Unmounting disk{disk}"),
            StepId::DeleteVm => format!("Deleting VM '{vm}'"),
            StepId::CreateVm => format!("Creating VM for instance {instance}"),
            StepId::WaitForAgent if !file.is_ready() => format!("Waiting for the agent on VM '{vm}' to be ready"),
            StepId::CreateDisk => "Creating disk".to_owned(),
            StepId::AttachDisk => {
                // While a disk is attached, it is the one that takes its place.
                let disk = self.disk.clone().filter(|disk| !is_attached(disk)).or(newest);
                format!("Attaching disk{} to VM '{vm}'", shown(disk))
            }
            StepId::ResizeDisk => format!("Resizing disk{disk}"),
            StepId::MigrateDisk => format!("Migrating disk content from{disk} to{}", shown(newest)),
            StepId::DetachDisk | StepId::DetachOldDisk => format!("Detaching disk{disk}"),
            StepId::ConfigureJobs => format!("Updating instance {instance}"),
            StepId::PreStart => format!("Running the pre-start scripts {instance}"),
            StepId::StartJobs => format!("Waiting for instance {instance} to be running"),
            StepId::PostStart => format!("Running the post-start scripts {instance}"),
            // An agent that was there before is not waited for long.
            StepId::WaitForAgent
            | StepId::NameVm
            | StepId::NameDisks
            | StepId::UpdateSettings
            | StepId::IntroduceAgent
            | StepId::RecordVm
            | StepId::SwapVms
            | StepId::SwitchOldVmOff
            | StepId::TellHint
            | StepId::NameDisk
            | StepId::MountDisk
            | StepId::AssociateDisk
            | StepId::RecordDisk
            | StepId::ForgetDisk
            | StepId::MountOldDisk
            | StepId::AttachNewDisk
            | StepId::RecordNewDisk
            | StepId::OrphanOldDisk
            | StepId::MountRemainingDisk
            | StepId::LookAtDisk
            | StepId::ReleaseDisk
            | StepId::TakeDiskBack
            | StepId::CompareSizes
            | StepId::RecordSize
            | StepId::SendSource
            | StepId::CompilePackage
            | StepId::FetchPackage
            | StepId::SkipDrain
            | StepId::InstallPackages
            | StepId::CheckDisk => return None,
        })
    }

    /// What the VM said last, for people who wonder why it does not answer.
    fn show_console(&self) {
        let (Some(vms), Some(ledger)) = (&self.console, &self.ledger) else { return };
        let path = vms.join(&ledger.state_file().state.current_vm_cid).join("console.log");
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        let lines: Vec<&str> = text.lines().collect();
        self.screen.line("The VM's console ends with:");
        for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
            self.screen.line(&format!("  {line}"));
        }
    }
}

impl Progress for Report {
    fn status(&self, step: StepId) {
        match self.title(step) {
            Some(title) => self.begin_step(&title),
            None => self.screen.status(step.name()),
        }
    }

    fn warning(&self, text: &str) {
        self.screen.line(&format!("Warning: {text}"));
    }

    fn cpi_log(&self, line: &str) {
        tracing::debug!(line, "cpi");
    }

    fn is_cancelled(&self) -> bool {
        self.is_stopped()
    }

    fn failed(&self, step: StepId) {
        self.end_step(&End::Failed);
        if step == StepId::WaitForAgent {
            self.show_console();
        }
    }
}
