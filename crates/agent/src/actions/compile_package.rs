//! `compile_package [blob id, digest, name, version, dependencies]`: makes a package of its source, and keeps it as a blob.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::Blobs;
use crate::software::compile::Compilation;
use crate::spec::PackageOfSpec;
use windlass_archive::digest::Digest;

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(5)?;
    let (blob, digest): (String, Digest) = (arguments.take(0)?, arguments.take(1)?);
    let (name, version) = (arguments.take(2)?, arguments.take(3)?);
    let dependencies: Option<BTreeMap<String, PackageOfSpec>> = arguments.take(4)?;
    let compilation = Compilation { name, version, dependencies: dependencies.unwrap_or_default() };
    agent.settle_scripts()?;
    let settings = agent.settings.current();
    let blobs = Blobs::new(&agent.base, &settings);
    let source = blobs.find(&blob, &digest)?;
    let archive = compilation.run(agent, &source)?;
    blobs.forget(&blob)?;
    let (blobstore_id, sha1) = blobs.put(&archive)?;
    Ok(json!({"result": {"blobstore_id": blobstore_id, "sha1": sha1}}))
}
