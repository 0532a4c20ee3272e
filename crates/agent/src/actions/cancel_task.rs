//! `cancel_task [id]`: of the actions of this agent, only a drain can be cancelled.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::tasks::Progress;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let id: String = arguments.take(0)?;
    match agent.tasks.progress(&id) {
        None => return Err(ActionError::NoTask(id)),
        Some((_, Progress::Ended(_))) => {}
        Some(("drain", Progress::Running)) => agent.tasks.cancel(&id),
        Some((_, Progress::Running)) => return Err(ActionError::NotSupported),
    }
    Ok("canceled".into())
}
