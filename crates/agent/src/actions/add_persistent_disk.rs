//! `add_persistent_disk [cid, hint]`: remember where a disk is.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::disks::{self, DiskSettings};

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(2)?;
    let (cid, hint): (String, Value) = (arguments.take(0)?, arguments.take(1)?);
    remember(agent, &cid, hint)?;
    Ok(json!({}))
}

pub(super) fn remember(agent: &Agent, cid: &str, hint: Value) -> Result<(), ActionError> {
    let settings = agent.settings.reload()?;
    DiskSettings::new(cid, hint, &settings.agent)
        .and_then(|disk| disks::add_hint(&agent.base.disk_hints(), disk))
        .map_err(ActionError::KeepingDisk)
}
