//! Jobs and packages on their way to a VM. Nothing in a VM dials out, so the files that a spec names are put into the agent before
//! it hears of them.

use std::path::PathBuf;

use async_trait::async_trait;
use windlass_contract::Object;
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::VmRecord;

/// Where the software of an instance comes from. A director renders its jobs for each VM.
#[async_trait]
pub trait SoftwareSource: std::fmt::Debug + Send + Sync {
    /// What this VM is told to run, and the files for it.
    async fn for_vm(&self, spec: &InstanceSpec, vm: &VmRecord) -> Result<Delivery, SoftwareError>;
}

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
    /// The files of the jobs, which may hold secrets: they are gone from here with the delivery.
    pub jobs: JobsFile,
}

/// The archive of a compiled package.
#[derive(Debug)]
pub struct PackageFile {
    pub name: String,
    pub version: String,
    pub digest: String,
    pub blob: String,
    pub path: PathBuf,
}

/// The archive of the rendered jobs.
#[derive(Debug)]
pub struct JobsFile {
    pub blob: String,
    pub file: tempfile::TempPath,
}
