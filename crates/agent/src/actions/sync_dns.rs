//! `sync_dns [blob id, digest, version]`: the names of other instances. A version that is not newer changes nothing.

use std::path::Path;
use std::sync::PoisonError;

use serde::Deserialize;
use serde_json::Value;
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::{Blob, Blobs};
use windlass_archive::digest::Digest;

#[derive(Debug, Deserialize)]
struct Records {
    version: u64,
    #[serde(default)]
    records: Vec<(String, String)>,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(3)?;
    let (id, digest, version): (String, Digest, u64) = (arguments.take(0)?, arguments.take(1)?, arguments.take(2)?);
    sync(agent, version, || Ok(Blobs::new(&agent.base, &agent.settings.current()).find(&id, &digest)?))
}

/// Takes the names in the blob that `fetch` gives.
pub(super) fn sync(
    agent: &Agent,
    version: u64,
    fetch: impl FnOnce() -> Result<Blob, ActionError>,
) -> Result<Value, ActionError> {
    // Of two at once, the older must not come last.
    let _guard = agent.dns.lock().unwrap_or_else(PoisonError::into_inner);
    let path = agent.base.dns_records();
    if version_of(&path).is_some_and(|known| known >= version) {
        return Ok("synced".into());
    }
    let blob = fetch()?;
    let bytes =
        std::fs::read(blob.path()).map_err(|source| ActionError::Io { path: blob.path().to_owned(), source })?;
    let records: Records = serde_json::from_slice(&bytes).map_err(ActionError::DnsRecords)?;
    if records.version != version {
        return Err(ActionError::DnsVersion);
    }
    let hostname = agent.settings.current().agent.agent_id.to_string();
    agent
        .platform
        .write_hosts(&hostname, &records.records)
        .map_err(|source| ActionError::Platform { doing: "saving DNS records", source })?;
    file::write(&path, &bytes, 0o640).map_err(|source| ActionError::Io { path, source })?;
    Ok("synced".into())
}

/// The version that is there; none if there is none, or one that nobody can read.
fn version_of(path: &Path) -> Option<u64> {
    #[derive(Deserialize)]
    struct Known {
        version: u64,
    }
    Some(serde_json::from_slice::<Known>(&std::fs::read(path).ok()?).ok()?.version)
}
