//! `windlass task`: follows a task, or shows one that ended.

use crate::cli::TaskArgs;
use crate::director_answers::Task;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &TaskArgs) -> Result<(), Failure> {
    let id = match arguments.id {
        Some(id) => id,
        None => running(session).await?,
    };
    let doing = format!("reading task {id}");
    let outputs =
        [(arguments.event, "event"), (arguments.debug, "debug"), (arguments.cpi, "cpi"), (arguments.result, "result")];
    match outputs.into_iter().find(|(asked, _)| *asked) {
        Some((_, kind)) => task_view::follow_raw(session, id, kind, &doing).await,
        None => task_view::follow(session, id, &doing).await,
    }
}

async fn running(session: &Session<'_>) -> Result<u64, Failure> {
    let path = "/tasks?state=processing,cancelling,queued&verbose=1";
    let tasks: Vec<Task> = session.director.get(path).await.while_("looking for a running task")?;
    tasks.first().map(|task| task.id).ok_or(Failure::NoTask)
}
