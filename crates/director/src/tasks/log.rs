//! What people read while a task runs: `event`, `result`, `debug` and `cpi` in the task's folder, and `steps` for `windlass explain`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_archive::Limits;
use windlass_contract::{explain, shortened};
use windlass_database::Lead;
use windlass_operations::clock;
use windlass_operations::steps::{Progress, StepId};
use windlass_render::Backends;

use super::TaskError;
use super::large::LargePlace;
use crate::Director;
use crate::variables::LoadedSets;

/// How often a waiting task looks whether it was cancelled.
const CANCELLATION_LOOK: Duration = Duration::from_millis(200);
/// How many bytes are told of why something failed: it is kept with the task, in events, and in logs.
pub(super) const LONGEST_MESSAGE: usize = 64 << 10;

/// How many bytes of its events a task may write once the disk has nothing but its reserve.
const EVENTS_OF_RESERVE: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// Stages and tasks, as JSON lines.
    Event,
    /// What the command prints.
    Result,
    /// For developers.
    Debug,
    /// What CPIs wrote.
    Cpi,
    /// The events, and all steps beside them.
    Steps,
}

impl OutputKind {
    pub(super) const ALL: [Self; 5] = [Self::Event, Self::Result, Self::Debug, Self::Cpi, Self::Steps];

    /// By the word that clients use.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.file_name() == word)
    }

    fn file_name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Result => "result",
            Self::Debug => "debug",
            Self::Cpi => "cpi",
            Self::Steps => "steps",
        }
    }

    /// Where a task's output is.
    pub(crate) fn path(self, tasks: &Path, task: i64) -> PathBuf {
        tasks.join(task.to_string()).join(self.file_name())
    }
}

/// The outputs of one task. Clones write to the same files.
#[derive(Debug, Clone)]
pub(crate) struct TaskLog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    task: i64,
    lead: Arc<Lead>,
    folder: PathBuf,
    files: Mutex<Vec<(OutputKind, File)>>,
    written: AtomicU64,
    /// How many bytes of events were written while the disk had nothing but its reserve.
    of_reserve: AtomicU64,
    /// Whether something was left out because the disk was full.
    lacks_some: AtomicBool,
    cancelled: AtomicBool,
    renderer: Arc<Backends>,
    sets: Arc<LoadedSets>,
    /// The one who asked for the task.
    user: String,
    large: LargePlace,
}

impl TaskLog {
    /// Opens the outputs of a task of any user.
    pub(crate) fn open(director: &Director, task: i64) -> io::Result<Self> {
        Self::open_for(director, task, "")
    }

