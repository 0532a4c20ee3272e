//! Jobs and packages on their way to a VM. Nothing in a VM dials out, so the files that a spec names are put into the agent before
//! it hears of them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use windlass_contract::Object;
use windlass_planning::dns::DOMAIN;
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::VmRecord;
use windlass_planning::software::Software;
use windlass_planning::template_spec;

/// Where the software of an instance comes from. A director renders its jobs for each VM.
#[async_trait]
pub trait SoftwareSource: std::fmt::Debug + Send + Sync {
    /// What this VM is told to run, and the files for it.
    async fn for_vm(&self, spec: &InstanceSpec, vm: &VmRecord) -> Result<Delivery, SoftwareError>;

    /// A package that the VM does not have yet. It may be elsewhere until it is asked for.
    async fn open(&self, package: &PackageFile) -> Result<PackageOnDisk, SoftwareError>;
}

/// An archive on this machine, for as long as this is held.
pub type PackageOnDisk = Box<dyn AsRef<Path> + Send + Sync>;

/// why an instance cannot get its software
#[derive(Debug, thiserror::Error)]
#[error("its jobs cannot be made ready")]
pub struct SoftwareError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// What a VM runs.
#[derive(Debug)]
pub struct Delivery {
    /// `job`, `packages`, `configuration_hash` and `rendered_templates_archive` of the spec that agents apply.
    pub spec: Object,
    pub packages: Vec<PackageFile>,
    pub jobs: JobsFile,
}

/// The archive of a compiled package.
#[derive(Debug)]
pub struct PackageFile {
    pub name: String,
    pub version: String,
    pub digest: String,
    pub blob: String,
}

/// The archive of the rendered jobs. It may hold secrets, so it is in memory alone, and goes with the delivery.
#[derive(Debug)]
pub struct JobsFile {
    pub blob: String,
    memory: File,
    /// Given back with it.
    _room: Option<OwnedSemaphorePermit>,
}

impl JobsFile {
    pub fn new(blob: String, archive: &[u8]) -> io::Result<Self> {
        let mut memory = File::from(memfd_create("jobs", MemfdFlags::CLOEXEC)?);
        memory.write_all(archive)?;
        Ok(Self { blob, memory, _room: None })
    }

    /// The same, with the room in memory that it takes.
    pub fn within(self, room: Option<OwnedSemaphorePermit>) -> Self {
        Self { _room: room, ..self }
    }

    /// Where this process finds it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.memory.as_raw_fd()))
    }
}

/// The archive of a job as its release has it, and which logs people ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTemplates {
    pub sha1: String,
    pub blob: String,
    pub logs: Option<Value>,
}

/// What the templates of an instance's jobs gave.
#[derive(Debug)]
pub struct RenderedJobs {
    /// One for each job, in their order.
    pub templates: Vec<JobTemplates>,
    /// Of each job's files, by the job's name.
    pub hashes: Object,
    /// The archive of all files, and its digest.
    pub blob: String,
    pub digest: String,
    /// Of all files.
    pub configuration_hash: String,
}

/// What an agent is told of the jobs and packages of its instance.
pub fn software_spec(software: &Software, group: &str, packages: &[PackageFile], rendered: RenderedJobs) -> Object {
    let mut job = template_spec::jobs(software, group);
    let template = |(job, templates): (&windlass_planning::software::JobOfGroup, JobTemplates)| {
        json!({
            "name": job.name, "version": job.version, "sha1": templates.sha1, "blobstore_id": templates.blob,
            "logs": templates.logs.unwrap_or_else(|| json!([])),
        })
    };
    job["templates"] = software.jobs.iter().zip(rendered.templates).map(template).collect();
    let package = |package: &PackageFile| {
        let PackageFile { name, version, digest, blob } = package;
        (name.clone(), json!({"name": name, "version": version, "sha1": digest, "blobstore_id": blob}))
    };
    let entries = [
        ("job", job),
        ("packages", Value::Object(packages.iter().map(package).collect())),
        ("dns_domain_name", DOMAIN.into()),
        ("template_hashes", Value::Object(rendered.hashes)),
        ("rendered_templates_archive", json!({"blobstore_id": rendered.blob, "sha1": rendered.digest})),
        ("configuration_hash", rendered.configuration_hash.into()),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_jobs_are_in_no_folder() {
        let jobs = JobsFile::new("blob".to_owned(), b"secret").unwrap();
        assert_eq!(std::fs::read(jobs.path()).unwrap(), b"secret");
        let target = std::fs::read_link(jobs.path()).unwrap();
        assert!(target.to_string_lossy().starts_with("/memfd:"), "{target:?}");
    }
}
