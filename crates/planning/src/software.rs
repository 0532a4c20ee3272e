//! What runs on the instances of a group: jobs with their properties, and the packages that they need.
//!
//! All instances of a group have the same, so it is kept once, under a digest of it; an instance's spec has the digest, and a hash
//! of what the templates of its jobs gave for this one instance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use windlass_contract::{MiB, Networks, Object};
use windlass_manifest::placeholders;

use crate::names::InstanceId;

/// The jobs of a group, and their packages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Software {
    /// In the manifest's order.
    pub jobs: Vec<JobOfGroup>,
    /// What the jobs need and what that needs, each after what it needs itself.
    pub packages: Vec<PackageOfGroup>,
}

/// A job of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOfGroup {
    pub name: String,
    pub release: String,
    pub release_version: String,
    /// Its fingerprint.
    pub version: String,
    /// Every property that the job declares, with the manifest's value, or else the default, or else null.
    pub properties: Value,
    /// What templates see of each link, by the name in the release. Those that nobody provides are not here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<String, Value>,
    /// The links that it provides, in the order of the manifest and the release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provides: Vec<ProvidedLink>,
}

/// A link that a job provides, as it finds it in `.bosh/links.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvidedLink {
    /// What consumers call it.
    pub name: String,
    #[serde(rename = "type")]
    pub link_type: String,
    /// The number of its group in DNS; 0 until a deploy gives it one.
    pub group: i64,
}

/// A package that a job of a group needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackageOfGroup {
    pub name: String,
    pub release: String,
    /// Its fingerprint.
    pub version: String,
    /// Packages that it needs directly.
    pub dependencies: Vec<String>,
    /// All that it is compiled with, as BOSH writes it.
    pub dependency_key: String,
    /// Whether a job names it. Agents get no others, unless they compile.
    pub is_direct: bool,
    /// Where it comes compiled for another stemcell than the group's, that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiled_for: Option<CompiledFor>,
}

/// A stemcell, as compiled packages name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompiledFor {
    pub os: String,
    pub version: String,
}

/// What makes one compilation of a package differ from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CompilationKey {
    pub release: String,
    pub package: String,
    /// The version of the package, which is its fingerprint.
    pub version: String,
    /// The operating system of the stemcell.
    pub os: String,
    /// The version of the stemcell.
    pub stemcell: String,
    /// What it was compiled with, as BOSH writes it.
    pub dependency_key: String,
}

/// What runs on one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftwareOfInstance {
    /// Of the group's [`Software`].
    pub digest: String,
    /// Of all files that the jobs' templates gave.
    pub configuration_hash: String,
}

/// The number of a set of versions of variables: a deploy makes one, and instances keep the one that they were deployed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VariableSet(pub i64);

/// A job that is not rendered before it is deployed, because a variable gets its value then, or because who plans may not see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedAtDeploy {
    pub job: String,
    pub variable: String,
    /// Whether it has a value that the user who plans must not see.
    pub is_hidden: bool,
}

impl std::fmt::Display for RenderedAtDeploy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = if self.is_hidden { "is not for who may only look" } else { "has no value yet" };
        write!(f, "job '{}' is rendered at deploy: the variable '{}' {why}", self.job, self.variable)
    }
}

/// An instance, as templates see it.
#[derive(Debug, Clone)]
pub struct TemplateInstance<'a> {
    pub deployment: &'a str,
    pub group: &'a str,
    pub index: i64,
    pub id: &'a InstanceId,
    pub az: Option<&'a str>,
    pub bootstrap: bool,
    pub networks: &'a Networks,
    /// The size of the disk that the agent mounts by itself.
    pub persistent_disk: Option<MiB>,
    /// Which versions of variables its templates see; none for those that a deploy would take.
    pub variables: Option<VariableSet>,
    /// The name that they see in the place of its address.
    pub dns_address: Option<&'a str>,
}

/// Renders the templates of jobs, so that a plan knows whether an instance changes.
pub trait Templates {
    /// What stands in the way of rendering before a deploy.
    fn rendered_at_deploy(&self, software: &Software) -> Option<RenderedAtDeploy>;

    /// Stands for the values of variables in the env and the cloud_properties of a VM; none if they have no variables, and an error if
    /// one has no value.
    fn env_values(&self, late: &Object, variables: Option<VariableSet>) -> Result<Option<String>, String>;

    /// The hash of all files of an instance, or everything that is wrong with its templates.
    fn configuration_hash(&self, software: &Software, instance: &TemplateInstance<'_>) -> Result<String, String>;
}

/// Whether something has `((variables))`.
pub fn has_variables(value: &Value) -> bool {
    let mut found = false;
    placeholders::each(value, &mut |_| found = true);
    found
}

impl JobOfGroup {
    /// Whether anything that its templates see has its value from a variable.
    pub fn has_variables(&self) -> bool {
        let mut found = false;
        for value in std::iter::once(&self.properties).chain(self.links.values()) {
            placeholders::each(value, &mut |_| found = true);
        }
        found
    }
}

impl Software {
    /// Stands for all of it.
    pub fn digest(&self) -> String {
        // Objects have their keys in order, and strings are the only keys: this cannot fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What its templates see that the manifest says: properties and links of each job.
    pub fn given_values(&self) -> impl Iterator<Item = (&JobOfGroup, &Value)> {
        self.jobs.iter().flat_map(|job| {
            let values = std::iter::once(&job.properties).chain(job.links.values());
            values.map(move |value| (job, value))
        })
    }

    /// Whether anything of it has its value from a variable.
    pub fn has_variables(&self) -> bool {
        self.jobs.iter().any(JobOfGroup::has_variables)
    }

    /// A package by its name, where all are of one release.
    pub fn package(&self, name: &str) -> Option<&PackageOfGroup> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// What a package needs, by its name. Packages of other releases may have the name as well: those that no job names.
    pub fn needed_by(&self, package: &PackageOfGroup, name: &str) -> Option<&PackageOfGroup> {
        let named = || self.packages.iter().filter(|needed| needed.name == name);
        let is_meant = |needed: &&PackageOfGroup| package.dependency_key.contains(&needed.version);
        let of_release = |needed: &&PackageOfGroup| needed.release == package.release && is_meant(needed);
        named().find(of_release).or_else(|| named().find(is_meant)).or_else(|| named().next())
    }
}

impl PackageOfGroup {
    /// What a copy takes of memory.
    pub(crate) fn weight(&self) -> usize {
        512 + self.dependency_key.len() + self.dependencies.iter().map(|name| 48 + name.len()).sum::<usize>()
    }

    /// By which it is found compiled for a VM with this stemcell.
    pub fn key(&self, os: &str, stemcell: &str) -> CompilationKey {
        match &self.compiled_for {
            Some(other) => self.exact_key(&other.os, &other.version),
            None => self.exact_key(os, stemcell),
        }
    }

    /// By which it is found again once it was compiled for exactly this stemcell.
    pub fn exact_key(&self, os: &str, stemcell: &str) -> CompilationKey {
        CompilationKey {
            release: self.release.clone(),
            package: self.name.clone(),
            version: self.version.clone(),
            os: os.to_owned(),
            stemcell: stemcell.to_owned(),
            dependency_key: self.dependency_key.clone(),
        }
    }
}
