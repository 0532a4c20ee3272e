//! `get_task [id]`: the result of a task, as often as it is asked for, or that it still runs.

use serde_json::{Value, json};
use windlass_contract::agent::TaskHandle;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::tasks::Progress;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let id: String = arguments.take(0)?;
    match agent.tasks.progress(&id) {
        None => Err(ActionError::NoTask(id)),
        Some((_, Progress::Running)) => Ok(json!(TaskHandle { agent_task_id: id, state: "running".to_owned() })),
        Some((_, Progress::Ended(result))) => result.map_err(|message| ActionError::Task { id, message }),
    }
}
