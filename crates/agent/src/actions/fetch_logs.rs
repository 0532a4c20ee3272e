//! `fetch_logs [kinds, filters]`: logs as a blob.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::Blobs;
use crate::logs;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(2)?;
    let kinds: String = arguments.take(0)?;
    let filters: Option<Vec<String>> = arguments.take(1)?;
    let is_cancelled = || agent.tasks.pause(Duration::ZERO);
    let filters = filters.unwrap_or_default();
    let path = logs::pack(&agent.base, agent.platform.system_logs(), &kinds, &filters, &is_cancelled)?;
    let (id, sha1) = Blobs::new(&agent.base, &agent.settings.current()).put(&path)?;
    Ok(json!({"blobstore_id": id, "sha1": sha1}))
}
