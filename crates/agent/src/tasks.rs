//! Tasks: long actions, one at a time in the order they came, on a thread of their own so that no ping waits for them. The thread
//! is there while there are tasks: most of the time an agent has none, and thousands of agents may share a process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_contract::Secret;
use windlass_durable::file;

/// How many results are kept; the caller asks for its own within seconds.
const KEPT_RESULTS: usize = 1000;
/// How many tasks may wait; more come only from a caller that does not wait for them.
const WAITING: usize = 100;

/// What a task does. An error is what the caller reads.
pub(crate) type TaskAction = Box<dyn FnOnce() -> Result<Value, String> + Send>;

/// How far a task is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    /// Waiting or running.
    Running,
    /// Ended, with its result or its failure.
    Ended(Result<Value, String>),
}

/// why a task cannot be started
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    /// too many are waiting
    #[error("{WAITING} tasks are waiting already; ask for their results before you start more")]
    TooMany,
    /// a task that must survive a restart cannot be written down
    #[error("cannot keep tasks in {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// there is no thread for it
    #[error("cannot start a thread for the task")]
    Thread(#[source] io::Error),
}

/// A task that survives a restart, in the original's format.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptTask {
    #[serde(rename = "TaskID")]
    pub(crate) id: String,
    #[serde(rename = "Method")]
    pub(crate) method: String,
    /// The request, base64.
    #[serde(rename = "Payload")]
    payload: Secret,
}

impl KeptTask {
    /// The request's body.
    pub(crate) fn payload(&self) -> Option<Vec<u8>> {
        base64::engine::general_purpose::STANDARD.decode(self.payload.reveal()).ok()
    }
}

#[derive(Debug)]
struct Task {
    method: &'static str,
    progress: Progress,
    cancelled: bool,
}

#[derive(Debug, Default)]
struct State {
    tasks: HashMap<String, Task>,
    /// Those that the thread is not at yet.
    waiting: VecDeque<Queued>,
    /// Whether there is a thread.
    working: bool,
    /// The one that the thread is at.
    running: Option<String>,
    ended: VecDeque<String>,
}

/// All tasks of the agent.
#[derive(Debug)]
pub(crate) struct Tasks {
    state: Arc<Mutex<State>>,
    /// Wakes a task that waits when it is cancelled.
    cancellation: Condvar,
    file: PathBuf,
    /// Guards the file of kept tasks.
    keeping: Arc<Mutex<()>>,
}

struct Queued {
    id: String,
    kept: bool,
    work: TaskAction,
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queued").field("id", &self.id).field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl Tasks {
    /// No tasks yet; those that survive a restart are kept in `file`.
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { state: Arc::default(), cancellation: Condvar::new(), file, keeping: Arc::default() }
    }

    /// Starts a task and returns its id.
    pub(crate) fn begin(&self, method: &'static str, work: TaskAction) -> Result<String, TaskError> {
        self.enqueue(uuid::Uuid::new_v4().to_string(), method, false, work)
    }

    /// Starts a task that is begun again, under the same id, by an agent that restarts before its end.
    pub(crate) fn begin_kept(
        &self,
        method: &'static str,
        payload: &[u8],
        work: TaskAction,
    ) -> Result<String, TaskError> {
        let id = uuid::Uuid::new_v4().to_string();
        let payload = Secret::new(base64::engine::general_purpose::STANDARD.encode(payload));
        let task = KeptTask { id: id.clone(), method: method.to_owned(), payload };
        let failed = |source| TaskError::Io { path: self.file.clone(), source };
        {
            let _guard = lock(&self.keeping);
            let mut kept = read_kept(&self.file).map_err(failed)?;
            kept.insert(id.clone(), task);
            file::write_json(&self.file, &kept, file::PRIVATE).map_err(failed)?;
        }
        self.enqueue(id, method, true, work)
    }

    /// The tasks that a restart interrupted. A file that cannot be read holds none.
    pub(crate) fn interrupted(&self) -> Vec<KeptTask> {
        let _guard = lock(&self.keeping);
        match read_kept(&self.file) {
            Ok(kept) => kept.into_values().collect(),
            Err(error) => {
                tracing::warn!("forgetting the tasks in {}: {error}", self.file.display());
                let _ = file::remove_file(&self.file);
                Vec::new()
            }
        }
    }

    /// Begins an interrupted task again.
    pub(crate) fn resume(&self, id: String, method: &'static str, work: TaskAction) -> Result<String, TaskError> {
        self.enqueue(id, method, true, work)
    }

    fn enqueue(&self, id: String, method: &'static str, kept: bool, work: TaskAction) -> Result<String, TaskError> {
        let mut state = lock(&self.state);
        if state.tasks.len() - state.ended.len() >= WAITING {
            return Err(TaskError::TooMany);
        }
        if !state.working {
            // It waits for our lock and finds the task. It ends with the process: what it does survives a kill at any point.
            let (state, file, keeping) = (self.state.clone(), self.file.clone(), self.keeping.clone());
            let thread = std::thread::Builder::new().name("tasks".into());
            thread.spawn(move || work_off(&state, &file, &keeping)).map_err(TaskError::Thread)?;
        }
        state.working = true;
        state.tasks.insert(id.clone(), Task { method, progress: Progress::Running, cancelled: false });
        state.waiting.push_back(Queued { id: id.clone(), kept, work });
        Ok(id)
    }

    /// How far a task is, and which action it is; none if it is unknown or too long ago.
    pub(crate) fn progress(&self, id: &str) -> Option<(&'static str, Progress)> {
        lock(&self.state).tasks.get(id).map(|task| (task.method, task.progress.clone()))
    }

    /// Asks a task to end. It does so where it [`pause`](Self::pause)s.
    pub(crate) fn cancel(&self, id: &str) {
        if let Some(task) = lock(&self.state).tasks.get_mut(id) {
            task.cancelled = true;
        }
        self.cancellation.notify_all();
    }

    /// Lets the running task wait; says whether it was cancelled, at once when it is.
    pub(crate) fn pause(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.state);
        loop {
            if state.is_cancelled() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.cancellation.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// The task whose turn it is; without one, the thread is gone.
    fn next(&mut self) -> Option<Queued> {
        let next = self.waiting.pop_front();
        self.running = next.as_ref().map(|next| next.id.clone());
        self.working = next.is_some();
        next
    }

    fn is_cancelled(&self) -> bool {
        self.running.as_ref().and_then(|id| self.tasks.get(id)).is_some_and(|task| task.cancelled)
    }

    fn end(&mut self, id: &str, result: Result<Value, String>) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.progress = Progress::Ended(result);
            self.ended.push_back(id.to_owned());
        }
        while self.ended.len() > KEPT_RESULTS {
            if let Some(oldest) = self.ended.pop_front() {
                self.tasks.remove(&oldest);
            }
        }
    }
}

