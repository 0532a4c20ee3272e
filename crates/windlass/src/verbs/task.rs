//! `windlass task`: follows a task, or shows one that ended.

use windlass_director_client::answers::Task;
use windlass_director_client::query;

use crate::cli::TaskArgs;
use crate::failure::Failure;
use crate::session::{Session, While};
use crate::task_view;

pub(crate) async fn run(session: &mut Session<'_>, arguments: &TaskArgs) -> Result<(), Failure> {
    let id = match arguments.id {
        Some(id) => id,
        None => running(session, arguments.all).await?,
    };
    let doing = format!("reading task {id}");
    let outputs =
        [(arguments.event, "event"), (arguments.debug, "debug"), (arguments.cpi, "cpi"), (arguments.result, "result")];
    match outputs.into_iter().find(|(asked, _)| *asked) {
        Some((_, kind)) => task_view::follow_raw(session, id, kind, &doing).await,
        None => task_view::follow(session, id, &doing).await,
    }
}

async fn running(session: &Session<'_>, all: bool) -> Result<u64, Failure> {
    let mut asked = vec![("state", "processing,cancelling,queued".to_owned())];
    asked.push(("verbose", if all { "2" } else { "1" }.to_owned()));
    asked.extend(session.named_deployment().map(|name| ("deployment", name.to_owned())));
    let tasks: Vec<Task> =
        session.director.get(&format!("/tasks{}", query(asked))).await.while_("looking for a running task")?;
    tasks.first().map(|task| task.id).ok_or(Failure::NoTask)
}