    /// Opens the outputs of a user's task. Once another director leads, nothing is written: the task is that one's.
    pub(super) fn open_for(director: &Director, task: i64, user: &str) -> io::Result<Self> {
        let (tasks, lead) = (director.folders.tasks(), director.lead.clone());
        let folder = tasks.join(task.to_string());
        windlass_durable::file::create_private_dir(&folder)?;
        let mut files = Vec::new();
        for kind in OutputKind::ALL {
            let path = kind.path(&tasks, task);
            files.push((kind, OpenOptions::new().create(true).append(true).mode(0o600).open(path)?));
        }
        let (files, cancelled, renderer) = (Mutex::new(files), AtomicBool::new(false), director.library.renderer());
        let (user, sets, written, lacks_some) =
            (user.to_owned(), Arc::default(), AtomicU64::new(0), AtomicBool::new(false));
        let of_reserve = AtomicU64::new(0);
        let inner = Inner {
            task,
            lead,
            folder,
            files,
            written,
            of_reserve,
            lacks_some,
            cancelled,
            renderer,
            sets,
            user,
            large: LargePlace::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The outputs go on where an earlier run left them, but for the result, which is written as a whole.
    pub(super) fn goes_on(&self, message: &str) {
        let files = self.inner.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (_, file) in files.iter().filter(|(kind, _)| *kind == OutputKind::Result) {
            if let Err(error) = file.set_len(0) {
                tracing::error!(task = self.inner.task, %error, "cannot empty the result of a task");
            }
        }
        drop(files);
        self.warning(message);
    }

    pub(crate) fn task(&self) -> i64 {
        self.inner.task
    }

    /// Renders the jobs that the task brings to VMs. Its Ruby processes serve no other task, and end with this one.
    pub(super) fn renderer(&self) -> Arc<Backends> {
        self.inner.renderer.clone()
    }

    /// Values of variables that the task brings to VMs.
    pub(super) fn sets(&self) -> Arc<LoadedSets> {
        self.inner.sets.clone()
    }

    /// Whether another director took over, and the task with everything that belongs to it.
    pub(super) fn is_of_another_director(&self) -> bool {
        self.inner.lead.is_lost()
    }

    /// Asks the task to stop at the next step.
    pub(crate) fn cancel(&self) {
        self.inner.cancelled.store(true, Ordering::SeqCst);
    }

    /// The one who asked for the task.
    pub(crate) fn user(&self) -> &str {
        &self.inner.user
    }

    /// Of a task with much in memory.
    pub(super) fn large_place(&self) -> &LargePlace {
        &self.inner.large
    }

    /// Does something that others may make last, unless the task is asked to stop.
    pub(super) async fn unless_cancelled<T, E: Into<TaskError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, TaskError> {
        tokio::select! {
            done = work => done.map_err(Into::into),
            () = self.cancelled() => Err(TaskError::Cancelled),
        }
    }

    /// Waits until it is asked to stop.
    pub(crate) async fn cancelled(&self) {
        while !self.is_cancelled() {
            tokio::time::sleep(CANCELLATION_LOOK).await;
        }
    }

    /// Whether it was asked to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::SeqCst)
    }

    /// Something else was written for the task, such as its plan.
    pub(super) fn count(&self, bytes: u64) {
        self.inner.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many bytes were written.
    pub(super) fn written(&self) -> u64 {
        self.inner.written.load(Ordering::Relaxed)
    }

    /// Whether the disk takes an output. Its reserve is for what everybody needs: VMs and CPIs choose how much they say. Of events it takes
    /// some, so that those who follow the task learn how it ends.
    fn has_room_for(&self, kind: OutputKind, text: &str) -> bool {
        !Limits::of_space(&self.inner.folder).is_ok_and(|left| left.bytes == 0) || self.may_use_reserve(kind, text)
    }

    fn may_use_reserve(&self, kind: OutputKind, text: &str) -> bool {
        if kind == OutputKind::Event {
            let length = text.len() as u64;
            let takes = |taken: u64| Some(taken + length).filter(|taken| *taken <= EVENTS_OF_RESERVE);
            return self.inner.of_reserve.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes).is_ok();
        }
        if !self.inner.lacks_some.swap(true, Ordering::Relaxed) {
            self.warning("the director's disk has no space left for all output of this task; make room there");
        }
        false
    }

    /// Adds to an output. Lines are whole: a reader never sees half of one.
    pub(crate) fn write(&self, kind: OutputKind, text: &str) {
        if self.is_of_another_director() || !self.has_room_for(kind, text) {
            return;
        }
        self.inner.written.fetch_add(text.len() as u64, Ordering::Relaxed);
        let mut files = self.inner.files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (_, file) in files.iter_mut().filter(|(found, _)| *found == kind) {
            if let Err(error) = file.write_all(text.as_bytes()) {
                tracing::error!(task = self.inner.task, %error, "cannot write a task's output");
            }
        }
    }

    /// For developers.
    pub(crate) fn debug(&self, text: &str) {
        self.write(OutputKind::Debug, &format!("{} {text}\n", clock::rfc3339(clock::now())));
    }

    fn event(&self, event: &Value) {
        self.write(OutputKind::Event, &format!("{event}\n"));
        self.step(event);
    }

    /// For `explain`, to the millisecond: most steps take less than a second.
    fn step(&self, event: &Value) {
        let mut event = event.clone();
        if let Some(event) = event.as_object_mut() {
            event.insert("milliseconds".into(), json!(clock::now_in_microseconds() / 1000));
        }
        self.write(OutputKind::Steps, &format!("{event}\n"));
    }

    /// Something that people should know.
    pub(crate) fn warning(&self, message: &str) {
        self.event(&json!({"time": clock::now(), "type": "warning", "message": message}));
    }

    /// The last line of a task that failed.
    pub(crate) fn error(&self, code: u32, message: &str) {
        self.event(&json!({"time": clock::now(), "error": {"code": code, "message": message}}));
    }

    /// A stage of `total` parts.
    pub(crate) fn stage(&self, name: &str, tags: &[&str], total: usize) -> EventStage {
        EventStage { total: Some(total), ..self.tagged_stage(name, tags) }
    }

    /// A stage whose parts nobody counted.
    pub(crate) fn open_stage(&self, name: &str) -> EventStage {
        self.tagged_stage(name, &[])
    }

    fn tagged_stage(&self, name: &str, tags: &[&str]) -> EventStage {
        EventStage {
            log: self.clone(),
            name: name.to_owned(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            total: None,
            tells_steps: false,
            next: Arc::new(AtomicUsize::new(1)),
        }
    }
}

/// A stage in the event log.
#[derive(Debug, Clone)]
pub(crate) struct EventStage {
    log: TaskLog,
    name: String,
    tags: Vec<String>,
    total: Option<usize>,
    tells_steps: bool,
    next: Arc<AtomicUsize>,
}

impl EventStage {
    /// The same, and clients that follow the task see the steps of its parts that [tell something](StepId::is_told).
    pub(crate) fn telling_steps(self) -> Self {
        Self { tells_steps: true, ..self }
    }

    /// Begins a part of the stage.
    pub(crate) fn part(&self, label: &str) -> Arc<EventPart> {
        Arc::new(EventPart {
            stage: self.clone(),
            label: label.to_owned(),
            index: self.next.fetch_add(1, Ordering::SeqCst),
            steps: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        })
    }
}

/// One part of a stage.
#[derive(Debug)]
pub(crate) struct EventPart {
    stage: EventStage,
    label: String,
    index: usize,
    steps: AtomicUsize,
    /// What is tidied up after a part is no progress of it: clients would show it as begun again.
    ended: AtomicBool,
}

/// How much further a bar moves with each step, as the number of steps is not known in advance.
const STEP_PERCENT: usize = 7;

impl EventPart {
    /// Does the part's work, and notes how it ended.
    pub(crate) async fn run<T, E: std::error::Error + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.note("started", 0, None);
        let result = work.await;
        self.ended.store(true, Ordering::SeqCst);
        match &result {
            Ok(_) => self.note("finished", 100, None),
            Err(error) => {
                let error = shortened(explain(error), LONGEST_MESSAGE);
                self.note("failed", 100, Some(json!({"error": error})));
            }
        }
        result
    }

    /// Does a part's work that cannot fail.
    pub(crate) async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        self.note("started", 0, None);
        let result = work.await;
        self.ended.store(true, Ordering::SeqCst);
        self.note("finished", 100, None);
        result
    }

