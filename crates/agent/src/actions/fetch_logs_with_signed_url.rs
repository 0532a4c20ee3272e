//! `fetch_logs_with_signed_url [{"signed_url", "log_type", "filters", "blobstore_headers"}]`: logs as a blob at a URL.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::{Blobs, SignedUrl};
use crate::logs;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WantedLogs {
    log_type: String,
    filters: Option<Vec<String>>,
    #[serde(flatten)]
    url: SignedUrl,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let WantedLogs { log_type, filters, url } = arguments.take(0)?;
    let is_cancelled = || agent.tasks.pause(Duration::ZERO);
    let filters = filters.unwrap_or_default();
    let path = logs::pack(&agent.base, agent.platform.system_logs(), &log_type, &filters, &is_cancelled)?;
    let digests = Blobs::new(&agent.base, &agent.settings.current()).put_signed(&url, &path)?;
    Ok(json!({"sha1": digests}))
}
