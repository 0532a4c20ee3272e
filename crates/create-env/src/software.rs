//! The jobs that run on the VM: rendered here, their packages compiled in the VM itself, and kept for the next run.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use uuid::Uuid;
use windlass_contract::{MiB, Networks};
use windlass_durable::file;
use windlass_operations::software::{
    Delivery, JobTemplates, JobsFile, PackageFile, PackageOnDisk, RenderedJobs, SoftwareError, SoftwareSource,
    software_spec,
};
use windlass_operations::steps::{CompilePackage, Context, Dependency, WorkError};
use windlass_planning::desired::{add_packages, bind_properties};
use windlass_planning::plan::InstanceSpec;
use windlass_planning::records::{JobRecord, PackageRecord, PackageSource, ReleaseRecord, StemcellOfVm, VmRecord};
use windlass_planning::software::{JobOfGroup, PackageOfGroup, Software, SoftwareOfInstance, TemplateInstance};
use windlass_planning::template_spec;
use windlass_release::{Job, Release};
use windlass_render::{Backends, RenderedJob, Renderer as _, archive, configuration_hash};

use crate::manifest::{Wanted, WantedJob};
use crate::releases::{EnvReleaseError, ReadReleases};
use crate::report::Report;
use crate::run::{EnvError, ONLY_INSTANCE};

/// why jobs cannot run on the VM
#[derive(Debug, thiserror::Error)]
pub enum JobsError {
    /// the release has no such job
    #[error("the release '{release}' has no job '{job}'; it has {has}")]
    NoJob { release: String, job: String, has: String },
    /// properties have the wrong form
    #[error("the properties of job '{job}' cannot be used: {}", problems.join("; "))]
    Properties { job: String, problems: Vec<String> },
    /// its packages cannot be used
    #[error("the packages of job '{job}' cannot be used: {why}")]
    Packages { job: String, why: String },
    #[error("Unable to render jobs for instance group '{group}'. Errors are:\n{}", errors.join("\n"))]
    Render { group: String, errors: Vec<String> },
    /// a package is not there
    #[error(
        "the package '{0}' is neither in its release nor compiled; make the release's tarball with 'create-release --tarball'"
    )]
    NoPackage(String),
    /// a file cannot be used
    #[error("cannot use '{}'", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// What runs on the VM.
#[derive(Debug)]
pub(crate) struct EnvSoftware {
    releases: Arc<ReadReleases>,
    software: Software,
    deployment: String,
    group: String,
    persistent_disk: Option<MiB>,
    renderer: Arc<Backends>,
    /// Where compiled packages are kept.
    compiled: PathBuf,
}

impl EnvSoftware {
    /// What the manifest's jobs need; none if there are none.
    pub(crate) fn new(
        wanted: &Wanted,
        releases: &Arc<ReadReleases>,
        renderer: &Arc<Backends>,
        compiled: PathBuf,
    ) -> Result<Option<Self>, EnvError> {
        if wanted.jobs.is_empty() {
            return Ok(None);
        }
        let mut software = Software::default();
        for job in &wanted.jobs {
            add(&mut software, wanted, job, releases)?;
        }
        Ok(Some(Self {
            releases: releases.clone(),
            software,
            deployment: wanted.name.clone(),
            group: wanted.group.clone(),
            persistent_disk: wanted.disk.as_ref().map(|disk| disk.size),
            renderer: renderer.clone(),
            compiled,
        }))
    }

    /// Stands for it in a spec.
    pub(crate) fn of_instance(&self) -> SoftwareOfInstance {
        SoftwareOfInstance { digest: self.software.digest(), configuration_hash: String::new() }
    }

    /// The files of all jobs for an instance with these networks, or everything that is wrong with their templates.
    pub(crate) fn render(&self, networks: &Networks) -> Result<Vec<(String, RenderedJob)>, JobsError> {
        let instance = TemplateInstance {
            deployment: &self.deployment,
            group: &self.group,
            index: 0,
            id: &ONLY_INSTANCE.into(),
            az: Some("unknown"),
            bootstrap: true,
            networks,
            persistent_disk: self.persistent_disk,
            variables: None,
            dns_address: None,
        };
        let (mut rendered, mut errors) = (Vec::new(), Vec::new());
        for job in &self.software.jobs {
            let Some(read) = self.job(job) else { continue };
            match self.renderer.render(read, &template_spec::of(&self.software, job, &instance)) {
                Ok(files) => rendered.push((job.name.clone(), files)),
                Err(error) => {
                    errors.push(format!("  - {}", error.without_values(read).to_string().replace('\n', "\n  ")))
                }
            }
        }
        if errors.is_empty() { Ok(rendered) } else { Err(JobsError::Render { group: self.group.clone(), errors }) }
    }

    fn release(&self, name: &str) -> Option<&Release> {
        self.releases.releases.iter().find(|release| release.manifest.name == name)
    }

