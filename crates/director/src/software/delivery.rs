//! Jobs and compiled packages, made ready for the VM of an instance.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;
use sha1::{Digest, Sha1};
use windlass_blobs::Blobstore;
use windlass_contract::Object;
use windlass_operations::software::{
    Delivery, JobTemplates, JobsFile, PackageFile, PackageOnDisk, RenderedJobs, SoftwareSource, software_spec,
};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::{InstancePlan, InstanceSpec};
use windlass_planning::records::{CompiledPackage, VmRecord};
use windlass_planning::software::{Software, TemplateInstance, VariableSet};
use windlass_render::Backends;
use windlass_variables::Scope;

use super::{NotRendered, RenderedInstance, SoftwareError, archive};
use crate::limits::Deliveries;
use crate::local_dns::LocalDns;
use crate::software::Library;
use crate::store::Store;
use crate::users::RESURRECTOR;
use crate::variables::{KnownValues, LoadedSets, Variables};
use crate::{Director, limits};

/// The jobs of one instance.
#[derive(Debug)]
pub(crate) struct JobsOfInstance {
    store: Store,
    library: Arc<Library>,
    blobs: Arc<Blobstore>,
    deployment: DeploymentName,
    plan: InstancePlan,
    /// The task's own.
    renderer: Arc<Backends>,
    variables: Variables,
    /// The task's own.
    sets: Arc<LoadedSets>,
    scope: Scope,
    /// What the templates gave last.
    applied: Mutex<Option<String>>,
    dns: Arc<LocalDns>,
    /// Of the task's user.
    deliveries: Deliveries,
}

impl JobsOfInstance {
    pub(crate) fn new(
        director: &Director,
        deployment: &DeploymentName,
        plan: &InstancePlan,
        (renderer, sets): (Arc<Backends>, Arc<LoadedSets>),
        user: &str,
    ) -> Self {
        // What goes on in one deployment keeps no other from being repaired.
        // No user's name has a colon.
        let party = match user {
            RESURRECTOR => format!("{RESURRECTOR}:{deployment}"),
            _ => director.users.party(user).to_owned(),
        };
        Self {
            deliveries: director.limits.deliveries(&party),
            variables: director.variables.clone(),
            sets,
            scope: Scope::of(&director.name, deployment),
            store: director.store.clone(),
            library: director.library.clone(),
            blobs: director.blobs.clone(),
            deployment: deployment.to_owned(),
            plan: plan.clone(),
            renderer,
            applied: Mutex::default(),
            dns: director.dns.clone(),
        }
    }

    /// The hash of the files that the VM got last.
    pub(crate) fn applied(&self) -> Option<String> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn deliver(&self, spec: &InstanceSpec, vm: &VmRecord) -> Result<Delivery, SoftwareError> {
        let label = || self.plan.label();
        let place = self.deliveries.rendering().await;
        let wanted = spec.software.as_ref().ok_or_else(|| SoftwareError::NotOnRecord(label()))?;
        let software = self.store.software(&wanted.digest).await?.ok_or_else(|| SoftwareError::NotOnRecord(label()))?;
        let rendering = self.library.rendering_by(self.renderer.clone(), &software.jobs).await?;
        let rendering = rendering.knowing(Arc::new(self.values(spec.variables).await?));
        let instance = TemplateInstance {
            deployment: &self.deployment,
            group: &self.plan.group,
            index: self.plan.index,
            id: &self.plan.id,
            az: self.plan.az.as_deref(),
            bootstrap: self.plan.bootstrap,
            networks: &vm.networks,
            persistent_disk: spec.managed_disk().map(|disk| disk.size),
            variables: spec.variables,
            dns_address: spec.dns_address.as_deref(),
        };
        // Ruby takes its time.
        let rendered = limits::beside_requests(|| rendering.render(&software, &instance));
        let rendered = rendered.map_err(NotRendered::of_vm)?;
        let room = self.deliveries.packing(rendered.bytes()).await;
        let (jobs, digest) = pack(&rendered)?;
        let jobs = jobs.within(room);
        // Packages may have to be fetched.
        drop(place);
        let packages = self.packages(&software, vm).await?;
        let file = |package: CompiledPackage| PackageFile {
            name: package.key.package.clone(),
            version: package.version(),
            digest: package.sha1,
            blob: package.blob,
        };
        let packages: Vec<PackageFile> = packages.into_iter().map(file).collect();
        let spec = self.spec(&software, &rendered, &packages, (&jobs.blob, &digest)).await?;
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = Some(rendered.configuration_hash());
        Ok(Delivery { spec, packages, jobs })
    }

