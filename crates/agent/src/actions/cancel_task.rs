//! `cancel_task [id]`: only a drain can be cancelled; it ends at once anyway when there are no jobs.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::tasks::Progress;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let id: String = arguments.take(0)?;
    match agent.tasks.progress(&id) {
        None => Err(ActionError::NoTask(id)),
        Some(("drain", _) | (_, Progress::Ended(_))) => Ok("canceled".into()),
        Some((_, Progress::Running)) => Err(ActionError::NotSupported),
    }
}
