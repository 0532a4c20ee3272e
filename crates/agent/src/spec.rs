//! The spec of the instance: what `apply` brings and `get_state` tells.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use windlass_contract::network::NetworkKind;
use windlass_contract::{Network, Networks, Object};
use windlass_durable::file;

use crate::blobs::SignedUrl;

/// A spec, reduced to what agents keep. Networks stay as they came, because directors compare them for equality.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Spec {
    #[serde(deserialize_with = "or_default")]
    properties: Properties,
    #[serde(deserialize_with = "or_default")]
    job: Job,
    #[serde(deserialize_with = "or_default")]
    packages: BTreeMap<String, PackageOfSpec>,
    #[serde(deserialize_with = "or_default")]
    configuration_hash: String,
    #[serde(deserialize_with = "or_default")]
    networks: Object,
    #[serde(deserialize_with = "or_default")]
    resource_pool: Object,
    #[serde(deserialize_with = "or_default")]
    deployment: String,
    #[serde(deserialize_with = "or_default")]
    name: String,
    index: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    id: String,
    #[serde(deserialize_with = "or_default")]
    az: String,
    #[serde(deserialize_with = "or_default")]
    persistent_disk: u64,
    rendered_templates_archive: Option<Archive>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            properties: Properties::default(),
            job: Job::default(),
            packages: BTreeMap::new(),
            configuration_hash: String::new(),
            networks: Object::new(),
            resource_pool: Object::new(),
            deployment: String::new(),
            name: String::new(),
            index: None,
            id: String::new(),
            az: String::new(),
            persistent_disk: 0,
            rendered_templates_archive: None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Properties {
    #[serde(deserialize_with = "or_default")]
    logging: Logging,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Logging {
    #[serde(deserialize_with = "or_default")]
    max_log_file_size: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Job {
    name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    release: String,
    #[serde(deserialize_with = "or_default")]
    template: String,
    #[serde(deserialize_with = "or_default")]
    version: String,
    templates: Option<Vec<JobOfSpec>>,
}

/// A job that the instance runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobOfSpec {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: String,
}

/// A package that its jobs need.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PackageOfSpec {
    #[serde(deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) version: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) sha1: String,
    #[serde(deserialize_with = "or_default")]
    pub(crate) blobstore_id: String,
    #[serde(flatten)]
    pub(crate) url: SignedUrl,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Archive {
    #[serde(deserialize_with = "or_default")]
    sha1: String,
    #[serde(deserialize_with = "or_default")]
    blobstore_id: String,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// why a spec cannot be applied
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    /// the VM has no such network
    #[error("Resolving dynamic networks: Network '{0}' is not found in settings")]
    UnknownNetwork(String),
    /// the spec has jobs or packages
    #[error(
        "this VM cannot run jobs, which look for everything below /var/vcap, and the spec asks for {0}; deploy the instance group \
         without jobs, or in containers, or with a stemcell that 'windlass stemcell build --userland host' made"
    )]
    HasJobs(String),
    /// no job is an errand
    #[error("At least one job template is required to run an errand")]
    NoErrand,
    /// no job has this name
    #[error("Could not find errand {0}")]
    UnknownErrand(String),
    /// a file of the spec cannot be read or written
    #[error("cannot keep the spec in {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl Spec {
    /// The spec applied last; an empty one before the first.
    pub(crate) fn read(path: &Path) -> Result<Self, SpecError> {
        let failed = |source| SpecError::Io { path: path.to_owned(), source };
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Keeps the spec, and the files by which jobs learn who they are.
    pub(crate) fn write(&self, path: &Path, instance: &Path) -> Result<(), SpecError> {
        use std::os::unix::fs::PermissionsExt;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SpecError::Io { path, source }
        };
        for (name, content) in
            [("id", &self.id), ("az", &self.az), ("name", &self.name), ("deployment", &self.deployment)]
        {
            let path = instance.join(name);
            file::write(&path, content.as_bytes(), 0o644).map_err(failed(&path))?;
        }
        std::fs::set_permissions(instance, std::fs::Permissions::from_mode(0o755)).map_err(failed(instance))?;
        file::write_json(path, self, file::PRIVATE).map_err(failed(path))
    }

    /// Whether applying it changes jobs, or only hands over who the instance is.
    pub(crate) fn changes_jobs(&self) -> bool {
        !self.configuration_hash.is_empty()
    }

    /// The size of the persistent disk in MiB.
    pub(crate) fn persistent_disk(&self) -> u64 {
        self.persistent_disk
    }

    /// What drain scripts are told about the way from this spec to the next one.
    pub(crate) fn drain_arguments(&self, next: &Self) -> Vec<String> {
        let job = if self.has_jobs() { "job_changed" } else { "job_new" };
        let hash = match self.configuration_hash.as_str() {
            "" => "hash_new",
            current if current == next.configuration_hash => "hash_unchanged",
            _ => "hash_changed",
        };
        let digest = |spec: &Self, package: &str| spec.packages.get(package).map(|package| package.sha1.clone());
        let mut changed: Vec<String> =
            next.packages.keys().filter(|name| digest(self, name) != digest(next, name)).cloned().collect();
        changed.sort();
        [vec![job.to_owned(), hash.to_owned()], changed].concat()
    }

    /// Without an archive of their files there are no jobs, whatever the list says.
    fn has_jobs(&self) -> bool {
        !self.jobs().is_empty()
    }

    /// How large a log may get before it is rotated. What could say more than a size to `logrotate` says nothing.
    pub(crate) fn log_size(&self) -> &str {
        let size = self.properties.logging.max_log_file_size.as_str();
        let is_size = !size.is_empty() && size.chars().all(|letter| letter.is_ascii_alphanumeric());
        if is_size { size } else { "50M" }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn jobs(&self) -> &[JobOfSpec] {
        match (&self.rendered_templates_archive, &self.job.templates) {
            (Some(_), Some(jobs)) => jobs,
            _ => &[],
        }
    }

    /// The job that an errand is: that of this name, or the instance's only one.
    pub(crate) fn errand(&self, name: Option<&str>) -> Result<String, SpecError> {
        let Some(name) = name else {
            let template = &self.job.template;
            return if template.is_empty() { Err(SpecError::NoErrand) } else { Ok(template.clone()) };
        };
        let is_there = self.job.templates.iter().flatten().any(|job| job.name == name);
        if is_there { Ok(name.to_owned()) } else { Err(SpecError::UnknownErrand(name.to_owned())) }
    }

    pub(crate) fn packages(&self) -> Vec<PackageOfSpec> {
        let named = |(name, package): (&String, &PackageOfSpec)| match package.name.is_empty() {
            true => PackageOfSpec { name: name.clone(), ..package.clone() },
            false => package.clone(),
        };
        self.packages.iter().map(named).collect()
    }

    /// The blob and digest of the jobs' files. Both are empty where a director has no jobs.
    pub(crate) fn archive(&self) -> Option<(&str, &str)> {
        let archive = self.rendered_templates_archive.as_ref().filter(|archive| !archive.blobstore_id.is_empty())?;
        Some((&archive.blobstore_id, &archive.sha1))
    }

    /// Refuses a spec with jobs or packages.
    pub(crate) fn refuse_jobs(&self) -> Result<(), SpecError> {
        let names =
            |names: Vec<&str>, what: &str| (!names.is_empty()).then(|| format!("the {what} {}", names.join(", ")));
        let jobs = self.jobs().iter().filter(|_| self.archive().is_some()).map(|job| job.name.as_str()).collect();
        let packages = self.packages.keys().map(String::as_str).collect();
        let wanted: Vec<String> = [names(jobs, "jobs"), names(packages, "packages")].into_iter().flatten().collect();
        if wanted.is_empty() { Ok(()) } else { Err(SpecError::HasJobs(wanted.join(" and "))) }
    }

    /// Checks the networks against those of the VM; dynamic ones get the address that the machine found, or that the VM was given.
    pub(crate) fn resolve_networks(&mut self, settings: &Networks, found: Option<&Network>) -> Result<(), SpecError> {
        for (name, network) in &mut self.networks {
            let Some(known) = settings.get(name) else {
                if name == "local" && network["ip"] == "127.0.0.1" {
                    continue;
                }
                return Err(SpecError::UnknownNetwork(name.clone()));
            };
            let Some(network) = network.as_object_mut().filter(|_| known.kind == NetworkKind::Dynamic) else {
                continue;
            };
            let known = found.unwrap_or(known);
            for (key, found) in [("ip", &known.ip), ("netmask", &known.netmask), ("gateway", &known.gateway)] {
                if let Some(found) = found {
                    network.insert(key.to_owned(), Value::String(found.clone()));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> Spec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn before_the_first_apply_the_state_is_the_originals() {
        assert_eq!(
            serde_json::to_value(Spec::default()).unwrap(),
            json!({"properties": {"logging": {"max_log_file_size": ""}}, "job": {"name": null, "release": "", "template": "",
                "version": "", "templates": null}, "packages": {}, "configuration_hash": "", "networks": {}, "resource_pool": {},
                "deployment": "", "name": "", "index": null, "id": "", "az": "", "persistent_disk": 0,
                "rendered_templates_archive": null})
        );
    }

    #[test]
    fn drain_scripts_learn_what_changes() {
        let jobs = json!({"templates": [{"name": "web", "version": "1"}]});
        let archive = json!({"blobstore_id": "b", "sha1": "s"});
        let current = spec(json!({"configuration_hash": "1", "job": jobs, "rendered_templates_archive": archive,
            "packages": {"same": {"sha1": "1"}, "old": {"sha1": "2"}}}));
        let next = spec(json!({"configuration_hash": "2",
            "packages": {"same": {"sha1": "1"}, "old": {"sha1": "3"}, "new": {"sha1": "4"}}}));
        assert_eq!(current.drain_arguments(&next), ["job_changed", "hash_changed", "new", "old"]);
        assert_eq!(current.drain_arguments(&current), ["job_changed", "hash_unchanged"]);
        assert_eq!(Spec::default().drain_arguments(&next)[..2], ["job_new", "hash_new"]);
    }

    #[test]
    fn jobs_that_would_never_run_are_refused_by_name() {
        let jobs = json!({"job": {"templates": [{"name": "web", "version": "1"}]}, "packages": {"ruby": {}},
            "rendered_templates_archive": {"blobstore_id": "b", "sha1": "s"}});
        let refused = spec(jobs).refuse_jobs().unwrap_err().to_string();
        assert!(refused.contains("the jobs web and the packages ruby"), "{refused}");
        let first_of_create_env = json!({"job": {"templates": [], "name": "bosh"}, "packages": null, "properties": null,
            "rendered_templates_archive": {"blobstore_id": "", "sha1": ""}});
        spec(first_of_create_env).refuse_jobs().unwrap();
    }

    #[test]
    fn dynamic_networks_get_their_address_and_manual_ones_stay_as_they_came() {
        let settings: Networks = serde_json::from_value(json!({
            "a": {"type": "manual", "ip": "127.1.1.1"}, "b": {"type": "dynamic", "ip": "127.1.1.2", "netmask": "255.0.0.0"}
        }))
        .unwrap();
        let manual = json!({"ip": "10.0.0.1", "odd": [1]});
        let mut applied =
            spec(json!({"networks": {"a": manual, "b": {"type": "dynamic"}, "local": {"ip": "127.0.0.1"}}}));
        applied.resolve_networks(&settings, None).unwrap();
        assert_eq!(applied.networks["a"], manual);
        assert_eq!(applied.networks["b"], json!({"type": "dynamic", "ip": "127.1.1.2", "netmask": "255.0.0.0"}));
        let mut wrong = spec(json!({"networks": {"zz": {}}}));
        let error = wrong.resolve_networks(&settings, None).unwrap_err().to_string();
        assert_eq!(error, "Resolving dynamic networks: Network 'zz' is not found in settings");
    }
}