    fn job(&self, job: &JobOfGroup) -> Option<&Job> {
        let jobs = self.release(&job.release)?.jobs.iter().map(|archive| &archive.job);
        jobs.into_iter().find(|read| read.spec.name == job.name)
    }

    /// Compiles in the VM what is not kept from an earlier run.
    pub(crate) async fn compile(&self, context: &Context, vm: &VmRecord, report: &Report) -> Result<(), EnvError> {
        file::create_private_dir(&self.compiled)
            .map_err(|source| JobsError::File { path: self.compiled.clone(), source })?;
        for package in &self.software.packages {
            report.go_on()?;
            let title = format!("Compiling package '{}/{}'", package.name, package.version);
            if self.kept(package, &vm.stemcell).is_some() {
                report.skipped(&title, "Package already compiled");
                continue;
            }
            report.step(&title, self.compile_one(context, vm, package)).await?;
        }
        Ok(())
    }

    async fn compile_one(&self, context: &Context, vm: &VmRecord, package: &PackageOfGroup) -> Result<(), EnvError> {
        let missing = || JobsError::NoPackage(package.name.clone());
        let release = self.release(&package.release).ok_or_else(missing)?;
        let source = release.packages.get(&package.name).cloned().ok_or_else(missing)?;
        let listed = release.manifest.packages.iter().find(|listed| listed.name == package.name).ok_or_else(missing)?;
        let mut dependencies = Vec::new();
        for name in &package.dependencies {
            let missing = || JobsError::NoPackage(name.clone());
            let needed = self.software.needed_by(package, name).ok_or_else(missing)?;
            let kept = self.kept(needed, &vm.stemcell).ok_or_else(missing)?;
            let PackageFile { name, version, digest, blob } = kept.file;
            dependencies.push(Dependency { name, version, digest, blob, path: kept.path });
        }
        let path = self.path(package, &vm.stemcell);
        let failed = |source| JobsError::File { path: path.clone(), source };
        let into = file::beside(&path).map_err(failed)?;
        let compilation = CompilePackage {
            context: context.clone(),
            vm: vm.clone(),
            name: package.name.clone(),
            version: package.version.clone(),
            source: (listed.sha1.clone(), source),
            dependencies,
            into: into.clone(),
            compiled: None,
        };
        let digest = compilation.run().await.map_err(|error| {
            file::discard(&into);
            WorkError::from(error)
        })?;
        file::rename(&into, &path).map_err(failed)?;
        // Without it, the archive is not taken for a whole one.
        file::write(&path.with_extension("digest"), digest.as_bytes(), file::PRIVATE).map_err(failed)?;
        Ok(())
    }

    fn path(&self, package: &PackageOfGroup, stemcell: &StemcellOfVm) -> PathBuf {
        let key = package.exact_key(&stemcell.name, &stemcell.version);
        let text = serde_json::to_vec(&key).unwrap_or_default();
        let name: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        self.compiled.join(format!("{name}.tgz"))
    }

    /// A package that is compiled: by its release, or by a run before this one.
    fn kept(&self, package: &PackageOfGroup, stemcell: &StemcellOfVm) -> Option<Kept> {
        let release = self.release(&package.release)?;
        let compiled = release.manifest.compiled_packages.iter().map(|compiled| &compiled.package);
        let (path, digest) = match compiled.into_iter().find(|compiled| compiled.name == package.name) {
            Some(compiled) => (release.packages.get(&package.name)?.clone(), compiled.sha1.clone()),
            None => {
                let path = self.path(package, stemcell);
                let digest = std::fs::read_to_string(path.with_extension("digest")).ok()?;
                (Some(path).filter(|path| path.is_file())?, digest)
            }
        };
        let (name, version) = (package.name.clone(), package.version.clone());
        let blob = Uuid::new_v5(&Uuid::NAMESPACE_OID, digest.as_bytes()).to_string();
        Some(Kept { file: PackageFile { name, version, digest, blob }, path })
    }

    fn deliver(&self, vm: &VmRecord) -> Result<Delivery, JobsError> {
        let rendered = self.render(&vm.networks)?;
        let by_name: Vec<(&str, &RenderedJob)> = rendered.iter().map(|(name, job)| (name.as_str(), job)).collect();
        let failed = |source| JobsError::File { path: "rendered jobs".into(), source };
        let packed = archive(&by_name).map_err(failed)?;
        let digest: String = Sha1::digest(&packed).iter().map(|byte| format!("{byte:02x}")).collect();
        let jobs = JobsFile::new(Uuid::new_v4().to_string(), &packed).map_err(failed)?;
        let mut packages = Vec::new();
        for package in self.software.packages.iter().filter(|package| package.is_direct) {
            let kept = self.kept(package, &vm.stemcell);
            packages.push(kept.ok_or_else(|| JobsError::NoPackage(package.name.clone()))?.file);
        }
        let logs = |job: &JobOfGroup| self.job(job)?.spec.raw.get("logs").filter(|logs| !logs.is_null()).cloned();
        // There is no blobstore that an agent could have them from.
        let templates = |job| JobTemplates { sha1: String::new(), blob: String::new(), logs: logs(job) };
        let described = RenderedJobs {
            templates: self.software.jobs.iter().map(templates).collect(),
            hashes: by_name.iter().map(|(name, job)| ((*name).to_owned(), Value::from(job.template_hash()))).collect(),
            blob: jobs.blob.clone(),
            digest,
            configuration_hash: configuration_hash(&by_name),
        };
        let spec = software_spec(&self.software, &self.group, &packages, described);
        Ok(Delivery { spec, packages, jobs })
    }
}