    /// The versions that the instance was deployed with.
    async fn values(&self, set: Option<VariableSet>) -> Result<KnownValues, SoftwareError> {
        let scope = self.scope.clone();
        match set {
            None => Ok(KnownValues::none(scope)),
            Some(set) => {
                let values = self.sets.get(&self.variables, &scope, set).await?;
                Ok(KnownValues::of_set(scope, Some(set), values))
            }
        }
    }

    /// The packages that its jobs name, compiled for the VM's stemcell.
    async fn packages(&self, software: &Software, vm: &VmRecord) -> Result<Vec<CompiledPackage>, SoftwareError> {
        let (name, version) = (&vm.stemcell.name, &vm.stemcell.version);
        let os = self.store.operating_system(name, version).await?.unwrap_or_default();
        let mut packages = Vec::new();
        for package in software.packages.iter().filter(|package| package.is_direct) {
            let compiled = self.store.compiled_package(&package.key(&os, version)).await?;
            packages.push(compiled.ok_or_else(|| SoftwareError::NotCompiled {
                package: package.name.clone(),
                stemcell: format!("{os}/{version}"),
            })?);
        }
        Ok(packages)
    }

    async fn spec(
        &self,
        software: &Software,
        rendered: &RenderedInstance,
        packages: &[PackageFile],
        (blob, digest): (&str, &str),
    ) -> Result<Object, SoftwareError> {
        let mut templates = Vec::new();
        for job in &software.jobs {
            let gone = || SoftwareError::Gone { what: format!("job '{}'", job.name), release: job.release.clone() };
            let record = self.store.job_of_release(&job.release, &job.name, &job.version).await?.ok_or_else(gone)?;
            let logs = record.spec.get("logs").filter(|logs| !logs.is_null()).cloned();
            templates.push(JobTemplates { sha1: record.sha1, blob: record.blob, logs });
        }
        let hashes = rendered.jobs().into_iter().map(|(name, job)| (name.to_owned(), Value::from(job.template_hash())));
        let rendered = RenderedJobs {
            templates,
            hashes: hashes.collect(),
            blob: blob.to_owned(),
            digest: digest.to_owned(),
            configuration_hash: rendered.configuration_hash(),
        };
        Ok(software_spec(software, &self.plan.group, packages, rendered))
    }
}

impl NotRendered {
    /// Only the addresses of its VM showed it.
    pub(super) fn of_vm(mut self) -> Self {
        let remedy = if self.lacks_ruby {
            "Once Ruby can be asked, deploy again."
        } else {
            "Mend what is wrong, and deploy again."
        };
        self.text.push_str(&format!("\nThe VM is kept. {remedy}"));
        self
    }
}

#[async_trait]
impl SoftwareSource for JobsOfInstance {
    async fn for_vm(
        &self,
        spec: &InstanceSpec,
        vm: &VmRecord,
    ) -> Result<Delivery, windlass_operations::software::SoftwareError> {
        // Scripts of jobs may look for others as soon as they run.
        self.dns.tell(vm).await;
        let delivered = self.deliver(spec, vm).await;
        delivered.map_err(|error| windlass_operations::software::SoftwareError(Box::new(error)))
    }

    async fn open(&self, package: &PackageFile) -> Result<PackageOnDisk, windlass_operations::software::SoftwareError> {
        let opened = archive(&self.blobs, &package.blob, &package.digest).await;
        opened
            .map(|file| Box::new(file) as PackageOnDisk)
            .map_err(|error| windlass_operations::software::SoftwareError(Box::new(error)))
    }
}

/// Packs the jobs; returns the archive's digest as well.
fn pack(rendered: &RenderedInstance) -> Result<(JobsFile, String), SoftwareError> {
    let archive = windlass_render::archive(&rendered.jobs()).map_err(SoftwareError::Pack)?;
    let digest = Sha1::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    let blob = uuid::Uuid::new_v4().to_string();
    Ok((JobsFile::new(blob, &archive).map_err(SoftwareError::Pack)?, digest))
}
