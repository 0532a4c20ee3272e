//! `sync_dns_with_signed_url [{"signed_url", "multi_digest", "version", "blobstore_headers"}]`: `sync_dns` with a blob at a URL.

use serde::Deserialize;
use serde_json::Value;

use super::{ActionError, Arguments, sync_dns};
use crate::agent::Agent;
use crate::blobs::{Blobs, SignedUrl};
use windlass_archive::digest::Digest;

#[derive(Debug, Deserialize)]
struct Located {
    multi_digest: Digest,
    version: u64,
    #[serde(flatten)]
    url: SignedUrl,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let Located { multi_digest, version, url } = arguments.take(0)?;
    sync_dns::sync(agent, version, || {
        let found = Blobs::new(&agent.base, &agent.settings.current()).find_signed(&url, &multi_digest);
        found.map_err(ActionError::FetchingDns)
    })
}
