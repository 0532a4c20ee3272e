//! `ping`: is the agent there?

use serde_json::Value;

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(_: &Agent, _: Arguments) -> Result<Value, ActionError> {
    Ok("pong".into())
}
