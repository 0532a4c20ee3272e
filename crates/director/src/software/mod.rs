//! Jobs of instances: read from uploaded releases, and rendered, for a plan and again for the VM that runs them.
//!
//! - [`Library`]: the jobs of releases, read once.
//! - [`Rendering`]: templates become files; a plan compares their hash with what an instance has.
//! - [`template_spec`]: what templates see of an instance.
//! - [`delivery`]: the files on their way to a VM.

pub(crate) mod delivery;
mod template_spec;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_planning::software::{JobOfGroup, Software, TemplateInstance, Templates};
use windlass_release::Job;
use windlass_render::{Native, RenderError, RenderedJob, Renderer, configuration_hash};

use crate::store::{Store, StoreError};

/// More jobs than this are not kept in memory.
const MOST_JOBS: usize = 500;

/// why a job is not to be had
#[derive(Debug, thiserror::Error)]
pub(crate) enum SoftwareError {
    /// the records failed
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the release is gone
    #[error("the {what} of release '{release}' is not here any more; upload the release again")]
    Gone {
        /// Such as `job 'app'`.
        what: String,
        release: String,
    },
    /// the archive is damaged
    #[error("the job '{job}' of release '{release}' cannot be read; upload the release again with --fix")]
    Damaged {
        job: String,
        release: String,
        #[source]
        source: Box<windlass_release::ReleaseError>,
    },
    /// what is kept on record of the jobs is gone
    #[error("nothing on record says which jobs run on {0}; deploy it again")]
    NotOnRecord(String),
    /// a package was compiled and is not any more
    #[error("the package '{package}' is not compiled for {stemcell}; deploy again")]
    NotCompiled { package: String, stemcell: String },
    /// templates cannot be rendered
    #[error("{0}")]
    Render(String),
    /// the archive cannot be written
    #[error("cannot write the files of the jobs to {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// a mistake of ours
    #[error("rendering ended early; this is a defect of Windlass, please report it")]
    Panicked,
}

/// A job of a release; versions are fingerprints, so what is read once stays true.
type JobKey = (String, String, String);

fn key(job: &JobOfGroup) -> JobKey {
    (job.release.clone(), job.name.clone(), job.version.clone())
}

/// The jobs of uploaded releases.
#[derive(Debug)]
pub(crate) struct Library {
    store: Store,
    folder: PathBuf,
    read: Mutex<HashMap<JobKey, Arc<Job>>>,
}

impl Library {
    /// The library of the releases whose archives are in `folder`.
    pub(crate) fn new(store: Store, folder: PathBuf) -> Self {
        Self { store, folder, read: Mutex::default() }
    }

    /// What renders these jobs.
    pub(crate) async fn rendering(&self, jobs: &[JobOfGroup]) -> Result<Rendering, SoftwareError> {
        let mut read = HashMap::new();
        for job in jobs {
            read.insert(key(job), self.job(job).await?);
        }
        Ok(Rendering { jobs: read })
    }

    async fn job(&self, job: &JobOfGroup) -> Result<Arc<Job>, SoftwareError> {
        if let Some(known) = self.read.lock().unwrap_or_else(PoisonError::into_inner).get(&key(job)) {
            return Ok(known.clone());
        }
        let gone = || SoftwareError::Gone { what: format!("job '{}'", job.name), release: job.release.clone() };
        let record = self.store.job_of_release(&job.release, &job.name, &job.version).await?.ok_or_else(gone)?;
        let (path, name) = (self.folder.join(&record.blob), job.name.clone());
        let read = tokio::task::spawn_blocking(move || Job::read(&path, &name)).await;
        let read = read.map_err(|_| SoftwareError::Panicked)?.map_err(|source| SoftwareError::Damaged {
            job: job.name.clone(),
            release: job.release.clone(),
            source: Box::new(source),
        })?;
        let read = Arc::new(read);
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_JOBS {
            known.clear();
        }
        known.insert(key(job), read.clone());
        Ok(read)
    }
}

/// Jobs that are in memory, so that rendering them needs nothing else.
#[derive(Debug)]
pub(crate) struct Rendering {
    jobs: HashMap<JobKey, Arc<Job>>,
}

/// The files of an instance, by job in the manifest's order.
#[derive(Debug)]
pub(crate) struct RenderedInstance(Vec<(String, RenderedJob)>);

impl RenderedInstance {
    pub(crate) fn jobs(&self) -> Vec<(&str, &RenderedJob)> {
        self.0.iter().map(|(name, job)| (name.as_str(), job)).collect()
    }

    pub(crate) fn configuration_hash(&self) -> String {
        configuration_hash(&self.jobs())
    }
}

impl Rendering {
    /// The files of an instance, or everything that is wrong with its templates.
    pub(crate) fn render(
        &self,
        software: &Software,
        instance: &TemplateInstance<'_>,
    ) -> Result<RenderedInstance, String> {
        let mut rendered = Vec::new();
        let mut errors = Vec::new();
        for job in &software.jobs {
            let Some(read) = self.jobs.get(&key(job)) else { continue };
            match Native.render(read, &template_spec::of(software, job, instance)) {
                Ok(files) => rendered.push((job.name.clone(), files)),
                Err(RenderError::NeedsRuby(why)) => {
                    errors.push(format!("The job '{}' needs Ruby, which is not there to render it: {why}", job.name));
                }
                Err(RenderError::Failed(failed)) => errors.push(failed.to_string()),
            }
        }
        if errors.is_empty() {
            return Ok(RenderedInstance(rendered));
        }
        let indented: Vec<_> = errors.iter().map(|error| format!("  - {}", error.replace('\n', "\n    "))).collect();
        let group = instance.group;
        Err(format!("Unable to render jobs for instance group '{group}'. Errors are:\n{}", indented.join("\n")))
    }
}

impl Templates for Rendering {
    fn configuration_hash(&self, software: &Software, instance: &TemplateInstance<'_>) -> Result<String, String> {
        Ok(self.render(software, instance)?.configuration_hash())
    }
}