/// Does one task after the other until none waits.
fn work_off(state: &Mutex<State>, file: &Path, keeping: &Mutex<()>) {
    loop {
        let Some(Queued { id, kept, work }) = lock(state).next() else { return };
        let result = std::panic::catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err("the agent failed inside; its log says where".to_owned()));
        lock(state).end(&id, result);
        if kept {
            let _guard = lock(keeping);
            let forgotten = read_kept(file).and_then(|mut kept| {
                kept.remove(&id);
                file::write_json(file, &kept, file::PRIVATE)
            });
            if let Err(error) = forgotten {
                tracing::warn!("task {id} ended, and {} still lists it: {error}", file.display());
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_kept(path: &Path) -> io::Result<BTreeMap<String, KeptTask>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn ended(tasks: &Tasks, id: &str) -> Result<Value, String> {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while std::time::Instant::now() < deadline {
            match tasks.progress(id).unwrap().1 {
                Progress::Ended(result) => return result,
                Progress::Running => std::thread::yield_now(),
            }
        }
        panic!("task {id} does not end");
    }

    #[test]
    fn tasks_run_one_after_the_other_and_their_results_can_be_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let tasks = Tasks::new(folder.path().join("tasks.json"));
        let (release, gate) = mpsc::channel::<()>();
        let first =
            tasks.begin("first", Box::new(move || gate.recv().map(|()| Value::from(1)).map_err(|e| e.to_string())));
        let first = first.unwrap();
        let second = tasks.begin("second", Box::new(|| Err("broken".into()))).unwrap();
        assert_eq!(tasks.progress(&first).unwrap(), ("first", Progress::Running));
        assert_eq!(tasks.progress(&second).unwrap(), ("second", Progress::Running));
        release.send(()).unwrap();
        for _ in 0..2 {
            assert_eq!(ended(&tasks, &second), Err("broken".into()));
            assert_eq!(ended(&tasks, &first), Ok(Value::from(1)));
        }
        assert_eq!(tasks.progress("nope"), None);
    }

    #[test]
    fn neither_a_panic_nor_a_flood_stops_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let tasks = Tasks::new(folder.path().join("tasks.json"));
        let panics = tasks.begin("panics", Box::new(|| panic!("on purpose"))).unwrap();
        assert!(ended(&tasks, &panics).is_err());
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let wait = || {
            let gate = gate.clone();
            tasks.begin("wait", Box::new(move || lock(&gate).recv().map(|()| Value::Null).map_err(|e| e.to_string())))
        };
        let waiting: Vec<String> = (0..WAITING).map(|_| wait().unwrap()).collect();
        assert!(matches!(wait(), Err(TaskError::TooMany)));
        drop(release);
        assert!(ended(&tasks, waiting.last().unwrap()).is_err());
        for _ in 0..KEPT_RESULTS {
            let id = tasks.begin("quick", Box::new(|| Ok(Value::Null))).unwrap();
            ended(&tasks, &id).unwrap();
        }
        assert_eq!(tasks.progress(&panics), None, "old results are forgotten");
    }

    #[test]
    fn an_interrupted_task_is_found_after_a_restart_until_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.json");
        let (release, gate) = mpsc::channel::<()>();
        let tasks = Tasks::new(path.clone());
        let work: TaskAction = Box::new(move || gate.recv().map(|()| Value::Null).map_err(|e| e.to_string()));
        let id = tasks.begin_kept("update_settings", b"{}", work).unwrap();

        let restarted = Tasks::new(path.clone());
        let found = restarted.interrupted();
        assert_eq!((found[0].id.as_str(), found[0].payload().unwrap().as_slice()), (id.as_str(), &b"{}"[..]));
        restarted.resume(id.clone(), "update_settings", Box::new(|| Ok("ok".into()))).unwrap();
        assert_eq!(ended(&restarted, &id), Ok("ok".into()));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !restarted.interrupted().is_empty() {
            assert!(std::time::Instant::now() < deadline, "the task stays in the file");
        }
        drop(release);
        std::fs::write(&path, "corrupt").unwrap();
        assert!(restarted.interrupted().is_empty());
    }
}
