//! `add_dynamic_disk [cid, hint]`: a disk that comes while jobs run is found by its cid.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::disks::DiskSettings;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(2)?;
    let (cid, hint): (String, Value) = (arguments.take(0)?, arguments.take(1)?);
    let settings = agent.settings.reload()?;
    let disk = DiskSettings::new(&cid, hint, &settings.agent).map_err(ActionError::DynamicDisk)?;
    agent
        .platform
        .add_dynamic_disk(&disk)
        .map_err(|source| ActionError::Platform { doing: "Adding dynamic disk", source })?;
    Ok(json!({}))
}
