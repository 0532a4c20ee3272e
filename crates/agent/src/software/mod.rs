//! The jobs and packages of this VM: installed under `data/`, in use through links.
//!
//! - [`bundle`]: one job or package, which is on the machine as a whole or not at all.
//! - [`unpack`]: an archive becomes a tree.
//! - [`compile`]: a package is made from its source.
//!
//! `prepare` only installs. `apply` installs what is still missing, then turns the links to it, and then removes what no link
//! leads to; so at most two versions of a job or package are on the machine, and a kill in between loses neither.

mod bundle;
pub(crate) mod compile;
mod unpack;

use std::io;
use std::path::{Path, PathBuf};

use crate::agent::Agent;
use crate::blobs::{Blob, BlobError, Blobs, SignedUrl};
use crate::layout::is_name;
use crate::platform::PlatformError;
use crate::spec::{JobOfSpec, PackageOfSpec, Spec};
use crate::supervisor::{SupervisorError, files};
use windlass_archive::digest::{Digest, NoDigest};

use bundle::{Bundle, Collection};
use unpack::UnpackError;

/// why jobs or packages are not as the spec wants them
#[derive(Debug, thiserror::Error)]
pub(crate) enum SoftwareError {
    /// a name that leads elsewhere
    #[error("'{0}' cannot name a {1}, because it cannot name a file")]
    Name(String, &'static str),
    /// without a version nobody can tell whether it is installed
    #[error("the {1} '{0}' has no version")]
    NoVersion(String, &'static str),
    /// the content cannot be checked
    #[error("the {kind} '{name}' has no digest that can be checked")]
    Digest {
        name: String,
        kind: &'static str,
        #[source]
        source: NoDigest,
    },
    /// the spec names jobs, and nothing to make them of
    #[error("the spec names jobs, but its rendered_templates_archive has no blob")]
    NoArchive,
    /// the archive cannot be had
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// the archive is not what it should be
    #[error("cannot install the {kind} '{name}'")]
    Unpack {
        name: String,
        kind: &'static str,
        #[source]
        source: UnpackError,
    },
    /// owners or permissions cannot be set
    #[error("cannot hand {path} over to the jobs")]
    Owner {
        path: PathBuf,
        #[source]
        source: PlatformError,
    },
    /// a file operation failed
    #[error("cannot change {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> SoftwareError {
    let path = path.to_owned();
    move |source| SoftwareError::Io { path, source }
}

/// Makes the folders of the jobs of `spec` that are missing: those for pid files are in memory, and gone after a reboot.
pub(crate) fn make_folders(agent: &Agent, spec: &Spec) -> Result<(), SoftwareError> {
    let mut jobs = spec.jobs().iter().filter(|job| is_name(&job.name));
    jobs.try_for_each(|job| bundle::make_folders(agent, &job.name))
}

/// What a spec wants on the machine.
#[derive(Debug)]
pub(crate) struct WantedSoftware {
    jobs: Vec<Bundle>,
    packages: Vec<WantedPackage>,
    archive: Option<ArchiveSource>,
}

#[derive(Debug)]
struct WantedPackage {
    bundle: Bundle,
    source: ArchiveSource,
}

/// Where an archive is.
#[derive(Debug)]
struct ArchiveSource {
    blob: String,
    /// Where a director without a store of its own for agents says that it is.
    url: SignedUrl,
    digest: Digest,
}

impl ArchiveSource {
    fn new(blob: &str, url: SignedUrl, digest: &str, name: &str, kind: &'static str) -> Result<Self, SoftwareError> {
        let digest =
            Digest::parse(digest).map_err(|source| SoftwareError::Digest { name: name.to_owned(), kind, source })?;
        Ok(Self { blob: blob.to_owned(), url, digest })
    }

    fn find(&self, blobs: &Blobs<'_>) -> Result<Blob, BlobError> {
        match self.url.is_given() {
            true => blobs.find_signed(&self.url, &self.digest),
            false => blobs.find(&self.blob, &self.digest),
        }
    }
}

/// Names come from a director, and become paths.
fn check(name: &str, version: &str, kind: &'static str) -> Result<(), SoftwareError> {
    if !is_name(name) {
        return Err(SoftwareError::Name(name.to_owned(), kind));
    }
    if version.is_empty() { Err(SoftwareError::NoVersion(name.to_owned(), kind)) } else { Ok(()) }
}

impl WantedSoftware {
    /// Everything is checked before anything changes.
    pub(crate) fn of(agent: &Agent, spec: &Spec) -> Result<Self, SoftwareError> {
        let jobs = spec.jobs();
        let archive = match spec.archive() {
            Some((blob, digest)) => {
                Some(ArchiveSource::new(blob, SignedUrl::default(), digest, spec.name(), "archive of the jobs of")?)
            }
            None if jobs.is_empty() => None,
            None => return Err(SoftwareError::NoArchive),
        };
        let job = |job: &JobOfSpec| {
            check(&job.name, &job.version, "job")?;
            let digest = archive.as_ref().map(|archive| archive.digest.to_string()).unwrap_or_default();
            Ok(Bundle::new(&agent.base, Collection::Jobs, &job.name, &format!("{}-{digest}", job.version)))
        };
        let jobs = jobs.iter().map(job).collect::<Result<_, SoftwareError>>()?;
        let packages = spec.packages();
        let packages = packages.iter().map(|package| WantedPackage::of(agent, package)).collect::<Result<_, _>>()?;
        Ok(Self { jobs, packages, archive })
    }

    /// Installs what is missing; nothing that is in use changes.
    pub(crate) fn install(&self, agent: &Agent) -> Result<(), SoftwareError> {
        let settings = agent.settings.current();
        let blobs = Blobs::new(&agent.base, &settings);
        for package in &self.packages {
            package.install(agent, &blobs)?;
        }
        let Some(archive) = &self.archive else { return Ok(()) };
        if self.jobs.iter().any(|job| !job.is_installed()) {
            let blob = archive.find(&blobs)?;
            for job in self.jobs.iter().filter(|job| !job.is_installed()) {
                job.install(agent.platform.as_ref(), |folder| {
                    let unpacked = unpack::job(blob.path(), &job.name, folder);
                    let tree = unpacked.map_err(|source| job.not_unpacked(source))?;
                    bundle::hand_over_job(agent.platform.as_ref(), &tree)?;
                    Ok(tree)
                })?;
            }
        }
        // It holds the jobs' secrets, and is of no more use.
        blobs.forget(&archive.blob)?;
        Ok(())
    }

    /// Removes what an earlier `prepare` installed and nobody uses or wants any more: at most two versions of anything are there.
    pub(crate) fn forget_unused(&self, agent: &Agent) -> Result<(), SoftwareError> {
        bundle::remove_unused(&agent.base, Collection::Jobs, &self.jobs)?;
        let packages: Vec<Bundle> = self.packages.iter().map(|package| package.bundle.clone()).collect();
        bundle::remove_unused(&agent.base, Collection::Packages, &packages)
    }

    /// Refuses jobs whose processes could not be looked after, also those of two jobs that have one name.
    pub(crate) fn check_monit_files(&self) -> Result<(), SupervisorError> {
        let mut found = Vec::new();
        for job in &self.jobs {
            found.extend(files::of_job(&job.installed, &job.name)?);
        }
        files::check(&found)
    }

    /// Puts in use what is installed, and removes what is not wanted any more.
    pub(crate) fn enable(&self, agent: &Agent) -> Result<(), SoftwareError> {
        let platform = agent.platform.as_ref();
        for job in &self.jobs {
            bundle::make_folders(agent, &job.name)?;
            for package in &self.packages {
                job.link_package(platform, &package.bundle)?;
            }
            job.enable(platform)?;
        }
        bundle::remove_others(&agent.base, Collection::Jobs, &self.jobs)?;
        for package in &self.packages {
            package.bundle.enable(platform)?;
        }
        let packages: Vec<Bundle> = self.packages.iter().map(|package| package.bundle.clone()).collect();
        bundle::remove_others(&agent.base, Collection::Packages, &packages)
    }
}

impl WantedPackage {
    fn of(agent: &Agent, package: &PackageOfSpec) -> Result<Self, SoftwareError> {
        check(&package.name, &package.version, "package")?;
        let (blob, url) = (&package.blobstore_id, package.url.clone());
        let source = ArchiveSource::new(blob, url, &package.sha1, &package.name, "package")?;
        let key = format!("{}-{}", package.version, source.digest);
        Ok(Self { bundle: Bundle::new(&agent.base, Collection::Packages, &package.name, &key), source })
    }

    fn install(&self, agent: &Agent, blobs: &Blobs<'_>) -> Result<(), SoftwareError> {
        if !self.bundle.is_installed() {
            let blob = self.source.find(blobs)?;
            self.bundle.install(agent.platform.as_ref(), |folder| {
                unpack::package(blob.path(), folder).map_err(|source| self.bundle.not_unpacked(source))?;
                bundle::hand_over_package(agent.platform.as_ref(), folder)?;
                Ok(folder.to_owned())
            })?;
        }
        Ok(blobs.forget(&self.source.blob)?)
    }
}
