//! Releases and stemcells.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Named;
use crate::null::or_default;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stemcell {
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub operating_system: String,
    pub version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub cpi: String,
    /// Those that use it.
    #[serde(default, deserialize_with = "or_default")]
    pub deployments: Vec<Named>,
    #[serde(default)]
    pub api_version: Option<u32>,
    #[serde(default)]
    pub id: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Release {
    pub name: String,
    #[serde(default)]
    pub release_versions: Vec<ReleaseVersion>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseVersion {
    pub version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub commit_hash: String,
    #[serde(default)]
    pub uncommitted_changes: bool,
    #[serde(default)]
    pub currently_deployed: bool,
    #[serde(default, deserialize_with = "or_default")]
    pub job_names: Vec<String>,
}

/// The versions of a release.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseVersions {
    pub versions: Vec<String>,
}

/// What a version of a release has.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ReleaseContents {
    #[serde(default, deserialize_with = "or_default")]
    pub jobs: Vec<ReleaseJob>,
    #[serde(default, deserialize_with = "or_default")]
    pub packages: Vec<ReleasePackage>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseJob {
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub blobstore_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub sha1: String,
    #[serde(default, deserialize_with = "or_default")]
    pub fingerprint: String,
    /// As its spec has it.
    #[serde(default)]
    pub consumes: Value,
    /// As its spec has it.
    #[serde(default)]
    pub provides: Value,
    /// What it needs Ruby for; BOSH does not say it.
    #[serde(default)]
    pub needs_ruby: Option<String>,
}

/// A package. One that came compiled has no source.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleasePackage {
    pub name: String,
    #[serde(default, with = "crate::null::text")]
    pub blobstore_id: String,
    #[serde(default, with = "crate::null::text")]
    pub sha1: String,
    #[serde(default, deserialize_with = "or_default")]
    pub fingerprint: String,
    #[serde(default, deserialize_with = "or_default")]
    pub compiled_packages: Vec<PackageForStemcell>,
}

/// A package as it was compiled for a stemcell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PackageForStemcell {
    /// `OS/VERSION`.
    #[serde(default, deserialize_with = "or_default")]
    pub stemcell: String,
    #[serde(default, deserialize_with = "or_default")]
    pub sha1: String,
    #[serde(default, deserialize_with = "or_default")]
    pub blobstore_id: String,
}
