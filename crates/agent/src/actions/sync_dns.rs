//! `sync_dns [blob id, digest, version]`: the names of other instances. A version that is not newer changes nothing.

use std::path::Path;
use std::sync::PoisonError;

use serde::Deserialize;
use serde_json::Value;
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::{Blob, Blobs};
use crate::dns::hosts;
use crate::dns::records::Records;
use windlass_archive::digest::Digest;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(3)?;
    let (id, digest, version): (String, Digest, u64) = (arguments.take(0)?, arguments.take(1)?, arguments.take(2)?);
    let settings = agent.settings.current();
    let blobs = Blobs::new(&agent.base, &settings);
    let synced = sync(agent, version, || Ok(blobs.find(&id, &digest)?))?;
    // A director that brings the blob itself brings another one with each version.
    blobs.forget(&id)?;
    Ok(synced)
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
    let records = Records::read(&bytes).map_err(ActionError::DnsRecords)?;
    if records.version != version {
        return Err(ActionError::DnsVersion);
    }
    write_hosts(agent, &records)?;
    file::write(&path, &bytes, 0o640).map_err(|source| ActionError::Io { path, source })?;
    if let Some(resolver) = &agent.resolver {
        resolver.learn(records);
    }
    Ok("synced".into())
}

fn write_hosts(agent: &Agent, records: &Records) -> Result<(), ActionError> {
    let hostname = agent.settings.current().agent.agent_id.to_string();
    let names = match agent.platform.hosts_have_queries() {
        true => hosts::with_queries(records),
        false => records.hosts.clone(),
    };
    let written = agent.platform.write_hosts(&hostname, &names);
    written.map_err(|source| ActionError::Platform { doing: "saving DNS records", source })
}

/// The version that is there; none if there is none, or one that nobody can read.
fn version_of(path: &Path) -> Option<u64> {
    #[derive(Deserialize)]
    struct Known {
        version: u64,
    }
    Some(serde_json::from_slice::<Known>(&std::fs::read(path).ok()?).ok()?.version)
}
