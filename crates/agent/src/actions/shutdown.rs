//! `shutdown`: power the VM off.

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::boot::Ending;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    let _ = agent.ending.send(Ending::Shutdown);
    Ok("".into())
}
