//! `migrate_disk []`: the data of the disk on the store moves to the disk mounted beside it, which takes its place. Which disks
//! these are is known here; arguments are ignored.

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;

pub(super) fn run(agent: &Agent, _: Arguments) -> Result<Value, ActionError> {
    agent
        .platform
        .migrate_persistent_disk()
        .map_err(|source| ActionError::Platform { doing: "Migrating persistent disk", source })?;
    Ok(json!({}))
}