    fn note(&self, state: &str, progress: usize, data: Option<Value>) {
        self.stage.log.event(&self.line(state, progress, data));
    }

    fn line(&self, state: &str, progress: usize, data: Option<Value>) -> Value {
        let stage = &self.stage;
        let mut event = json!({
            "time": clock::now(), "stage": stage.name, "tags": stage.tags, "total": stage.total,
            "task": self.label, "index": self.index, "state": state, "progress": progress,
        });
        if let (Some(data), Some(event)) = (data, event.as_object_mut()) {
            event.insert("data".into(), data);
        }
        event
    }
}

impl Progress for EventPart {
    fn status(&self, step: StepId) {
        let status = step.name();
        if !self.ended.load(Ordering::SeqCst) {
            let done = self.steps.fetch_add(1, Ordering::SeqCst);
            let line = self.line("in_progress", (done * STEP_PERCENT).min(95), Some(json!({"status": status})));
            match self.stage.tells_steps && step.is_told() {
                true => self.stage.log.event(&line),
                false => self.stage.log.step(&line),
            }
        }
        self.stage.log.debug(&format!("{}: {status}", self.label));
    }

    fn waiting(&self, words: &str) {
        if !self.ended.load(Ordering::SeqCst) {
            let done = self.steps.load(Ordering::SeqCst);
            self.note("in_progress", (done * STEP_PERCENT).min(95), Some(json!({"status": words})));
        }
        self.stage.log.debug(&format!("{}: {words}", self.label));
    }

    fn cpi_log(&self, line: &str) {
        self.stage.log.write(OutputKind::Cpi, &format!("{line}\n"));
    }

    fn warning(&self, message: &str) {
        self.stage.log.warning(message);
    }

    fn is_cancelled(&self) -> bool {
        self.stage.log.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDirector;

    /// Thousands of VMs that fail with 64 KB each filled the disk with events, which took all of its reserve.
    #[tokio::test]
    async fn a_task_tells_how_it_goes_on_a_full_disk_and_takes_little_of_the_reserve() {
        let test = TestDirector::new().await;
        let log = TaskLog::open(&test.director, 1).unwrap();
        let large = "x".repeat(1 << 10);
        let taken = (0..1000).filter(|_| log.may_use_reserve(OutputKind::Event, &large)).count();
        assert_eq!(taken, 64);
        assert!(!log.may_use_reserve(OutputKind::Result, "x"));
        assert!(log.has_room_for(OutputKind::Event, &large), "this disk has room");
    }
}
