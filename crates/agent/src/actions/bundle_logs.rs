//! `bundle_logs [{"owning_user", "log_type", "filters"}]`: logs as a file on this machine, which the caller fetches and removes.

use std::fs::File;

use serde::Deserialize;
use serde_json::{Value, json};
use windlass_archive::digest;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::logs;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LogBundle {
    log_type: String,
    filters: Option<Vec<String>>,
    owning_user: String,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let LogBundle { log_type, filters, owning_user } = arguments.take(0)?;
    let filters = filters.unwrap_or_default();
    let path = logs::pack(&agent.base, agent.platform.system_logs(), &log_type, &filters, &|| false)?;
    agent
        .platform
        .give_to_user(&path, &owning_user)
        .map_err(|source| ActionError::Platform { doing: "Changing the owner of the logs", source })?;
    let sha512 = File::open(&path).and_then(|mut file| digest::sha512(&mut file));
    let sha512 = sha512.map_err(|source| ActionError::Io { path: path.clone(), source })?;
    Ok(json!({"logs_tar_path": path, "sha512": sha512}))
}
