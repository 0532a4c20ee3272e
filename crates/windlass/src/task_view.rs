//! Follows a task of the director until it ends.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use windlass_director_client::TaskOutput;
use windlass_director_client::answers::Task;
use windlass_director_client::event_log::EventReader;

use crate::event_lines::EventLines;
use crate::failure::Failure;
use crate::formats;
use crate::live_tree::LiveTree;
use crate::screen::Screen;
use crate::session::{Session, While};

/// How often a running task is looked at; the original's 500 ms would be most of what a small task takes.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Follows a task and shows its events. Fails if the task does.
pub(crate) async fn follow(session: &mut Session<'_>, task: u64, doing: &str) -> Result<(), Failure> {
    // One that is not there is not begun.
    look(session, task, doing).await?;
    if !session.screen.is_brief() {
        session.screen.begin_line(&format!("Task {task}"));
    }
    let mut view = EventView::new(task, session.screen);
    let mut output = TaskOutput::new(task, "event");
    let mut patience = Patience::new();
    let ended = loop {
        // The state first: what is written before the end is then in the output.
        let now = look(session, task, doing).await?;
        let bytes = output.next(&session.director).await.while_(doing)?;
        view.show(session, &bytes);
        if output.is_behind() {
            continue;
        }
        if !now.is_running() {
            break now;
        }
        if let Err(interrupted) = patience.wait(task).await {
            view.leave();
            return Err(interrupted);
        }
    };
    let why = view.end(session, &ended.state);
    if ended.state == "done" {
        return Ok(());
    }
    Err(failed(doing, ended, why))
}

/// Waits for a task and shows nothing of it. Fails if the task does.
pub(crate) async fn wait(session: &Session<'_>, task: u64, doing: &str) -> Result<(), Failure> {
    let mut patience = Patience::new();
    loop {
        let now = look(session, task, doing).await?;
        if !now.is_running() {
            if now.state == "done" {
                return Ok(());
            }
            return Err(failed(doing, now, why(session, task, doing).await?));
        }
        patience.wait(task).await?;
    }
}

/// Why a task failed, as its events tell.
async fn why(session: &Session<'_>, task: u64, doing: &str) -> Result<Option<String>, Failure> {
    let events = TaskOutput::new(task, "event").next(&session.director).await.while_(doing)?;
    Ok(EventReader::default().read(&events).into_iter().find_map(|event| event.error).map(|error| error.message))
}

/// `why` is what its last event says; its result has only the beginning of that.
fn failed(doing: &str, ended: Task, why: Option<String>) -> Failure {
    let why = why.or(ended.result).unwrap_or_default();
    Failure::Task { doing: doing.to_owned(), task: ended.id, state: ended.state, why }
}

/// How long a user waits: until the end, or until Ctrl-C.
struct Patience(Option<Signal>);

impl Patience {
    /// From here on, Ctrl-C does not end the program by itself.
    fn new() -> Self {
        Self(signal(SignalKind::interrupt()).ok())
    }

    /// Waits a little; fails if the user does not want to wait any more.
    async fn wait(&mut self, task: u64) -> Result<(), Failure> {
        let Some(interrupts) = &mut self.0 else {
            tokio::time::sleep(BETWEEN_LOOKS).await;
            return Ok(());
        };
        match tokio::time::timeout(BETWEEN_LOOKS, interrupts.recv()).await {
            Ok(Some(())) => Err(Failure::Interrupted { task }),
            _ => Ok(()),
        }
    }
}

/// Follows a task and prints its output as it is. Fails if the task does.
pub(crate) async fn follow_raw(session: &mut Session<'_>, task: u64, kind: &str, doing: &str) -> Result<(), Failure> {
    let mut output = TaskOutput::new(task, kind);
    let mut patience = Patience::new();
    let ended = loop {
        let now = look(session, task, doing).await?;
        let bytes = output.next(&session.director).await.while_(doing)?;
        if !bytes.is_empty() {
            session.screen.piece(&String::from_utf8_lossy(&bytes));
        }
        if output.is_behind() {
            continue;
        }
        if !now.is_running() {
            break now;
        }
        patience.wait(task).await?;
    };
    if ended.state == "done" {
        return Ok(());
    }
    Err(failed(doing, ended, why(session, task, doing).await?))
}

/// The result of a task that ended.
pub(crate) async fn result(session: &Session<'_>, task: u64, doing: &str) -> Result<String, Failure> {
    TaskOutput::new(task, "result").rest(&session.director).await.while_(doing)
}

async fn look(session: &Session<'_>, task: u64, doing: &str) -> Result<Task, Failure> {
    session.director.task(task).await.while_(doing)
}

/// What a person or a script sees of the events.
struct EventView {
    task: u64,
    reader: EventReader,
    lines: EventLines,
    begun: bool,
    brief: bool,
    tree: Option<LiveTree>,
    /// Why the task failed.
    error: Option<String>,
}

impl EventView {
    fn new(task: u64, screen: &Screen) -> Self {
        let (live, brief) = (screen.is_live(), screen.is_brief());
        let tree = (live || brief).then(|| LiveTree::new(live));
        Self {
            task,
            reader: EventReader::default(),
            lines: EventLines::new(task),
            begun: false,
            brief,
            tree,
            error: None,
        }
    }

    fn show(&mut self, session: &mut Session<'_>, bytes: &[u8]) {
        for mut event in self.reader.read(bytes) {
            if !self.begun {
                let title = if self.brief { format!("Task {}", self.task) } else { "\n".to_owned() };
                session.screen.continue_line(&title);
                self.begun = true;
            }
            if let Some(error) = &event.error {
                self.error = Some(session.screen.shown(&error.message));
            }
            event.task = session.screen.shown(&event.task);
            event.stage = session.screen.shown(&event.stage);
            let pieces = self.lines.render(&event);
            match &mut self.tree {
                Some(tree) => tree.show(&event),
                None => pieces.iter().for_each(|piece| session.screen.piece(piece)),
            }
        }
    }

    /// Leaves the terminal in order while the task goes on.
    fn leave(self) {
        if let Some(tree) = self.tree {
            tree.end();
        }
    }

    /// Gives why it failed.
    fn end(self, session: &mut Session<'_>, state: &str) -> Option<String> {
        let Self { task, lines, begun, brief, tree, error, .. } = self;
        if let Some(tree) = tree {
            tree.end();
        }
        if brief {
            if begun {
                session.screen.continue_line(&format!("Task {task} {state}"));
            }
            return error;
        }
        if begun {
            session.screen.end_pieces();
        }
        match lines.span() {
            Some((first, last)) => {
                let (start, end) = (formats::date(first), formats::date(last));
                let took = formats::duration(last - first);
                session.screen.end_events(&format!(
                    "\n\nTask {task} Started  {start}\nTask {task} Finished {end}\nTask {task} Duration {took}"
                ));
                session.screen.continue_line(&format!("\nTask {task} {state}\n"));
            }
            None if state == "done" => session.screen.continue_line(". Done"),
            None => session.screen.continue_line(&format!(". {state}")),
        }
        error
    }
}
