//! `upload_blob [{"blob_id", "checksum", "payload"}]`: a blob with secrets, inside of the message.

use base64::Engine;
use serde::Deserialize;
use serde_json::Value;
use windlass_contract::Secret;
use windlass_durable::file;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::BlobError;
use crate::layout::is_name;
use windlass_archive::digest::Digest;

#[derive(Debug, Deserialize)]
struct Upload {
    blob_id: String,
    checksum: Digest,
    /// Base64, in lines or in one.
    payload: Secret,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let Upload { blob_id, checksum, payload } = arguments.take(0)?;
    if !is_name(&blob_id) {
        return Err(BlobError::Id(blob_id).into());
    }
    let encoded: Vec<u8> = payload.reveal().bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let content = base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|_| ActionError::NotBase64)?;
    checksum
        .verify(&mut content.as_slice())
        .map_err(|source| ActionError::Payload { expected: checksum.to_string(), source })?;
    let path = agent.base.sensitive_blobs().join(&blob_id);
    file::write(&path, &content, file::PRIVATE).map_err(|source| ActionError::Io { path, source })?;
    Ok(blob_id.into())
}
