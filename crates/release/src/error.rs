//! Why a release is refused.

use std::io;
use std::path::PathBuf;

use windlass_archive::digest::{Mismatch, NoDigest};
use windlass_manifest::{ParseError, Problem};

use crate::graph::GraphError;
use crate::version::NoVersion;

/// why a release cannot be used
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// the file cannot be read
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// nothing can be written where it is laid out
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// an archive is damaged, or takes more than it may
    #[error("{0} is not a usable archive; create the release again")]
    Archive(String, #[source] io::Error),
    /// an archive has what no release has
    #[error("{archive} has '{file}', which {why}; create the release again")]
    Member {
        /// The tarball, or an archive in it.
        archive: String,
        file: String,
        why: &'static str,
    },
    /// there is no release.MF
    #[error("Release manifest not found: the tarball has no release.MF; make it with 'create-release --tarball'")]
    NoManifest,
    /// a document is not YAML
    #[error("{0} is not valid YAML; correct it and create the release again")]
    Yaml(String, #[source] ParseError),
    /// a document is not what it should be
    #[error("{0} is not valid; correct it and create the release again")]
    Document(String, #[source] Problem),
    /// a name that leads elsewhere, or that no release has
    #[error(
        "Invalid {kind} name in release manifest: '{name}' has characters other than letters, digits and -_+.; rename it"
    )]
    Name {
        /// What is called so.
        kind: &'static str,
        name: String,
    },
    /// two things of one name
    #[error("the release has two {kind}s '{name}'; create it again")]
    Twice {
        /// What is called so.
        kind: &'static str,
        name: String,
    },
    /// source and compiled packages at once
    #[error(
        "release.MF has both 'packages' and 'compiled_packages'; a release has its packages as source or compiled, so create or \
         export it again"
    )]
    BothKinds,
    /// the version has another form
    #[error(transparent)]
    Version(#[from] NoVersion),
    /// an archive is listed, but not in the tarball
    #[error("the release lists the {kind} '{name}', but its tarball has no {file}; create the release again")]
    Missing {
        /// Job, package or compiled package.
        kind: &'static str,
        name: String,
        /// The file that should be there.
        file: String,
    },
    /// no digest that could be checked
    #[error("the {kind} '{name}' has no digest that can be checked; create the release again")]
    NoDigest {
        /// Job, package or compiled package.
        kind: &'static str,
        name: String,
        #[source]
        source: NoDigest,
    },
    /// it is another one
    #[error(
        "the archive of the {kind} '{name}' is not the one that release.MF describes; copy or create the release again"
    )]
    Digest {
        /// Job, package or compiled package.
        kind: &'static str,
        name: String,
        #[source]
        source: Mismatch,
    },
    /// packages need each other, or nobody
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// a job needs a package that the release does not have
    #[error(
        "the job '{job}' needs the package '{package}', which the release does not have; add it, or remove it from the job's \
         'packages'"
    )]
    UnknownPackage {
        job: String,
        /// What it needs.
        package: String,
    },
    /// the job is called otherwise inside
    #[error("Inconsistent name for job '{listed}': its job.MF calls it '{found}'; create the release again")]
    JobName {
        /// In release.MF.
        listed: String,
        /// In job.MF.
        found: String,
    },
    /// a job without its description
    #[error("Missing job manifest for '{0}': its archive has no job.MF; create the release again")]
    NoJobManifest(String),
    /// templates that would fill the memory
    #[error(
        "with job '{job}' the templates and descriptions of all jobs take more than {mib} MiB; put large files into packages"
    )]
    LargeJobs {
        /// The job that was one too many.
        job: String,
        /// What there may be.
        mib: usize,
    },
    /// nobody could run it
    #[error("Job '{0}' is missing monit file; add one to the job, which may be empty")]
    NoMonit(String),
    /// a template that is not there
    #[error("Missing template file '{template}' for job '{job}'; add it, or remove it from the job's 'templates'")]
    NoTemplate { job: String, template: String },
    /// a template whose result would be elsewhere
    #[error(
        "the template '{template}' of job '{job}' would be written to '{destination}', which is not inside of the job; name \
         a path inside"
    )]
    Destination {
        job: String,
        template: String,
        /// Where it would be.
        destination: String,
    },
    /// a template that is not text
    #[error("the file '{file}' of job '{job}' is not UTF-8; put such files into packages")]
    NotText { job: String, file: String },
    /// what a job has is too much
    #[error("the files of job '{job}' have more than {limit} MiB; put large files into packages")]
    TooLarge { job: String, limit: u64 },
}

impl ReleaseError {
    /// The number by which BOSH's clients know it.
    pub fn code(&self) -> u32 {
        match self {
            Self::NoManifest => 30003,
            Self::Archive(..) | Self::Member { .. } => 30002,
            Self::Name { .. } => 40005,
            Self::Version(_) => 30010,
            Self::Digest { .. } | Self::NoDigest { .. } => 30015,
            Self::JobName { .. } => 80016,
            Self::NoJobManifest(_) => 80001,
            Self::NoTemplate { .. } => 80002,
            Self::NoMonit(_) => 80004,
            Self::UnknownPackage { .. } => 80006,
            _ => 100,
        }
    }
}
