//! `cancel_task [id]`: what runs scripts, waits for processes or packs logs can be cancelled. The original cancels drains and errands
//! alone.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::tasks::Progress;

const CANCELLABLE: [&str; 8] = [
    "drain",
    "run_errand",
    "run_script",
    "compile_package",
    "compile_package_with_signed_url",
    "stop",
    "fetch_logs",
    "fetch_logs_with_signed_url",
];

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
