//! What a manifest says about software: its releases, and the jobs of its groups.

use std::sync::Arc;

use windlass_contract::Object;
use windlass_manifest::At;

use super::fields::Fields;
use super::findings::{Findings, Placed};
use super::links::JobLinks;
use crate::software::CompiledFor;

/// A version of a release that a manifest names.
#[derive(Debug, Clone, PartialEq)]
pub struct ReleaseReference {
    pub name: Placed<String>,
    /// A version, `latest`, or `1.2.latest` for the latest of those that begin with 1.2.
    pub version: Placed<String>,
    /// The stemcells that its packages must have been compiled for; none where any will do.
    pub exported_from: Vec<CompiledFor>,
}

/// A job that a group names.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReference {
    pub name: Placed<String>,
    pub release: Placed<String>,
    /// None if the job has no such key: then the properties of group and deployment count.
    pub properties: Option<Arc<Object>>,
    /// Of an addon, those of each group.
    pub links: Arc<JobLinks>,
    /// The runtime config that it stands in; empty for the manifest.
    pub document: String,
}

/// `url`, `sha1` and `stemcell` are the client's business: it uploads before it deploys.
const RELEASE_KEYS: [&str; 6] = ["name", "version", "url", "sha1", "stemcell", "exported_from"];
const JOB_KEYS: [&str; 6] = ["name", "release", "properties", "provides", "consumes", "custom_provider_definitions"];

pub(super) fn read_release(at: &At<'_>, findings: &mut Findings) -> Option<ReleaseReference> {
    let mut fields = Fields::of(at, &RELEASE_KEYS, findings)?;
    let mut exported_from = Vec::new();
    if let Some(at) = fields.optional("exported_from")
        && let Some(entries) = fields.check(at.list())
    {
        for entry in entries {
            exported_from.extend(read_exported_from(&entry, fields.findings()));
        }
    }
    let (name, version) = (fields.text("name"), fields.text("version"));
    Some(ReleaseReference { name: name?, version: version?, exported_from })
}

fn read_exported_from(at: &At<'_>, findings: &mut Findings) -> Option<CompiledFor> {
    let mut fields = Fields::of(at, &["os", "version"], findings)?;
    let (os, version) = (fields.text("os"), fields.text("version"));
    Some(CompiledFor { os: os?.value, version: version?.value })
}

pub(super) fn read_job(at: &At<'_>, findings: &mut Findings) -> Option<JobReference> {
    let mut fields = Fields::of(at, &JOB_KEYS, findings)?;
    let links = Arc::new(JobLinks::read(&mut fields));
    let (name, release) = (fields.text("name"), fields.text("release"));
    let properties = fields.optional("properties").and_then(|at| fields.check(at.object())).map(Arc::new);
    Some(JobReference { name: name?, release: release?, properties, links, document: String::new() })
}