/// A compiled package, on this machine.
struct Kept {
    file: PackageFile,
    path: PathBuf,
}

#[async_trait]
impl SoftwareSource for EnvSoftware {
    async fn for_vm(&self, _: &InstanceSpec, vm: &VmRecord) -> Result<Delivery, SoftwareError> {
        self.deliver(vm).map_err(|error| SoftwareError(Box::new(error)))
    }

    async fn open(&self, package: &PackageFile) -> Result<PackageOnDisk, SoftwareError> {
        let missing = || SoftwareError(Box::new(JobsError::NoPackage(package.name.clone())));
        let is_it = |kept: &Kept| kept.file.digest == package.digest;
        let compiled = self.software.packages.iter().filter(|known| known.name == package.name);
        let stored = std::fs::read_dir(&self.compiled).into_iter().flatten().flatten().map(|entry| entry.path());
        // By its content: the caller knows which stemcell it was compiled for.
        let by_digest = stored
            .filter(|path| path.extension().is_some_and(|end| end == "digest"))
            .find(|path| std::fs::read_to_string(path).is_ok_and(|digest| digest == package.digest))
            .map(|path| path.with_extension("tgz"));
        let of_release = compiled.filter_map(|known| {
            let nowhere = StemcellOfVm { name: String::new(), version: String::new(), api_version: None };
            self.kept(known, &nowhere).filter(is_it).map(|kept| kept.path)
        });
        let path = of_release.into_iter().next().or(by_digest).ok_or_else(missing)?;
        Ok(Box::new(path))
    }
}

fn add(software: &mut Software, wanted: &Wanted, job: &WantedJob, releases: &ReadReleases) -> Result<(), EnvError> {
    let release = releases.releases.iter().find(|release| release.manifest.name == job.release);
    let release = release.ok_or_else(|| EnvReleaseError::Unlisted(job.release.clone()))?;
    let found = release.jobs.iter().map(|archive| &archive.job).find(|read| read.spec.name == job.name);
    let found = found.ok_or_else(|| {
        let has: Vec<_> = release.jobs.iter().map(|archive| format!("'{}'", archive.job.spec.name)).collect();
        JobsError::NoJob { release: job.release.clone(), job: job.name.clone(), has: has.join(", ") }
    })?;
    let record = record(release);
    add_packages(software, &wanted.group, &record, &found.spec)
        .map_err(|why| JobsError::Packages { job: job.name.clone(), why })?;
    let properties = bind_properties(&found.spec, &job.properties)
        .map_err(|problems| JobsError::Properties { job: job.name.clone(), problems })?;
    let version = record.jobs.iter().find(|listed| listed.name == job.name).map(|listed| listed.version.clone());
    software.jobs.push(JobOfGroup {
        name: job.name.clone(),
        release: job.release.clone(),
        release_version: release.manifest.version.clone(),
        version: version.unwrap_or_default(),
        properties,
        links: Default::default(),
        provides: Vec::new(),
    });
    Ok(())
}

/// A release, as planning knows those of a director.
fn record(release: &Release) -> ReleaseRecord {
    let manifest = &release.manifest;
    let job = |listed: &windlass_release::JobEntry| JobRecord {
        id: 0,
        name: listed.name.clone(),
        version: listed.version.clone(),
        fingerprint: listed.fingerprint.clone(),
        sha1: listed.sha1.clone(),
        blob: String::new(),
        spec: Value::Null,
    };
    let package = |listed: &windlass_release::Package| PackageRecord {
        id: 0,
        name: listed.name.clone(),
        version: listed.version.clone(),
        fingerprint: listed.fingerprint.clone(),
        source: Some(PackageSource { sha1: listed.sha1.clone(), blob: String::new() }),
        dependencies: listed.dependencies.clone(),
    };
    ReleaseRecord {
        id: 0,
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        commit_hash: String::new(),
        uncommitted_changes: false,
        jobs: manifest.jobs.iter().map(job).collect(),
        packages: manifest.all_packages().map(package).collect(),
        deployments: Vec::new(),
    }
}
