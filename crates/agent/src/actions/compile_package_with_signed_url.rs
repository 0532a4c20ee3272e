//! `compile_package_with_signed_url [{"package_get_signed_url", "upload_signed_url", "blobstore_headers", "digest", "name", "version",
//! "deps"}]`: `compile_package` with source and result at URLs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use windlass_contract::Secret;

use super::{ActionError, Arguments};
use crate::agent::Agent;
use crate::blobs::{Blobs, SignedUrl};
use crate::software::compile::Compilation;
use crate::spec::PackageOfSpec;
use windlass_archive::digest::Digest;

#[derive(Debug, Deserialize)]
struct Located {
    digest: Digest,
    name: String,
    version: String,
    #[serde(default)]
    deps: Option<BTreeMap<String, PackageOfSpec>>,
    #[serde(default)]
    upload_signed_url: Option<Secret>,
    #[serde(flatten)]
    source: SignedUrl,
}

pub(super) fn run(agent: &Agent, mut arguments: Arguments) -> Result<Value, ActionError> {
    arguments.require(1)?;
    let Located { digest, name, version, deps, upload_signed_url, source } = arguments.take(0)?;
    let compilation = Compilation { name, version, dependencies: deps.unwrap_or_default() };
    agent.settle_scripts()?;
    let settings = agent.settings.current();
    let blobs = Blobs::new(&agent.base, &settings);
    let archive = compilation.run(agent, &blobs.find_signed(&source, &digest)?)?;
    let target = source.beside(upload_signed_url.unwrap_or_default());
    Ok(json!({"result": {"sha1": blobs.put_signed(&target, &archive)?}}))
}
