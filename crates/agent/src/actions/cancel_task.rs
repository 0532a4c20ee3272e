//! `cancel_task [id]`: what runs scripts or waits for processes can be cancelled. The original cancels drains and errands alone.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::tasks::Progress;

const CANCELLABLE: [&str; 6] =
    ["drain", "run_errand", "run_script", "compile_package", "compile_package_with_signed_url", "stop"];

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let id: String = arguments.take(0)?;
    match agent.tasks.progress(&id) {
        None => return Err(ActionError::NoTask(id)),
        Some((_, Progress::Ended(_))) => {}
        Some((method, Progress::Running)) if CANCELLABLE.contains(&method) => agent.tasks.cancel(&id),
        Some((_, Progress::Running)) => return Err(ActionError::NotSupported),
    }
    Ok("canceled".into())
}
