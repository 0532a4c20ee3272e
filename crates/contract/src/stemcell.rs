//! `stemcell.MF`, the manifest inside a stemcell tarball.

use serde::{Deserialize, Serialize};

use crate::{ApiVersion, Object};

/// The manifest of a stemcell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StemcellManifest {
    /// Identity, together with the version.
    pub name: String,
    /// Must be quoted in YAML, so that 1.10 stays 1.10.
    pub version: String,
    /// What deployments name; the stemcell's name when it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operating_system: Option<String>,
    /// What the agent inside can do: absent is 1 (registry), 2 needs no registry, 3 knows signed URLs.
    /// Early documents call it `sc_api_version`.
    #[serde(default, alias = "sc_api_version", skip_serializing_if = "Option::is_none")]
    pub api_version: Option<ApiVersion>,
    /// Digest of the image.
    #[serde(default)]
    pub sha1: String,
    /// Formats of the image, compared with those that a CPI's `info` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stemcell_formats: Vec<String>,
    /// Second argument of `create_stemcell`.
    #[serde(default, deserialize_with = "crate::network::object_or_null")]
    pub cloud_properties: Object,
}

impl StemcellManifest {
    /// The operating system that deployments match.
    pub fn os(&self) -> &str {
        self.operating_system.as_deref().unwrap_or(&self.name)
    }
}
